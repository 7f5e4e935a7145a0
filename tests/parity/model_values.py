"""Ten-step losses of every model, from weights that PyTorch wrote.

Small models start from NAME.safetensors beside this file. A ResNet is too large for that: its
weights follow a rule (`rule_weights`) that the test knows too.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file

from files import HERE, hashed, hashed_integers, hashed_tensor, write

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "bench" / "peer"))
import twins  # noqa: E402

BATCH, STEPS = 16, 10

SGD = "optimizer: {name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 1e-4}"
# In a ResNet rounding grows with every step, the faster the larger the rate.
GENTLE_SGD = SGD.replace("0.05", "0.001")
ADAMW = "optimizer: {name: adamw, lr: 0.002, weight_decay: 0.1}"


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4)


def gentle_sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.001, momentum=0.9, weight_decay=1e-4)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.002, weight_decay=0.1)


# name: (recipe of dtrain, data, twin, optimizer, whether a file of weights is kept)
MODELS = {
    "mlp": ("model: {name: mlp, inputs: 12, hidden: [16, 9], outputs: 5}\n" + SGD,
            {"image": [2, 2, 3], "classes": 5},
            lambda: twins.Mlp(12, [16, 9], 5), sgd, True),
    "convnet": ("model: {name: convnet, channels: [8, 16], hidden: 12, classes: 5}\n" + ADAMW,
                {"image": [12, 12, 3], "classes": 5},
                lambda: twins.Convnet((12, 12, 3), (8, 16), 12, 5), adamw, True),
    "resnet18": ("model: {name: resnet, depth: 18, stem: cifar, classes: 5}\n" + GENTLE_SGD,
                 {"image": [16, 16, 3], "classes": 5},
                 lambda: twins.ResNet(18, "cifar", 5), gentle_sgd, False),
    "gpt": ("model: {name: gpt, layers: 2, width: 24, heads: 3, context: 16, vocabulary: 50}\n"
            + ADAMW,
            {"tokens": 16, "classes": 50},
            lambda: twins.Gpt(2, 24, 3, 16, 50), adamw, True),
}


def rule_weights(model):
    """Sets all parameters to hashed numbers, with seeds in name order: 1000, 1001, ..."""
    for seed, (name, p) in enumerate(sorted(model.named_parameters()), 1000):
        values = hashed_tensor(p.shape, seed)
        with torch.no_grad():
            if p.dim() > 1:
                fan_in = p[0].numel()
                p.copy_(values * float(torch.tensor(3.0 / fan_in).sqrt()))
            else:
                p.copy_(values * 0.125 + (1.0 if name.endswith("weight") else 0.0))
                # Residual blocks begin small, as in training: else rounding grows too fast.
                if name.endswith("bn2.weight"):
                    p.mul_(0.25)


def reordered(model, tensors, to_dtrain):
    """Between PyTorch's order of axes and dtrain's."""
    tensors = dict(tensors)
    if isinstance(model, twins.Convnet):
        order = twins.flatten_order(model.flattened)
        columns = order if to_dtrain else torch.argsort(order)
        tensors["fc1.weight"] = tensors["fc1.weight"][:, columns]
    if isinstance(model, twins.Gpt):
        # As in GPT-2's own files, linear layers are [in, out].
        for name, tensor in tensors.items():
            if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
                tensors[name] = tensor.t()
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def dtrain_tensors(model):
    """The model's tensors by dtrain's names, in its order of axes."""
    tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()
               if not name.endswith("num_batches_tracked")}
    return reordered(model, tensors, to_dtrain=True)


def load_dtrain_tensors(model, tensors):
    """Sets the model's weights to those that dtrain wrote."""
    tensors = reordered(model, tensors, to_dtrain=False)
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unexpected:
        raise ValueError(f"missing: {missing}, unexpected: {unexpected}")


def batch(data, step):
    """Samples step * BATCH and on: x as the twin takes it, and targets."""
    first = step * BATCH
    if "image" in data:
        height, width, channels = data["image"]
        size = height * width * channels
        pixels = hashed((first + BATCH) * size, 1)[first * size:]
        x = torch.from_numpy(pixels).reshape(BATCH, height, width, channels).permute(0, 3, 1, 2)
        return x, hashed_integers([first + BATCH], 2, data["classes"])[first:]
    length = data["tokens"] + 1
    tokens = hashed_integers([(first + BATCH) * length], 1, data["classes"])
    tokens = tokens[first * length:].reshape(BATCH, length)
    return tokens[:, :-1], tokens[:, 1:]


def train(model, data, make_optimizer, dtype):
    model = model.to(dtype)
    optimizer = make_optimizer(model.parameters())
    losses = []
    for step in range(STEPS):
        x, targets = batch(data, step)
        x = x.to(dtype) if x.is_floating_point() else x
        if isinstance(model, twins.Mlp):
            x = x.permute(0, 2, 3, 1)  # flattened in H, W, C order
        optimizer.zero_grad()
        loss = twins.loss_of(model(x), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def make():
    results = []
    for name, (recipe, data, twin, optimizer, keep) in MODELS.items():
        model = twin()
        rule_weights(model)
        if keep:
            save_file(dtrain_tensors(model), HERE / f"{name}.safetensors",
                      metadata={"torch": torch.__version__})
        losses = train(model, data, optimizer, torch.float32)
        exact = twin()
        rule_weights(exact)
        exact_losses = train(exact, data, optimizer, torch.float64)
        # A comparison says little where rounding alone moves a loss as far.
        spread = max(abs(a - b) for a, b in zip(losses, exact_losses)) / max(exact_losses)
        if spread > 2e-5:
            raise ValueError(f"{name}: single and double precision differ by {spread:.1e}")
        results.append({"name": name, "recipe": recipe, "data": data, "batch": BATCH,
                        "weights": f"{name}.safetensors" if keep else "", "losses": losses})
        print(f"{name}: losses {losses[0]:.4f} ... {losses[-1]:.4f}, rounding {spread:.1e}")
    write("models.json", {"models": results})
