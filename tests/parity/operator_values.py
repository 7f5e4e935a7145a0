"""Values of operators, forward and backward: computed by PyTorch in double precision from inputs
that the tests make themselves.

Images are NHWC in all values. Each case is {op, options, x, parameters: {name: shape},
y, gradients: {x and each parameter}}; seeds are 1 for x, 2, 3, ... for the parameters in order,
and 99 for the gradient of y. The option `scale` multiplies x; with `vocabulary` x is of tokens,
which have no gradient.
"""

import torch
import torch.nn.functional as F

from files import hashed_integers, hashed_tensor, packed, write


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


def on_images(function):
    return lambda x, p, o: nhwc(function(nchw(x), p, o))


def conv2d(x, p, o):
    return F.conv2d(x, p["weight"], p.get("bias"), o.get("stride", 1), o.get("padding", 0),
                    o.get("dilation", 1), o.get("groups", 1))


def batch_norm(x, p, o):
    """Over all but the last axis, with the batch's statistics."""
    flat = x.reshape(-1, x.shape[-1])
    return F.batch_norm(flat, None, None, p["weight"], p["bias"], training=True,
                        eps=o["epsilon"]).reshape(x.shape)


def attention_over(q, k, v, o):
    """Keys outside [first, last) of their sample's `seen`, if there is one, are padding."""
    n, t, width = q.shape
    mask = None
    if "seen" in o:
        key = torch.arange(k.shape[1])
        mask = torch.stack([(key >= first) & (key < last) for first, last in o["seen"]])
        mask = mask[:, None, None, :].expand(-1, o["heads"], t, -1)
    q, k, v = (x.reshape(n, x.shape[1], o["heads"], -1).transpose(1, 2) for x in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=o["causal"])
    return y.transpose(1, 2).reshape(n, t, width)


def layer_norm(x, p):
    return F.layer_norm(x, x.shape[-1:], p["norm_weight"], p["norm_bias"], 1e-5)


def linear_in_out(x, p):
    return F.linear(x, p["weight"].t(), p["bias"])


OPERATORS = {
    "linear": lambda x, p, o: F.linear(x, p["weight"], p.get("bias")),
    "linear_in_out": lambda x, p, o: linear_in_out(x, p),
    "linear_residual": lambda x, p, o: p["residual"] + linear_in_out(x, p),
    "batch_norm_add_relu": lambda x, p, o: F.relu(batch_norm(x, p, o) + p["residual"]),
    "group_norm": on_images(lambda x, p, o: F.group_norm(x, o["groups"], p["weight"], p["bias"],
                                                         o["epsilon"])),
    # x: queries, keys and values side by side.
    "attention": lambda x, p, o: attention_over(*x.chunk(3, 2), o),
    "cross_attention": lambda x, p, o: attention_over(x, p["keys"], p["values"], o),
    "layer_norm": lambda x, p, o: layer_norm(x, p),
    "rms_norm": lambda x, p, o: F.rms_norm(x, x.shape[-1:], p["weight"], o["epsilon"]),
    "layer_norm_linear": lambda x, p, o: linear_in_out(layer_norm(x, p), p),
    "gelu_tanh_linear_residual": lambda x, p, o: p["residual"] + linear_in_out(
        F.gelu(x, approximate="tanh"), p),
    "embedding": lambda x, p, o: F.embedding(x, p["table"]) + (
        p["positions"][:x.shape[-1]] if "positions" in p else 0),
    "transpose": lambda x, p, o: x.transpose(o["a"], o["b"]),
    "concat": lambda x, p, o: torch.cat([x, p["other"]], o["axis"]),
    "slice": lambda x, p, o: x.narrow(o["axis"], o["first"], o["last"] - o["first"]),
    "conv2d": on_images(conv2d),
    "batch_norm": batch_norm,
    "batch_norm_relu": lambda x, p, o: F.relu(batch_norm(x, p, o)),
    "relu": lambda x, p, o: F.relu(x),
    "gelu": lambda x, p, o: F.gelu(x),
    "gelu_tanh": lambda x, p, o: F.gelu(x, approximate="tanh"),
    "silu": lambda x, p, o: F.silu(x),
    "sigmoid": lambda x, p, o: torch.sigmoid(x),
    "tanh": lambda x, p, o: torch.tanh(x),
    "softmax": lambda x, p, o: F.softmax(x, -1),
    "max_pool2d": on_images(lambda x, p, o: F.max_pool2d(x, o["kernel"], o["stride"],
                                                         o.get("padding", 0))),
    "avg_pool2d": on_images(lambda x, p, o: F.avg_pool2d(x, o["kernel"], o["stride"],
                                                         o.get("padding", 0))),
    "adaptive_avg_pool2d": on_images(
        lambda x, p, o: F.adaptive_avg_pool2d(x, (o["height"], o["width"]))),
    "add": lambda x, p, o: x + p["other"],
    "multiply": lambda x, p, o: x * p["other"],
}


