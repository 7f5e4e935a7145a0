"""What the peer benchmark trains: each task once for PyTorch and once as a recipe of dtrain."""

SGD = {"kind": "sgd", "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4}
ADAMW = {"kind": "adamw", "lr": 3e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}

# task: batch is global; the data are synthetic. recipe: keys of dtrain beside data, optimizer and
# batch.global. unit: what is counted per second. turn: steps of one turn, so that it lasts a second
# or more. variants: of the peer, beside eager.
CASES = {
    "resnet18": {
        "task": {"model": {"kind": "resnet", "depth": 18, "stem": "cifar", "classes": 10},
                 "image": (32, 32, 3), "classes": 10, "batch": 64, "optimizer": SGD},
        "recipe": {"model": {"name": "resnet", "depth": 18, "stem": "cifar", "classes": 10}},
        "unit": "samples", "turn": 4,
    },
    "resnet50": {
        "task": {"model": {"kind": "resnet", "depth": 50, "stem": "imagenet", "classes": 1000},
                 "image": (224, 224, 3), "classes": 1000, "batch": 16, "optimizer": SGD},
        "recipe": {"model": {"name": "resnet", "depth": 50, "stem": "imagenet", "classes": 1000}},
        "unit": "samples", "turn": 3,
    },
    "gpt": {
        "task": {"model": {"kind": "gpt", "layers": 6, "width": 384, "heads": 6, "context": 256,
                           "vocabulary": 256},
                 "vocabulary": 256, "context": 256, "batch": 16, "optimizer": ADAMW},
        "recipe": {"model": {"name": "gpt", "layers": 6, "width": 384, "heads": 6, "context": 256,
                             "vocabulary": 256}},
        "unit": "tokens", "turn": 3,
    },
    "gpt2": {
        "task": {"model": {"kind": "gpt", "layers": 12, "width": 768, "heads": 12, "context": 1024,
                           "vocabulary": 50257},
                 "vocabulary": 50257, "context": 1024, "batch": 1, "optimizer": ADAMW},
        "recipe": {"model": {"name": "gpt", "layers": 12, "width": 768, "heads": 12,
                             "context": 1024, "vocabulary": 50257}},
        "unit": "tokens", "turn": 3,
    },
    "convnet": {
        "task": {"model": {"kind": "convnet", "image": (32, 32, 3), "channels": (32, 64, 128),
                           "hidden": 128, "classes": 10},
                 "image": (32, 32, 3), "classes": 10, "batch": 32, "optimizer": SGD},
        "recipe": {"model": {"name": "convnet", "channels": [32, 64, 128], "hidden": 128,
                             "classes": 10}},
        "unit": "samples", "turn": 60,
    },
    "mlp": {
        "task": {"model": {"kind": "mlp", "inputs": 784, "hidden": (256, 128), "outputs": 10},
                 "features": 784, "classes": 10, "batch": 32, "optimizer": SGD},
        "recipe": {"model": {"name": "mlp", "inputs": 784, "hidden": [256, 128], "outputs": 10}},
        # Micro-batches of 50 KB: the loader is woken for many at once.
        "data": {"prefetch": 16},
        "unit": "samples", "turn": 1000,
    },
}

# A placement of dtrain and the peer's closest: ranks x threads.
# `virtual_ranks` x `lane_threads` are the recipe's.
ROWS = [
    {"case": "resnet18", "ranks": 1, "threads": 2, "virtual_ranks": 2, "lane_threads": 1},
    {"case": "resnet18", "ranks": 1, "threads": 2, "virtual_ranks": 1, "lane_threads": 2},
    {"case": "resnet50", "ranks": 1, "threads": 2, "virtual_ranks": 2, "lane_threads": 1},
    {"case": "resnet50", "ranks": 1, "threads": 2, "virtual_ranks": 1, "lane_threads": 2},
    {"case": "gpt", "ranks": 1, "threads": 2, "virtual_ranks": 2, "lane_threads": 1},
    {"case": "gpt2", "ranks": 1, "threads": 2, "virtual_ranks": 1, "lane_threads": 2},
    {"case": "convnet", "ranks": 1, "threads": 2, "virtual_ranks": 2, "lane_threads": 1},
    {"case": "mlp", "ranks": 1, "threads": 2, "virtual_ranks": 2, "lane_threads": 1},
    {"case": "resnet18", "ranks": 2, "threads": 1, "virtual_ranks": 2, "lane_threads": 1},
    {"case": "gpt", "ranks": 2, "threads": 1, "virtual_ranks": 2, "lane_threads": 1},
    {"case": "convnet", "ranks": 2, "threads": 1, "virtual_ranks": 2, "lane_threads": 1},
    {"case": "mlp", "ranks": 2, "threads": 1, "virtual_ranks": 2, "lane_threads": 1},
    {"case": "resnet18", "ranks": 1, "threads": 1, "virtual_ranks": 2, "lane_threads": 1},
    {"case": "gpt", "ranks": 1, "threads": 1, "virtual_ranks": 2, "lane_threads": 1},
    {"case": "convnet", "ranks": 1, "threads": 1, "virtual_ranks": 2, "lane_threads": 1},
    {"case": "mlp", "ranks": 1, "threads": 1, "virtual_ranks": 2, "lane_threads": 1},
]


def variants(row):
    """Of PyTorch. Channels-last only means something for images."""
    images = "image" in CASES[row["case"]]["task"]
    plain = ["eager", "channels_last"] if images else ["eager"]
    return plain + [name.replace("eager", "") + ("+" if name != "eager" else "") + "compile"
                    for name in plain]
