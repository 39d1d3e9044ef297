"""Calls of libraries over torch.distributed to a backend: run by python_plugin_test.py as  clients.py RENDEZVOUS RANK
RANKS

Averages of whole numbers, lists of unequal sizes, hooks whose callbacks start collectives, the default backend, a forked child.
"""

import datetime
import os
import sys

import rondo_torch
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

rendezvous, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
default = dist.get_default_backend_for_device("cpu")
rondo_torch.make_default()
assert dist.get_default_backend_for_device("cpu") == "rondo" != default
dist.init_process_group(init_method=rendezvous, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=100))
mesh = init_device_mesh("cpu", (size,))
for group in (dist.group.WORLD, mesh.get_group()):
    assert group._get_backend(torch.device("cpu")).name() == "rondo"
rondo_torch.make_default(False)
assert dist.get_default_backend_for_device("cpu") == default
rondo_torch.make_default()


def averages():
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        for elements in (3, 20_000):
            tensor = torch.full((elements,), 5 + 3 * rank, dtype=dtype)
            dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
            expected = sum(5 + 3 * r for r in range(size)) // size
            assert tensor.eq(expected).all(), (dtype, tensor[0])
    negative = torch.tensor([-1 - 2 * rank])
    dist.all_reduce(negative, op=dist.ReduceOp.AVG)
    assert negative.item() == -(sum(1 + 2 * r for r in range(size)) // size), negative  # towards zero
    truths = torch.tensor([True, rank != 1, False])
    dist.all_reduce(truths, op=dist.ReduceOp.AVG)
    assert truths.tolist() == [True, False, False]


def unequal_lists():
    lengths = [3, 0, 40_000][:size]
    inputs = [torch.full((n,), float(rank + 1)) for n in lengths]
    output = torch.empty(lengths[rank])
    for op, expected in ((dist.ReduceOp.SUM, size * (size + 1) / 2), (dist.ReduceOp.MAX, size)):
        dist.reduce_scatter(output, inputs, op=op)
        assert output.eq(expected).all(), output
    work = dist.reduce_scatter(output.zero_(), inputs, async_op=True)
    assert work.wait() and output.eq(size * (size + 1) / 2).all()
    outputs = [torch.empty(n) for n in lengths]
    dist.all_gather(outputs, inputs[rank])
    assert all(outputs[r].eq(r + 1).all() for r in range(size)), outputs
    try:
        dist.reduce_scatter(torch.empty(lengths[rank] + 1), inputs)
    except rondo_torch.UsageError as error:
        assert "reduce_scatter" in str(error), error
    else:
        raise AssertionError("an output of another size was accepted")


def nested_futures():
    """A callback waits for a collective that it starts, and for one that was already in flight."""
    for elements in (10, 100_000):
        one = dist.all_reduce(torch.ones(elements), async_op=True).get_future()
        outer = one.then(lambda _: dist.all_reduce(torch.ones(elements), async_op=True).get_future().wait()[0])
        assert outer.wait().eq(size).all()
        first = dist.all_reduce(torch.ones(elements), async_op=True).get_future()
        second = dist.all_reduce(torch.ones(elements), async_op=True).get_future()
        assert first.then(lambda _: second.wait()[0]).wait().eq(size).all()


def power_sgd():
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=3, min_compression_rate=0.5)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(12):
        inputs = torch.randn(16, 64, generator=generator)
        loss = torch.nn.functional.cross_entropy(model(inputs), inputs[:, :8].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    others = [torch.empty_like(weights) for _ in range(size)]
    dist.all_gather(others, weights)
    assert all(torch.equal(weights, other) for other in others)


def forked_child():
    """The child's call is an error there, and does not affect the parent's group."""
    dist.barrier()
    child = os.fork()
    if child == 0:
        outcome = 1
        try:
            dist.all_reduce(torch.full((1,), 100.0))
        except rondo_torch.UsageError as error:
            outcome = 0 if "forked" in str(error) else 2
        os._exit(outcome)
    tensor = torch.full((1,), float(rank + 1))
    dist.all_reduce(tensor)
    assert os.waitpid(child, 0)[1] == 0
    assert tensor.item() == size * (size + 1) / 2, tensor


for check in (averages, unequal_lists, nested_futures, power_sgd, forked_child):
    check()
    print(f"{check.__name__}: ok", flush=True)
dist.destroy_process_group()
