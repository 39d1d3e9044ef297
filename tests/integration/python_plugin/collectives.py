"""Every collective over rondo has Gloo's result: run by python_plugin_test.py as  collectives.py RENDEZVOUS RANK RANKS"""

import itertools
import pathlib
import sys
from datetime import timedelta

import rondo_torch
import torch
import torch.distributed as dist

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "peers"))
from leaving import leave  # noqa: E402

rendezvous, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("rondo", init_method=rendezvous, rank=rank, world_size=size)
gloo = dist.new_group(backend="gloo")
torch.manual_seed(rank)

SIZES = [1, 17, 5000, 300_000]  # inside a slot, staged, several chunks; the last is registered
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8]
checked = 0


def random(count, dtype):
    # Small integers: every order of additions has the same result, in every type.
    return torch.randint(0, 5, (count,)).to(dtype)


def strided(tensor):
    """Returns the same values with a gap after each."""
    return torch.stack([tensor, tensor], dim=1)[:, 0]


def compare(what, operation, make):
    """Compares results with Gloo. `operation(group, *tensors)` changes the tensors of make() in place, or returns
    tensors."""
    global checked
    results = []
    state = torch.get_rng_state()
    for group in [None, gloo]:
        torch.set_rng_state(state)
        tensors = make()
        # Gloo ignores strides.
        if group is gloo:
            tensors = [tensor.contiguous() for tensor in tensors]
        returned = operation(group, *tensors)
        results.append(tensors if returned is None else returned)
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs), f"{what} on rank {rank}: {ours} is not {theirs}"
    checked += 1


def all_gather(group, tensor):
    outputs = [torch.empty_like(tensor) for _ in range(size)]
    dist.all_gather(outputs, tensor, group=group)
    return outputs


def gather(group, tensor):
    outputs = [torch.empty_like(tensor) for _ in range(size)] if rank == 1 else None
    dist.gather(tensor, outputs, dst=1, group=group)
    return outputs or []


def scatter(group, *tensors):
    output = torch.empty_like(tensors[0])
    dist.scatter(output, list(tensors) if rank == 2 else None, src=2, group=group)
    return [output]


def all_gather_into_tensor(group, tensor):
    output = tensor.new_empty(tensor.numel() * size)
    dist.all_gather_single(output, tensor, group=group)
    return [output]


def reduce_scatter_tensor(group, tensor):
    output = tensor.new_empty(tensor.numel() // size)
    dist.reduce_scatter_single(output, tensor, group=group)
    return [output]


def reduce_scatter(group, *tensors):
    output = torch.empty_like(tensors[0])
    dist.reduce_scatter(output, list(tensors), group=group)
    return [output]


def reduce(group, tensor):
    dist.reduce(tensor, dst=1, group=group)
    # The result on other ranks is undefined.
    return [tensor] if rank == 1 else []


def all_to_all_single(group, tensor):
    sent = [tensor.numel() // 6 * (1 + (rank + r) % 3) for r in range(size)]
    received = [tensor.numel() // 6 * (1 + (rank + r) % 3) for r in range(size)]
    output = tensor.new_empty(sum(received))
    dist.all_to_all_single(output, tensor[: sum(sent)], received, sent, group=group)
    return [output]


def all_to_all(group, *tensors):
    outputs = [torch.empty_like(tensor) for tensor in tensors]
    dist.all_to_all(outputs, list(tensors), group=group)
    return outputs


def ring(group, tensor):
    """Messages: blocking, started together, and from any source."""
    after, before = (rank + 1) % size, (rank - 1) % size
    received = [torch.empty_like(tensor) for _ in range(3)]
    work = dist.isend(tensor, after, group=group)
    dist.recv(received[0], before, group=group)
    work.wait()
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, before, group=group),
                                        dist.P2POp(dist.irecv, received[1], after, group=group)]):
        work.wait()
    work = dist.isend(tensor, after, group=group, tag=7)
    assert dist.recv(received[2], group=group, tag=7) == before
    work.wait()
    dist.barrier(group=group)
    return received


