"""PyTorch's side of gpu-check's speed part: training steps of rondo's GPT on a GPU, bfloat16 autocast, fused AdamW.

    gpu_step.py --way eager|compile|ddp --batch-size N --steps N --config JSON

Prints one JSON line: step_ms and losses of every step, peak_bytes of the device. As in rondo, each step reads its loss.
"""
import argparse
import json
import tempfile
import time

import torch
import torch.distributed
from gpt import Gpt
from leaving import leave
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


def initialize(model):
    """Initializes weights with GPT-2's deviation; the smaller deviation of residual projections does not affect a
    step's time."""
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, 0.0, 0.02)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(parameter)


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=["eager", "compile", "ddp"], required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--config", type=json.loads, required=True)
    return parser.parse_args()


def train(arguments, folder):
    """Trains the steps and returns the results to print."""
    config, device = arguments.config, torch.device(arguments.device)
    with device:
        model = Gpt(config)
    initialize(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.0, fused=True)
    if arguments.way == "ddp":
        backend = "nccl" if device.type == "cuda" else "gloo"
        torch.distributed.init_process_group(backend, init_method=f"file://{folder}/store", rank=0, world_size=1)
        model = DistributedDataParallel(model)
    elif arguments.way == "compile":
        model = torch.compile(model)
    tokens = torch.randint(config["vocabulary"], (8, arguments.batch_size, config["context"] + 1))
    milliseconds, losses = [], []
    for step in range(arguments.steps):
        begin = time.perf_counter()
        batch = tokens[step % len(tokens)].to(device)
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(batch[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if device.type == "cuda":
            torch.cuda.synchronize()
        milliseconds.append((time.perf_counter() - begin) * 1000)
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    return {"step_ms": milliseconds, "losses": losses, "peak_bytes": peak}


def main():
    with tempfile.TemporaryDirectory() as folder:
        answer = train(parse_arguments(), folder)
    print(json.dumps(answer))
    leave()


if __name__ == "__main__":
    main()
