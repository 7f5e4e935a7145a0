#!/usr/bin/env python3
"""Weights travel both ways between PyTorch and dtrain, for every model:

    ~/pytorch/bin/python tests/parity/check_exchange.py --build build/release

PyTorch writes weights; dtrain computes logits from them, and trains ten steps; PyTorch reads the
checkpoint of these and computes logits. Both pairs of logits must agree. The same with Hugging
Face's GPT-2 and the files of its save_pretrained. Needs PyTorch, transformers and a build; not part
of any test.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

from files import hashed_integers, hashed_tensor
from model_values import MODELS, dtrain_tensors, load_dtrain_tensors, rule_weights

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


class Twin:
    """A model of twins.py, and its files."""

    def __init__(self, name):
        self.text, self.data, twin, _, _ = MODELS[name]
        self.model = twin()
        rule_weights(self.model)

    def save(self, folder):
        save_file(dtrain_tensors(self.model), folder / "model.safetensors")

    def load(self, checkpoint, folder):
        load_dtrain_tensors(self.model, load_file(checkpoint))

    def logits(self, x):
        return self.model.eval()(x)


class HuggingFaceGpt2:
    """The recipe and data of the twin's."""

    def __init__(self):
        self.text, self.data, _, _, _ = MODELS["gpt"]
        torch.manual_seed(1)
        self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            n_layer=2, n_embd=24, n_head=3, n_positions=16, vocab_size=50, bos_token_id=0,
            eos_token_id=0))

    def save(self, folder):
        self.model.save_pretrained(folder)

    def load(self, checkpoint, folder):
        shutil.copy(checkpoint, folder / "model.safetensors")
        self.model, report = transformers.GPT2LMHeadModel.from_pretrained(
            folder, output_loading_info=True)
        if any(report.values()):
            raise ValueError(f"not all weights were taken: {report}")

    def logits(self, x):
        return self.model.eval()(x).logits


def check(name, peer, build, folder):
    config, files = folder / "recipe.yaml", folder / "from_pytorch"
    config.write_text(recipe(peer.text, peer.data))
    files.mkdir()
    peer.save(files)
    weights = files / "model.safetensors"
    x, peer_x = inputs(peer.data)
    save_file({"x": x.contiguous()}, folder / "x.safetensors")
    if name == "mlp":
        peer_x = x  # its features are in H, W, C order

    def dtrain_logits(from_weights):
        output = folder / "logits.safetensors"
        subprocess.run([build / "parity_logits", config, from_weights, folder / "x.safetensors",
                        output], check=True)
        return load_file(output)["logits"]

    def peer_logits():
        with torch.no_grad():
            return peer.logits(peer_x)

    there = relative_error(dtrain_logits(weights), peer_logits())
    run = folder / "run"
    subprocess.run([build / "dtrain", config, f"output={run}", f"init.from={weights}"],
                   check=True, capture_output=True)
    checkpoint = run / "checkpoints" / "step-00000010" / "model.safetensors"
    before = peer_logits()
    peer.load(checkpoint, files)
    back = relative_error(dtrain_logits(checkpoint), peer_logits())
    moved = relative_error(before, peer_logits())
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
    transformers.logging.disable_progress_bar()
    good = True
    peers = {**{name: Twin(name) for name in MODELS}, "Hugging Face's GPT-2": HuggingFaceGpt2()}
    for name, peer in peers.items():
        with tempfile.TemporaryDirectory() as folder:
            good = check(name, peer, options.build.resolve(), pathlib.Path(folder)) and good
    sys.exit(not good)


main()
