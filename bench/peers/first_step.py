"""Counterpart of rondo's worker (train_first_step in apps/bench/dev/startup.cpp) in Python under torchrun: one step of
data-parallel training, then the time.

    torchrun --standalone --nproc-per-node 2 first_step.py REPORT
"""
import os
import sys
import time

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel
from leaving import leave


def main(report):
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(ddp(torch.randn(32, 784)), torch.randint(10, (32,))).backward()
    optimizer.step()
    with open(report, "a") as out:
        os.write(out.fileno(), f"{time.monotonic_ns()}\n".encode())
    torch.distributed.destroy_process_group()
    leave()


if __name__ == "__main__":
    main(sys.argv[1])