def coalesced(group, *tensors):
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    manager.wait()
    outputs = [tensor.new_empty(tensor.numel() * size) for tensor in tensors]
    if group is None:
        with dist._coalescing_manager(group):
            for output, tensor in zip(outputs, tensors):
                dist.all_gather_single(output, tensor, group=group)
        back = [torch.empty_like(tensor) for tensor in tensors]
        with dist._coalescing_manager(group):
            for output, tensor in zip(outputs, back):
                dist.reduce_scatter_single(tensor, output, group=group)
    else:
        for output, tensor in zip(outputs, tensors):
            dist.all_gather_single(output, tensor, group=group)
        back = [tensor * size for tensor in tensors]
    return [*tensors, *outputs, *back]


for dtype, count in itertools.product(TYPES, SIZES):
    for view in [torch.Tensor.contiguous, strided]:
        where = f"({count} x {dtype}, {view.__name__})"

        def one():
            return [view(random(count, dtype))]

        def one_for_each():
            return [view(random(count, dtype)) for _ in range(size)]

        compare("all_reduce" + where, lambda group, t: dist.all_reduce(t, group=group), one)
        compare("broadcast" + where, lambda group, t: dist.broadcast(t, src=1, group=group), one)
        compare("reduce" + where, reduce, one)
        compare("all_gather" + where, all_gather, one)
        compare("gather" + where, gather, one)
        compare("scatter" + where, scatter, one_for_each)
        if view is strided:
            continue
        compare("reduce_scatter" + where, reduce_scatter, one_for_each)
        compare("all_gather_into_tensor" + where, all_gather_into_tensor, one)
        compare("reduce_scatter_tensor" + where, reduce_scatter_tensor, lambda: [random(count * size, dtype)])
        compare("all_to_all_single" + where, all_to_all_single, lambda: [random(count * 9, dtype)])
        compare("all_to_all" + where, all_to_all, one_for_each)
        compare("messages" + where, ring, one)
for op in [dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT, dist.ReduceOp.BAND, dist.ReduceOp.BOR,
           dist.ReduceOp.BXOR]:
    compare(f"all_reduce with {op}", lambda group, t: dist.all_reduce(t, op=op, group=group),
            lambda: [random(1000, torch.int32)])
compare("all_reduce with AVG", lambda group, t: dist.all_reduce(t, op=dist.ReduceOp.AVG, group=group),
        lambda: [random(1000, torch.float32) * size])
compare("coalesced", coalesced, lambda: [random(10, torch.float32), strided(random(3000, torch.float32)),
                                         random(100_000, torch.float32)])

# Asynchronous work: wait with a timeout, completion, result, futures.
tensor = torch.ones(100_000)
work = dist.all_reduce(tensor, async_op=True)
assert work.wait(timedelta(seconds=100)) and work.is_completed() and work.is_success()
assert torch.equal(tensor, torch.full_like(tensor, size)) and torch.equal(work.result()[0], tensor)
future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] / size)
assert torch.equal(future.wait(), torch.full_like(tensor, size))

with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
    dist.broadcast(first := strided(torch.full((100,), float(rank))), src=1)
    dist.broadcast(second := torch.full((100,), float(rank)), src=2)
manager.wait()
assert first.eq(1).all() and second.eq(2).all()

objects = [None] * size
dist.all_gather_object(objects, {"rank": rank, "text": "x" * 1000 * rank})
assert [o["rank"] for o in objects] == list(range(size)) and len(objects[2]["text"]) == 2000
values = [rank, "from", rank] if rank == 1 else [None] * 3
dist.broadcast_object_list(values, src=1)
assert values == [1, "from", 1]

backend = dist.group.WORLD._get_backend(torch.device("cpu"))
assert backend.name() == "rondo" and dist.get_backend() == "rondo"
assert rondo_torch.is_registered(backend.allocate_tensor(10_000, dtype=torch.float32, device=torch.device("cpu")))
assert rondo_torch.is_registered(torch.empty(100_000)) and not rondo_torch.is_registered(torch.empty(10))
dist.barrier()
dist.destroy_process_group()
sys.stdout.write(f"rank {rank}: {checked} comparisons\n")
leave()
