#!/usr/bin/env python3
"""One PyTorch process of the peer benchmark: trains a twin when told to.

    torch_worker.py '{"model": {...}, "variant": "compile", "threads": 2, ...}'

Reads commands from standard input, a line each, and answers each with a line of JSON:

    step N    trains N steps: {"step_ms": [...]}
    stop      {"peak_memory_bytes": VmHWM} and the end

The first answer, before any command, comes after the first step:
{"ready": CLOCK_MONOTONIC in seconds, "flops_per_step": ...}. Ranks of DDP meet through `store`.
"""

import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import twins


def make_model(options):
    options = dict(options)
    kind = options.pop("kind")
    return {"mlp": twins.Mlp, "convnet": twins.Convnet, "resnet": twins.ResNet,
            "gpt": twins.Gpt}[kind](**options)


def make_optimizer(options, parameters):
    options = dict(options)
    kind = options.pop("kind")
    make = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[kind]
    # One kernel for all parameters: the fastest that PyTorch has.
    return make(parameters, fused=True, **options)


def make_batch(task, samples, channels_last):
    generator = torch.Generator().manual_seed(1)
    if "image" in task:
        height, width, channels = task["image"]
        x = torch.randn(samples, channels, height, width, generator=generator)
        if channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        return x, torch.randint(task["classes"], (samples,), generator=generator)
    if "features" in task:
        x = torch.randn(samples, task["features"], generator=generator)
        return x, torch.randint(task["classes"], (samples,), generator=generator)
    tokens = torch.randint(task["vocabulary"], (samples, task["context"] + 1), generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def count_flops(model, x, targets):
    """Of products, convolutions and attention, forward and backward; causal attention in full."""
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH):
        twins.loss_of(model(x), targets).backward()
    model.zero_grad(set_to_none=True)
    return counter.get_total_flops()


def peak_memory_bytes():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def set_priority(priority):
    """For all threads of this process; "" leaves them alone."""
    for thread in map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(ProcessLookupError):
            if priority == "realtime":
                os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(5))
            elif priority == "nice":
                os.setpriority(os.PRIO_PROCESS, thread, -20)
            elif priority == "normal":
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
                os.setpriority(os.PRIO_PROCESS, thread, 0)


def main():
    setup = json.loads(sys.argv[1])
    task, rank, ranks = setup["task"], setup["rank"], setup["ranks"]
    torch.set_num_threads(setup["threads"])
    torch.manual_seed(1)
    if setup.get("flops_only"):
        x, targets = make_batch(task, task["batch"], False)
        print(json.dumps({"flops_per_step": count_flops(make_model(task["model"]), x, targets)}))
        return
    if ranks > 1:
        dist.init_process_group("gloo", init_method="file://" + setup["store"], rank=rank,
                                world_size=ranks)
    variant = setup["variant"].split("+")
    channels_last = "channels_last" in variant
    model = make_model(task["model"])
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    x, targets = make_batch(task, task["batch"] // ranks, channels_last)
    optimizer = make_optimizer(task["optimizer"], model.parameters())
    if ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(
            model, gradient_as_bucket_view=True, broadcast_buffers=False)
    if "compile" in variant:
        model = torch.compile(model)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = twins.loss_of(model(x), targets)
        loss.backward()
        optimizer.step()
        return loss.item()  # what any training loop logs

    def answer(**content):
        print(json.dumps(content), flush=True)

    step()
    answer(ready=time.monotonic())
    priority = setup.get("priority", "")
    for line in sys.stdin:
        command = line.split()
        if command[0] == "stop":
            break
        if priority:
            set_priority(priority)
        times = []
        before = time.perf_counter()
        for _ in range(int(command[1])):
            step()
            now = time.perf_counter()
            times.append((now - before) * 1e3)
            before = now
        if priority:
            set_priority("normal")
        answer(step_ms=times)
    answer(peak_memory_bytes=peak_memory_bytes())
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
