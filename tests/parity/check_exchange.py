#!/usr/bin/env python3
"""Weights travel both ways between PyTorch and dtrain, for every model:

    ~/pytorch/bin/python tests/parity/check_exchange.py --build build/release

PyTorch writes weights; dtrain computes logits from them, and trains ten steps; PyTorch reads the
checkpoint of these and computes logits. Both pairs of logits must agree. Needs PyTorch and a build;
not part of any test.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

from files import hashed_integers, hashed_tensor
from model_values import MODELS, dtrain_tensors, load_dtrain_tensors, rule_weights, twins

TOLERANCE = 1e-5


def recipe(text, data):
    if "tokens" in data:
        shape = f"tokens: {data['tokens']}"
    else:
        shape = f"shape: {data['image']}"
    return (f"{text}\ndata: {{train: {{kind: synthetic, {shape}, classes: {data['classes']},"
            f" size: 64}}}}\nbatch: {{global: 8, micro: 8}}\ntrain: {{steps: 10}}\n"
            "checkpoint: {every_steps: 0}\n")


def inputs(data):
    """For dtrain and for the twin."""
    if "tokens" in data:
        tokens = hashed_integers([4, data["tokens"]], 7, data["classes"])
        return tokens.to(torch.int32), tokens
    x = hashed_tensor([4, *data["image"]], 7)
    return x, x.permute(0, 3, 1, 2)


def relative_error(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def check(name, build, folder):
    text, data, twin, _, _ = MODELS[name]
    model = twin()
    rule_weights(model)
    config, weights = folder / "recipe.yaml", folder / "from_pytorch.safetensors"
    config.write_text(recipe(text, data))
    save_file(dtrain_tensors(model), weights)
    x, twin_x = inputs(data)
    save_file({"x": x.contiguous()}, folder / "x.safetensors")
    if isinstance(model, twins.Mlp):
        twin_x = x.flatten(1)

    def dtrain_logits(from_weights):
        output = folder / "logits.safetensors"
        subprocess.run([build / "parity_logits", config, from_weights, folder / "x.safetensors",
                        output], check=True)
        return load_file(output)["logits"]

    def twin_logits():
        with torch.no_grad():
            return model.eval()(twin_x)

    there = relative_error(dtrain_logits(weights), twin_logits())
    run = folder / "run"
    subprocess.run([build / "dtrain", config, f"output={run}", f"init.from={weights}"],
                   check=True, capture_output=True)
    checkpoint = run / "checkpoints" / "step-00000010" / "model.safetensors"
    before = twin_logits()
    load_dtrain_tensors(model, load_file(checkpoint))
    back = relative_error(dtrain_logits(checkpoint), twin_logits())
    moved = relative_error(before, twin_logits())
    good = there <= TOLERANCE and back <= TOLERANCE and moved > 100 * TOLERANCE
    print(f"{name}: PyTorch to dtrain {there:.1e}, dtrain to PyTorch {back:.1e}, moved by"
          f" training {moved:.1e}: {'good' if good else 'BAD'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    good = True
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            good = check(name, options.build.resolve(), pathlib.Path(folder)) and good
    sys.exit(not good)


main()
