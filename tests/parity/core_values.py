"""Values of optimizers, schedules, losses and activations."""

import torch
import torch.nn.functional as F

from files import numbers, write


class Lamb(torch.optim.Optimizer):
    """arXiv:1904.00962v3 with bias correction, in plain operations: PyTorch has no LAMB."""

    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01,
                 foreach=False):
        super().__init__(parameters, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for w in group["params"]:
                state = self.state[w]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(w),
                                 exp_avg_sq=torch.zeros_like(w))
                state["step"] += 1
                m = state["exp_avg"].mul_(beta1).add_(w.grad, alpha=1 - beta1)
                v = state["exp_avg_sq"].mul_(beta2).addcmul_(w.grad, w.grad, value=1 - beta2)
                m = m / (1 - beta1 ** state["step"])
                v = v / (1 - beta2 ** state["step"])
                update = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * w
                norms = w.norm(), update.norm()
                ratio = norms[0] / norms[1] if min(norms) > 0 else 1.0
                w -= group["lr"] * ratio * update


def optimizers():
    steps, size = 20, 13
    weights = torch.randn(size)
    gradients = torch.randn(steps, size) * torch.logspace(-3, 1, size)
    rates = [0.05 * (1 + step % 3) for step in range(steps)]
    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    cases = [
        ("sgd", sgd, {}),
        ("sgd", sgd, {"weight_decay": 0.1}),
        ("sgd", sgd, {"momentum": 0.9}),
        ("sgd", sgd, {"momentum": 0.9, "weight_decay": 0.1}),
        ("sgd", sgd, {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
        ("sgd", sgd, {"momentum": 0.8, "nesterov": True, "weight_decay": 0.01}),
        ("adam", adam, {}),
        ("adam", adam, {"weight_decay": 0.1, "betas": [0.8, 0.9], "eps": 1e-3}),
        ("adamw", adamw, {"weight_decay": 0.0}),
        ("adamw", adamw, {"weight_decay": 0.01}),
        ("adamw", adamw, {"weight_decay": 0.3, "betas": [0.7, 0.99], "eps": 1e-6}),
        ("lamb", Lamb, {"weight_decay": 0.0}),
        ("lamb", Lamb, {"weight_decay": 0.01}),
        ("lamb", Lamb, {"weight_decay": 0.3, "betas": [0.7, 0.99], "eps": 1e-6}),
    ]
    results = []
    for name, make, options in cases:
        parameter = torch.nn.Parameter(weights.clone())
        optimizer = make([parameter], lr=rates[0], foreach=False, **options)
        after = []
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = rates[step]
            parameter.grad = gradients[step].clone()
            optimizer.step()
            after.append(numbers(parameter.detach()))
        state = {key: numbers(value) for key, value in optimizer.state[parameter].items()
                 if torch.is_tensor(value) and value.dim() == 1}
        results.append({"name": name, "options": options, "weights": after, "state": state})
    write("optimizers.json", {"weights": numbers(weights), "gradients": numbers(gradients),
                              "rates": rates, "cases": results})


def schedules():
    lr = torch.optim.lr_scheduler
    cases = [
        ({"name": "constant"}, 5, lambda o: lr.ConstantLR(o, factor=1)),
        ({"name": "step", "step_size": 3, "gamma": 0.5}, 10, lambda o: lr.StepLR(o, 3, 0.5)),
        ({"name": "multistep", "milestones": [2, 5], "gamma": 0.1}, 8,
         lambda o: lr.MultiStepLR(o, [2, 5], 0.1)),
        ({"name": "cosine", "min_lr": 0.02}, 11, lambda o: lr.CosineAnnealingLR(o, 11, 0.02)),
        ({"name": "linear"}, 4, lambda o: lr.LinearLR(o, 1, 0, 4)),
        ({"name": "linear", "min_lr": 0.1}, 7, lambda o: lr.LinearLR(o, 1, 0.25, 7)),
        ({"name": "polynomial", "power": 2.0}, 9, lambda o: lr.PolynomialLR(o, 9, 2)),
        ({"name": "one_cycle", "max_lr": 1.5}, 20, lambda o: lr.OneCycleLR(o, 1.5, 20)),
        ({"name": "one_cycle", "max_lr": 0.8, "pct_start": 0.5, "div_factor": 10.0,
          "final_div_factor": 100.0}, 13,
         lambda o: lr.OneCycleLR(o, 0.8, 13, pct_start=0.5, div_factor=10, final_div_factor=100)),
        ({"name": "cosine", "warmup_steps": 4, "warmup_start": 0.25}, 16,
         lambda o: lr.SequentialLR(
             o, [lr.LinearLR(o, 0.25, 1, 4), lr.CosineAnnealingLR(o, 12)], [4])),
        ({"name": "multistep", "milestones": [3], "warmup_steps": 2, "warmup_start": 0.5}, 8,
         lambda o: lr.SequentialLR(
             o, [lr.LinearLR(o, 0.5, 1, 2), lr.MultiStepLR(o, [3], 0.1)], [2])),
    ]
    results = []
    for options, steps, make in cases:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
        scheduler = make(optimizer)
        rates = []
        for _ in range(steps):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        results.append({"options": options, "steps": steps, "rates": rates})
    write("schedules.json", {"lr": 0.4, "cases": results})


def losses():
    rows, classes = 6, 7
    x = torch.randn(rows, classes) * 3
    targets = torch.tensor([0, 6, 3, -100, 2, 6])
    weights = torch.rand(classes) * 2
    results = []
    for smoothing in (0.0, 0.1, 0.7):
        for weighted in (False, True):
            leaf = x.clone().requires_grad_()
            options = {"label_smoothing": smoothing, "weight": weights if weighted else None}
            loss = F.cross_entropy(leaf, targets, reduction="sum", **options)
            loss.backward()
            mean = F.cross_entropy(x.double(), targets, reduction="mean",
                                   label_smoothing=smoothing,
                                   weight=weights.double() if weighted else None)
            results.append({"label_smoothing": smoothing, "weighted": weighted,
                            "sum": numbers(loss.detach()), "mean": numbers(mean),
                            "gradient": numbers(leaf.grad)})
    element = {}
    probabilities = torch.rand(rows, classes)
    for name, loss in (("mse", F.mse_loss), ("bce", F.binary_cross_entropy_with_logits)):
        leaf = x.clone().requires_grad_()
        value = loss(leaf, probabilities, reduction="sum")
        value.backward()
        element[name] = {"sum": numbers(value.detach()), "gradient": numbers(leaf.grad)}
    # One target per token; drawn last, so that the numbers above stay.
    sequences = torch.randn(2, 5, 37) * 3
    next_tokens = torch.randint(37, (2, 5))
    next_tokens[1, 3] = -100
    leaf = sequences.clone().requires_grad_()
    loss = F.cross_entropy(leaf.flatten(0, 1), next_tokens.flatten(), reduction="sum")
    loss.backward()
    tokens = {"logits": numbers(sequences), "targets": next_tokens.tolist(),
              "sum": numbers(loss.detach()), "gradient": numbers(leaf.grad)}
    write("losses.json", {"logits": numbers(x), "targets": targets.tolist(),
                          "class_weights": numbers(weights), "probabilities": numbers(probabilities),
                          "cross_entropy": results, "cross_entropy_of_tokens": tokens, **element})


def activations():
    x = torch.cat([torch.randn(4, 9) * 3, torch.tensor([[-20, -9, -5, -1e-3, 0, 1e-3, 5, 9, 20]])])
    dy = torch.randn(5, 9)
    results = {}
    for name, f in (("relu", F.relu), ("gelu", F.gelu), ("silu", F.silu),
                    ("gelu_tanh", lambda v: F.gelu(v, approximate="tanh")),
                    ("sigmoid", torch.sigmoid), ("tanh", torch.tanh),
                    ("softmax", lambda v: F.softmax(v, -1))):
        leaf = x.clone().requires_grad_()
        y = f(leaf)
        y.backward(dy)
        results[name] = {"y": numbers(y.detach()), "dx": numbers(leaf.grad)}
    write("activations.json", {"x": numbers(x), "dy": numbers(dy), "results": results})


def make():
    for values in (optimizers, schedules, losses, activations):
        torch.manual_seed(1)
        values()
