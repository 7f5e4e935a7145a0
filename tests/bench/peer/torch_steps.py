#!/usr/bin/env python3
"""A few steps under torchrun, for the time from command to exit.

    torchrun --nproc-per-node 2 --standalone torch_steps.py '{"model": ...}' 5
"""

import json
import sys

import torch
import torch.distributed as dist

import torch_worker
import twins


def main():
    task, steps = json.loads(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    x, targets = torch_worker.make_batch(task, task["batch"] // dist.get_world_size(), False)
    model = torch.nn.parallel.DistributedDataParallel(torch_worker.make_model(task["model"]))
    optimizer = torch_worker.make_optimizer(task["optimizer"], model.parameters())
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        twins.loss_of(model(x), targets).backward()
        optimizer.step()
    dist.barrier()  # a rank that leaves early makes Gloo fail in the other
    dist.destroy_process_group()


main()
