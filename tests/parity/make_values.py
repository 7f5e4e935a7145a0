#!/usr/bin/env python3
"""Writes the values of PyTorch that the tests compare with, beside this script.

    scripts/setup_pytorch ~/pytorch && ~/pytorch/bin/python tests/parity/make_values.py

Deterministic: the same versions write the same bytes, and each file names its version of PyTorch.
Not part of the build or of any test: the tests read the files.
"""

import warnings

import torch

import core_values
import gpt2_values
import model_values
import operator_values

warnings.filterwarnings("ignore", category=UserWarning)
torch.set_num_threads(1)
core_values.make()
operator_values.make()
model_values.make()
gpt2_values.make()
