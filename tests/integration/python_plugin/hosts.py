"""The plug-in on four ranks of two hosts, ranks 0 and 1 on the first one: run by python_plugin_hosts_test.py.

Prints "hosts: ok NUMBER" for NUMBER checks. DIRECTORY is one that all ranks reach:  hosts.py DIRECTORY [CHECK...]
Checks import what they alone need, which takes longer than other checks.
"""

import datetime
import os
import pathlib
import sys
import time

import rondo_torch
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "peers"))
from leaving import leave  # noqa: E402

directory = sys.argv[1]
torch.set_num_threads(1)
CPU = torch.device("cpu")
LIMIT = datetime.timedelta(seconds=100)
dist.init_process_group("rondo", timeout=LIMIT)
rank, size = dist.get_rank(), dist.get_world_size()
gloo = dist.new_group(backend="gloo")
same_host = [dist.new_group([0, 1], timeout=LIMIT), dist.new_group([2, 3], timeout=LIMIT)][rank // 2]


def engine_of(group):
    return type(group._get_backend(CPU)).__name__


def sum_of_ranks(group=None):
    tensor = torch.full((50_000,), float(rank))
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def engines():
    assert engine_of(dist.group.WORLD) == "HierarchicalBackend" and engine_of(same_host) == "NativeBackend"
    across = dist.new_group([3, 0], use_local_synchronization=True) if rank in (0, 3) else None
    if across:
        assert engine_of(across) == "HierarchicalBackend" and sum_of_ranks(across) == 3
    assert sum_of_ranks() == 6 and sum_of_ranks(same_host) == (1 if rank < 2 else 5)
    for group in (dist.group.WORLD, same_host):
        backend = group._get_backend(CPU)
        assert isinstance(backend, rondo_torch.native.Backend)
        assert backend.options._timeout == LIMIT and len(backend.options.global_ranks_in_group) == group.size()
        backend._set_default_timeout(datetime.timedelta(seconds=77))
        assert backend.options._timeout == datetime.timedelta(seconds=77)
        dist.distributed_c10d._set_pg_timeout(LIMIT, group)
        assert backend.options._timeout == LIMIT
        assert backend.supports_tensor_alloc(CPU) and rondo_torch.is_registered(backend.allocate_tensor(100_000, dtype=torch.float32, device=CPU))
    assert rondo_torch.is_registered(torch.empty(100_000))


def splits():
    for ranks, engine in ([0, 1], "NativeBackend"), ([1, 2, 3], "HierarchicalBackend"):
        part = dist.group.WORLD.split_group(ranks, group_name=f"part {ranks}")
        assert (part is not None) == (rank in ranks)
        if part is None:
            continue
        assert engine_of(part) == engine and part.rank() == ranks.index(rank)
        tensor = torch.ones(3)
        part.allreduce([tensor]).wait()
        assert tensor.eq(len(ranks)).all()


def barriers():
    dist.monitored_barrier()
    dist.monitored_barrier(same_host, timeout=LIMIT)
    dist.group.WORLD.monitored_barrier(LIMIT, wait_all_ranks=True)
    late = dist.new_group()
    if rank in (0, 2):
        try:
            limit = datetime.timedelta(milliseconds=300) if rank == 0 else LIMIT
            dist.monitored_barrier(late, timeout=limit, wait_all_ranks=True)
        except rondo_torch.TimeoutError as error:
            assert error.ranks == ([1, 3] if rank == 0 else []), (str(error), error.ranks)
        else:
            raise AssertionError("a monitored barrier passed without ranks 1 and 3")
    dist.barrier()
    assert sum_of_ranks(late) == 6


def objects():
    everything = [None] * size
    dist.all_gather_object(everything, {"rank": rank, "text": "x" * rank})
    assert [one["rank"] for one in everything] == [0, 1, 2, 3]
    received = [None] if rank else [{"from": "rank 0"}]
    dist.broadcast_object_list(received)
    assert received == [{"from": "rank 0"}]
    mine = [None]
    dist.scatter_object_list(mine, list("abcd") if rank == 2 else None, src=2)
    assert mine == ["abcd"[rank]]


def errors():
    for what, call, blamed in (
            ("shape", lambda group: dist.all_reduce(torch.ones(1000 + rank // 2), group=group), rondo_torch.MismatchError),
            ("operation", lambda group: dist.barrier(group=group) if rank == 3 else dist.all_reduce(torch.ones(5), group=group),
             rondo_torch.MismatchError)):
        group = dist.new_group()
        dist.barrier(group=group)
        try:
            call(group)
        except rondo_torch.CommunicationError as error:
            # The ranks that meet the other kind of call name it; the others lose their connections.
            assert isinstance(error, (blamed, rondo_torch.PeerLostError)) and error.ranks, (what, error, error.ranks)
            assert isinstance(error, dist.DistBackendError)
        else:
            raise AssertionError(f"{what}: nobody was told")
    group = dist.new_group()
    if rank == 0:
        try:
            dist.all_reduce(torch.ones(1), group=group, async_op=True).wait(datetime.timedelta(milliseconds=300))
        except rondo_torch.TimeoutError as error:
            assert "all_reduce" in str(error) and "300 ms" in str(error), error
        else:
            raise AssertionError("rank 0 was alone and got a sum")
    dist.barrier()
    for wrong in (lambda: dist.all_reduce(torch.eye(3).to_sparse(), op=dist.ReduceOp.MAX),
                  lambda: dist.all_reduce(torch.ones(2, 3).expand(4, 2, 3)),
                  lambda: dist.group.WORLD.send([torch.ones(1)], 7, 0)):
        try:
            wrong()
        except rondo_torch.UsageError as error:
            assert isinstance(error, ValueError) and isinstance(error, RuntimeError), error
        else:
            raise AssertionError("a wrong call was accepted")
    assert sum_of_ranks() == 6


def premultiplied():
    for factor in (0.25, torch.tensor(0.25)):
        op = dist._make_nccl_premul_sum(factor)
        for elements in (3, 40_000):
            tensor = torch.full((elements,), rank + 1.0)
            dist.all_reduce(tensor, op=op)
            assert tensor.eq(2.5).all(), tensor
            inputs, output = torch.full((4 * elements,), rank + 1.0), torch.empty(elements)
            dist.reduce_scatter_tensor(output, inputs, op=op)
            assert output.eq(2.5).all() and inputs.eq(rank + 1).all()


def forked_child():
    dist.barrier()
    child = os.fork()
    if child == 0:
        outcome = 1
        try:
            dist.all_reduce(torch.full((1,), 100.0))
        except rondo_torch.UsageError as error:
            outcome = 0 if "forked" in str(error) else 2
        os._exit(outcome)
    assert os.waitpid(child, 0)[1] == 0
    assert sum_of_ranks() == 6


def dropped():
    """An operation whose Work and group are dropped ends, and its callback runs."""
    group = dist.new_group()
    tensors = [torch.full((300_000,), float(rank + 1)) for _ in range(4)]
    done = []
    for tensor in tensors:
        dist.all_reduce(tensor, group=group, async_op=True).get_future().then(lambda _: done.append(1))
    dist.destroy_process_group(group)
    del group
    end = time.monotonic() + 60
    while len(done) < 4 and time.monotonic() < end:
        time.sleep(0.01)
    assert len(done) == 4 and all(tensor.eq(10).all() for tensor in tensors)


class Block(torch.nn.Module):
    def __init__(self, hidden=301):
        super().__init__()
        self.up, self.down = torch.nn.Linear(96, hidden), torch.nn.Linear(hidden, 96)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def model_of(blocks=3):
    torch.manual_seed(1)
    return torch.nn.Sequential(*(Block() for _ in range(blocks)), torch.nn.Linear(96, 8))


def ddp(group):
    model = DistributedDataParallel(model_of(), process_group=group, bucket_cap_mb=0.2)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def zero(group):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    model = DistributedDataParallel(model_of(), process_group=group)
    return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, process_group=group, lr=1e-3)


def fsdp2(group, blocks=3):
    from torch.distributed.fsdp import fully_shard
    mesh = dist.device_mesh.DeviceMesh.from_group(group, "cpu")
    model = model_of(blocks)
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def losses(strategy, group):
    model, optimizer = strategy(group)
    inputs = torch.randn(16, 96, generator=torch.Generator().manual_seed(100 + rank))
    result = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), inputs[:, :8].argmax(dim=1))
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return result


def strategies():
    for strategy in ddp, zero, fsdp2:
        over_gloo, over_rondo = losses(strategy, gloo), losses(strategy, dist.group.WORLD)
        worst = max(abs(a - b) for a, b in zip(over_gloo, over_rondo))
        assert worst < 1e-5 and over_rondo[-1] < over_rondo[0], (strategy, over_gloo, over_rondo)


def divided_gradients():
    model, _ = fsdp2(dist.group.WORLD, blocks=1)
    model[0].set_gradient_divide_factor(2.0)
    model(torch.full((1, 96), rank + 1.0)).sum().backward()
    assert model[0].up.weight.grad.full_tensor().isfinite().all()


def tensors_in_a_mesh():
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    assert engine_of(mesh.get_group("tensor")) == "NativeBackend" and engine_of(mesh.get_group("data")) == "HierarchicalBackend"
    whole = torch.arange(64.0).reshape(8, 8)
    laid_out = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    assert torch.equal(laid_out.redistribute(placements=[Replicate(), Shard(0)]).full_tensor(), whole)
    block, inputs = Block(304), torch.randn(4, 96, generator=torch.Generator().manual_seed(5))
    for parameter in block.parameters():
        dist.broadcast(parameter.detach(), src=0)
    expected = block(inputs)
    parallelize_module(block, init_device_mesh("cpu", (size,)), {"up": ColwiseParallel(), "down": RowwiseParallel()})
    assert torch.allclose(block(inputs), expected, atol=1e-5)


def pipeline():
    from torch.distributed import pipelining
    torch.manual_seed(3)
    blocks = [Block() for _ in range(size)]
    inputs = torch.randn(8, 96)
    expected = torch.nn.Sequential(*blocks)(inputs)
    stage = pipelining.PipelineStage(blocks[rank], rank, size, CPU)
    schedule = pipelining.ScheduleGPipe(stage, n_microbatches=4, loss_fn=lambda output, target: (output - target).square().mean())
    collected = []
    if rank == 0:
        schedule.step(inputs)
    elif rank == size - 1:
        outputs = schedule.step(target=torch.zeros_like(inputs), losses=collected)
        assert torch.allclose(outputs, expected, atol=1e-5) and len(collected) == 4
    else:
        schedule.step()
    assert all(parameter.grad is not None for parameter in blocks[rank].parameters())


def checkpoints():
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    model, _ = fsdp2(dist.group.WORLD)
    saved = get_model_state_dict(model)
    checkpoint.save(saved, checkpoint_id=os.path.join(directory, "checkpoint"))
    expected = {name: value.full_tensor() for name, value in saved.items()}
    torch.manual_seed(77)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter.to_local())
    loaded = get_model_state_dict(model)
    checkpoint.load(loaded, checkpoint_id=os.path.join(directory, "checkpoint"))
    set_model_state_dict(model, loaded)
    assert all(torch.equal(value.full_tensor(), expected[name]) for name, value in get_model_state_dict(model).items())


CHECKS = [engines, splits, barriers, objects, errors, premultiplied, forked_child, dropped, strategies, divided_gradients,
          tensors_in_a_mesh, pipeline, checkpoints]
chosen = [check for check in CHECKS if check.__name__ in sys.argv[2:]] or CHECKS
for check in chosen:
    check()
    dist.barrier()
print(f"hosts: ok {len(chosen)}", flush=True)
dist.destroy_process_group()
leave()