def conv(x, out, kernel, bias=True, **options):
    weight = [out, x[3] // options.get("groups", 1), kernel, kernel]
    return "conv2d", options, x, {"weight": weight, **({"bias": [out]} if bias else {})}


def winograd(x, out):
    """A convolution that may be computed by Winograd's algorithm, which rounds more."""
    op, options, x, parameters = conv(x, out, 3, bias=False, padding=1)
    return op, {**options, "winograd": True}, x, parameters


def norm(op, x):
    return op, {"epsilon": 1e-5}, x, {"weight": [x[-1]], "bias": [x[-1]]}


CASES = [
    ("linear", {}, [5, 7], {"weight": [3, 7], "bias": [3]}),
    ("linear", {}, [32, 784], {"weight": [256, 784], "bias": [256]}),
    ("linear", {}, [33, 129], {"weight": [65, 129]}),
    conv([2, 8, 8, 3], 16, 3, padding=1),
    conv([2, 9, 7, 3], 5, 3, padding=1),
    conv([2, 16, 16, 64], 64, 3, bias=False, padding=1),
    winograd([5, 14, 14, 32], 64),
    winograd([4, 16, 16, 64], 64),
    winograd([17, 7, 8, 128], 128),
    conv([2, 15, 15, 64], 128, 3, bias=False, stride=2, padding=1),
    conv([2, 8, 8, 64], 128, 1, bias=False, stride=2),
    conv([2, 8, 8, 64], 256, 1, bias=False),
    conv([1, 32, 32, 3], 64, 7, bias=False, stride=2, padding=3),
    conv([2, 11, 12, 16], 16, 3, padding=2, dilation=2),
    conv([2, 13, 13, 8], 12, 3, padding=0, stride=2, dilation=3),
    conv([2, 9, 9, 16], 32, 3, padding=1, groups=4),
    conv([2, 10, 10, 16], 16, 3, padding=1, groups=16),
    conv([2, 9, 11, 32], 64, 3, padding=2, dilation=2, groups=2),
    conv([1, 7, 7, 5], 7, 5, padding=2),
    norm("batch_norm", [6, 5]),
    norm("batch_norm", [3, 5, 4, 17]),
    norm("batch_norm", [2, 8, 8, 64]),
    norm("batch_norm_relu", [3, 5, 4, 17]),
    norm("batch_norm_relu", [2, 8, 8, 64]),
    *[(op, {}, [5, 37], {}) for op in ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh",
                                       "softmax")],
    ("max_pool2d", {"kernel": 2, "stride": 2}, [2, 9, 8, 17], {}),
    ("max_pool2d", {"kernel": 3, "stride": 2, "padding": 1}, [2, 10, 9, 16], {}),
    ("avg_pool2d", {"kernel": 2, "stride": 2}, [2, 9, 8, 17], {}),
    ("avg_pool2d", {"kernel": 3, "stride": 2, "padding": 1}, [2, 10, 9, 16], {}),
    ("adaptive_avg_pool2d", {"height": 1, "width": 1}, [2, 7, 7, 64], {}),
    ("adaptive_avg_pool2d", {"height": 3, "width": 2}, [2, 7, 5, 3], {}),
    ("linear_in_out", {}, [3, 5, 24], {"weight": [24, 72], "bias": [72]}),
    ("linear_residual", {}, [3, 7, 40],
     {"weight": [40, 24], "bias": [24], "residual": [3, 7, 24]}),
    ("batch_norm_add_relu", {"epsilon": 1e-5}, [3, 5, 4, 17],
     {"weight": [17], "bias": [17], "residual": [3, 5, 4, 17]}),
    ("batch_norm_add_relu", {"epsilon": 1e-5}, [2, 8, 8, 64],
     {"weight": [64], "bias": [64], "residual": [2, 8, 8, 64]}),
    ("group_norm", {"groups": 3, "epsilon": 1e-5}, [3, 5, 4, 18], {"weight": [18], "bias": [18]}),
    ("group_norm", {"groups": 32, "epsilon": 1e-5}, [2, 8, 8, 64], {"weight": [64], "bias": [64]}),
    ("attention", {"heads": 2, "causal": True}, [2, 130, 3 * 32], {}),
    # Scaled: few keys have nearly all of the softmax.
    ("attention", {"heads": 2, "causal": True, "scale": 4}, [2, 70, 3 * 10], {}),
    ("attention", {"heads": 3, "causal": False}, [2, 33, 3 * 15], {}),
    ("cross_attention", {"heads": 3, "causal": True}, [2, 5, 24],
     {"keys": [2, 5, 24], "values": [2, 5, 24]}),
    ("cross_attention", {"heads": 3, "causal": False, "seen": [[0, 6], [2, 9]]}, [2, 6, 24],
     {"keys": [2, 9, 24], "values": [2, 9, 24]}),
    ("cross_attention", {"heads": 1, "causal": False, "scale": 16}, [2, 66, 4],
     {"keys": [2, 67, 4], "values": [2, 67, 4]}),
    ("layer_norm", {}, [3, 5, 19], {"norm_weight": [19], "norm_bias": [19]}),
    ("rms_norm", {"epsilon": 1e-5}, [3, 5, 19], {"weight": [19]}),
    ("layer_norm_linear", {}, [3, 7, 40],
     {"norm_weight": [40], "norm_bias": [40], "weight": [40, 21], "bias": [21]}),
    ("gelu_tanh_linear_residual", {}, [3, 7, 40],
     {"weight": [40, 24], "bias": [24], "residual": [3, 7, 24]}),
    ("embedding", {"vocabulary": 9}, [3, 6], {"table": [9, 7]}),
    ("embedding", {"vocabulary": 9}, [3, 6], {"table": [9, 17], "positions": [8, 17]}),
    ("transpose", {"a": 1, "b": 2}, [2, 3, 5, 7], {}),
    ("concat", {"axis": 1}, [2, 3, 5], {"other": [2, 4, 5]}),
    ("slice", {"axis": 1, "first": 2, "last": 5}, [2, 6, 5], {}),
    ("add", {}, [4, 6, 5], {"other": [5]}),
    ("multiply", {}, [4, 6, 5], {"other": [6, 1]}),
]


def compute(op, options, x, parameters):
    leaves = {name: hashed_tensor(shape, seed).double().requires_grad_()
              for seed, (name, shape) in enumerate(parameters.items(), 2)}
    if "vocabulary" in options:
        x, inputs = hashed_integers(x, 1, options["vocabulary"]), {}
    else:
        x = (hashed_tensor(x, 1).double() * options.get("scale", 1)).requires_grad_()
        inputs = {"x": x}
    y = OPERATORS[op](x, leaves, options)
    y.backward(hashed_tensor(y.shape, 99).double())
    gradients = {name: packed(leaf.grad) for name, leaf in {**inputs, **leaves}.items()}
    return {"y": packed(y), "gradients": gradients}


def make():
    results = []
    for op, options, x, parameters in CASES:
        results.append({"op": op, "options": options, "x": x,
                        "parameters": [{"name": name, "shape": shape}
                                       for name, shape in parameters.items()],
                        **compute(op, options, x, parameters)})
    write("operators.json", {"cases": results})
