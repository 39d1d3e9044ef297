"""One rank of PyTorch's FSDP2 that follows the JSON of `rondo plan --fsdp2`, started as fsdp2_ranks.py RENDEZVOUS RANK RANKS
OUT PLAN... Each PLAN is trained separately; 'plain' is fully_shard without a plan. Rank 0 writes losses and peak memory of
each."""
import json
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.fsdp import fully_shard
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
from leaving import leave  # noqa: E402

WIDTH, BLOCKS, SAMPLES = 256, 4, 8


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 10)
        self.h = torch.nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, x):
        x = self.first(x)
        for block in self.h:
            x = block(x)
        return self.last(x)


def shard_as_planned(model, plan):
    checkpointed = {unit["name"] for unit in plan["units"] if unit["checkpoint"]}
    named = dict(model.named_modules())
    modules = {unit["name"]: model if unit["name"] == "root" else named[unit["name"]] for unit in plan["units"]}
    apply_activation_checkpointing(model, check_fn=lambda module: any(module is modules[name] for name in checkpointed))
    # From the inside out: the root takes everything outside units.
    for unit in sorted(plan["units"], key=lambda unit: unit["name"] == "root"):
        fully_shard(modules[unit["name"]], reshard_after_forward=unit["reshard_after_forward"])
    for unit in plan["units"]:
        modules[unit["name"]].set_modules_to_forward_prefetch([modules[name] for name in unit["forward_prefetch"]])
        modules[unit["name"]].set_modules_to_backward_prefetch([modules[name] for name in unit["backward_prefetch"]])


def train(plan):
    torch.manual_seed(1)
    model = Model()
    if plan == "plain":
        for block in model.h:
            fully_shard(block)
        fully_shard(model)
    else:
        with open(plan) as file:
            shard_as_planned(model, json.load(file))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(2 + dist.get_rank())
    batches = [(torch.randn(SAMPLES, WIDTH), torch.randint(10, (SAMPLES,))) for _ in range(4)]
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    losses = []
    with tracker:
        for inputs, targets in batches:
            tracker.reset_mod_stats()
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            losses.append(mean.item() / dist.get_world_size())
    return {"losses": losses, "peak_bytes": tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]}


def main():
    rendezvous, rank, ranks, out, *plans = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=rendezvous, rank=int(rank), world_size=int(ranks))
    results = [train(plan) for plan in plans]
    if dist.get_rank() == 0:
        with open(out, "w") as file:
            json.dump(results, file)
    dist.destroy_process_group()
    leave()


main()
