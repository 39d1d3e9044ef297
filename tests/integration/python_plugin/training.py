"""PyTorch's strategies have the same losses as over Gloo, on ranks of torch.multiprocessing: run by python_plugin_test.py.

    training.py RENDEZVOUS RANKS fork|spawn

Prints for each strategy the losses over Gloo and over rondo.
"""

import json
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "peers"))
from leaving import leave  # noqa: E402

STEPS = 8


class Model(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(160, 321), torch.nn.GELU(), torch.nn.Linear(321, 160))
            for _ in range(3))
        self.norm = norm(160)
        self.head = torch.nn.Linear(160, 10)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.norm(x))


def ddp(model, group):
    model = DistributedDataParallel(model, process_group=group, bucket_cap_mb=1)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def zero(model, group):
    model = DistributedDataParallel(model, process_group=group)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, process_group=group, lr=1e-3)
    return model, optimizer


def fsdp2(model, group, **options):
    mesh = DeviceMesh.from_group(group, "cpu")
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def fsdp2_own_buffers(model, group):
    model, optimizer = fsdp2(model, group)
    for module in [*model.blocks, model]:
        module.set_allocate_memory_from_process_group_for_comm(True)
    return model, optimizer


def fsdp2_bfloat16(model, group):
    return fsdp2(model, group, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


def train(strategy, group):
    torch.manual_seed(1)
    # DDP broadcasts the buffers of batch norm, which does not support parameters in bfloat16.
    norm = torch.nn.LayerNorm if strategy is fsdp2_bfloat16 else torch.nn.BatchNorm1d
    model, optimizer = strategy(Model(norm), group)
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    losses = []
    for _ in range(STEPS):
        inputs = torch.randn(32, 160, generator=generator)
        targets = inputs[:, :10].argmax(dim=1)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs).float(), targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item() + float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm))
    return losses


def main(rank, rendezvous, ranks):
    import rondo_torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("rondo", init_method=rendezvous, rank=rank, world_size=ranks)
    gloo = dist.new_group(backend="gloo")
    result = {}
    for strategy in [ddp, zero, fsdp2, fsdp2_bfloat16]:
        result[strategy.__name__] = [train(strategy, gloo), train(strategy, dist.group.WORLD)]
    result["fsdp2_own_buffers"] = [result["fsdp2"][0], train(fsdp2_own_buffers, dist.group.WORLD)]
    if rank == 0:
        print(json.dumps(result))
    dist.destroy_process_group()
    leave()


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, args=(sys.argv[1], int(sys.argv[2])), nprocs=int(sys.argv[2]), start_method=sys.argv[3])
