"""How values travel between PyTorch and the tests in C++ (see values.h, the other side).

Inputs need no files: both sides make the same numbers from a seed.
"""

import base64
import json
import pathlib

import numpy
import torch

HERE = pathlib.Path(__file__).parent


def hashed(count, seed):
    """`count` uniform numbers in [-1, 1), multiples of 2^-23, as float32: exact on both sides."""
    with numpy.errstate(over="ignore"):
        x = numpy.arange(count, dtype=numpy.uint32) * numpy.uint32(0x9E3779B1)
        x += numpy.uint32(seed) * numpy.uint32(0x85EBCA6B)
        x ^= x >> numpy.uint32(16)
        x *= numpy.uint32(0x21F0AAAD)
        x ^= x >> numpy.uint32(15)
        x *= numpy.uint32(0x735A2D97)
        x ^= x >> numpy.uint32(15)
    return ((x >> numpy.uint32(8)).astype(numpy.int64) - 2**23).astype(numpy.float32) / 2**23


def hashed_tensor(shape, seed):
    count = int(numpy.prod(shape, dtype=numpy.int64))
    return torch.from_numpy(hashed(count, seed)).reshape(shape)


def hashed_integers(shape, seed, below):
    """Integers in [0, below), below <= 2^20."""
    uniform = (hashed(int(numpy.prod(shape, dtype=numpy.int64)), seed).astype(numpy.float64) + 1) / 2
    return torch.from_numpy(numpy.floor(uniform * below).astype(numpy.int64)).reshape(shape)


def numbers(tensor):
    """Values as nested lists; nine digits are exact for float32, seventeen for float64."""
    digits = 17 if tensor.dtype == torch.float64 else 9
    if tensor.dim() == 0:
        return float(f"{tensor.item():.{digits}g}")
    return [numbers(part) for part in tensor]


def packed(tensor, most=1024):
    """Shape and float32 values in base64, of large tensors every n-th only; `largest` is of all."""
    flat = tensor.detach().contiguous().reshape(-1)
    every = max(1, -(-flat.numel() // most))
    if every > 1:
        every |= 1  # not in step with powers of two
    values = flat[::every].to(torch.float32).numpy().astype("<f4")
    return {"shape": list(tensor.shape), "every": every,
            "largest": float(flat.abs().max()) if flat.numel() else 0.0,
            "values": base64.b64encode(values.tobytes()).decode()}


def write(name, content):
    content = {"torch": torch.__version__, **content}
    text = json.dumps(content, separators=(",", ":")).replace("},{", "},\n{")
    (HERE / name).write_text(text + "\n")
