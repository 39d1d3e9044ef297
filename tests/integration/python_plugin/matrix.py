"""Every operation in every element type: its Work kept, dropped with its tensors, used as a future, in two groups that
ranks start in opposite order, and without one of the ranks. Gloo's results in the same run are the reference. Started
by python_plugin_matrix_test.py as

    matrix.py RENDEZVOUS RANK RANKS

With RONDO_MATRIX_SHARE=N it takes every Nth of the cases, such that each operation meets types and sizes of each kind.
Each rank prints one JSON object: the number of compared cases, and each (operation, type) that Gloo rejects and rondo
does not.
"""

import itertools
import json
import os
import pathlib
import sys
from datetime import timedelta

import rondo_torch
import torch
import torch.distributed as dist

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "peers"))
from leaving import leave  # noqa: E402

rendezvous, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("rondo", init_method=rendezvous, rank=rank, world_size=size, timeout=timedelta(seconds=60))
gloo = dist.new_group(backend="gloo")
first, second = dist.new_group(), dist.new_group()
ACROSS_HOSTS = isinstance(first._get_backend(torch.device("cpu")), rondo_torch.native.HierarchicalBackend)

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64,
         torch.bool, torch.complex64, torch.complex128]
SIZES = [17, 9_000]  # the second needs several chunks
ROOT = 1
SHARE = int(os.environ.get("RONDO_MATRIX_SHARE", 1))
SHORT = timedelta(milliseconds=20)  # for calls that cannot complete
after, before = (rank + 1) % size, (rank - 1) % size
checked = 0
refused_by_gloo = []


def values(count, dtype, salt, of=rank):
    """Returns small integers, so that every order of additions has the same result; different on each rank and for each
    `salt`."""
    if dtype == torch.bool:
        return (torch.arange(count) * (of + 2) + salt) % 3 == 0
    return ((torch.arange(count) * (of + 1) + salt) % 4).to(dtype)


# Each operation starts asynchronously and returns its Works and its tensors, result tensors first.
def contribution(group, count, dtype, salt, op):
    """Gloo has no AVG: the average of values multiplied by the number of ranks equals Gloo's sum of the values."""
    if op != dist.ReduceOp.AVG:
        return values(count, dtype, salt), op
    return (values(count, dtype, salt), dist.ReduceOp.SUM) if group == gloo else (values(count, dtype, salt) * size, op)


def all_reduce(group, count, dtype, salt, op=dist.ReduceOp.SUM):
    tensor, op = contribution(group, count, dtype, salt, op)
    return [dist.all_reduce(tensor, op=op, group=group, async_op=True)], [tensor], []


def by(reducing, op):
    def start(group, count, dtype, salt):
        return reducing(group, count, dtype, salt, op)

    return start


def all_reduce_coalesced(group, count, dtype, salt):
    tensors = [values(count, dtype, salt), values(count // 2, dtype, salt + 1)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    return manager.works, tensors, []


def broadcast(group, count, dtype, salt):
    tensor = values(count, dtype, salt)
    return [dist.broadcast(tensor, group_src=ROOT, group=group, async_op=True)], [tensor], []


def reduce(group, count, dtype, salt, op=dist.ReduceOp.SUM):
    tensor, op = contribution(group, count, dtype, salt, op)
    work = dist.reduce(tensor, group_dst=ROOT, op=op, group=group, async_op=True)
    # Its value on other ranks is undefined.
    return [work], [tensor] if rank == ROOT else [], [tensor]


def all_gather(group, count, dtype, salt):
    tensor = values(count, dtype, salt)
    outputs = [torch.empty_like(tensor) for _ in range(size)]
    return [dist.all_gather(outputs, tensor, group=group, async_op=True)], outputs, [tensor]


def all_gather_single(group, count, dtype, salt):
    tensor = values(count, dtype, salt)
    output = tensor.new_empty(count * size)
    return [dist.all_gather_single(output, tensor, group=group, async_op=True)], [output], [tensor]


def all_gather_single_coalesced(group, count, dtype, salt):
    inputs = [values(count, dtype, salt), values(count // 2, dtype, salt + 1)]
    outputs = [tensor.new_empty(tensor.numel() * size) for tensor in inputs]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for output, tensor in zip(outputs, inputs):
            dist.all_gather_single(output, tensor, group=group)
    return manager.works, outputs, inputs


def gather(group, count, dtype, salt):
    tensor = values(count, dtype, salt)
    outputs = [torch.empty_like(tensor) for _ in range(size)] if rank == ROOT else []
    return [dist.gather(tensor, outputs or None, group_dst=ROOT, group=group, async_op=True)], outputs, [tensor]


def scatter(group, count, dtype, salt):
    output = torch.empty(count, dtype=dtype)
    inputs = [values(count, dtype, salt + r) for r in range(size)] if rank == ROOT else []
    return [dist.scatter(output, inputs or None, group_src=ROOT, group=group, async_op=True)], [output], inputs


def reduce_scatter(group, count, dtype, salt):
    inputs = [values(count, dtype, salt + r) for r in range(size)]
    output = torch.empty(count, dtype=dtype)
    return [dist.reduce_scatter(output, inputs, group=group, async_op=True)], [output], inputs


def reduce_scatter_single(group, count, dtype, salt, op=dist.ReduceOp.SUM):
    tensor, op = contribution(group, count * size, dtype, salt, op)
    output = torch.empty(count, dtype=dtype)
    return [dist.reduce_scatter_single(output, tensor, op=op, group=group, async_op=True)], [output], [tensor]


def reduce_scatter_single_coalesced(group, count, dtype, salt):
    inputs = [values(count * size, dtype, salt), values(count // 2 * size, dtype, salt + 1)]
    outputs = [torch.empty(tensor.numel() // size, dtype=dtype) for tensor in inputs]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for output, tensor in zip(outputs, inputs):
            dist.reduce_scatter_single(output, tensor, group=group)
    return manager.works, outputs, inputs


def all_to_all(group, count, dtype, salt):
    inputs = [values(count, dtype, salt + r) for r in range(size)]
    outputs = [torch.empty(count, dtype=dtype) for _ in range(size)]
    return [dist.all_to_all(outputs, inputs, group=group, async_op=True)], outputs, inputs


def all_to_all_single(group, count, dtype, salt):
    tensor = values(count * size, dtype, salt)
    output = torch.empty_like(tensor)
    return [dist.all_to_all_single(output, tensor, group=group, async_op=True)], [output], [tensor]


def all_to_all_single_uneven(group, count, dtype, salt):
    """Each pair of ranks has its own length, different in each direction."""
    def length(source, target):
        return count // 4 + 2 * source + target

    sent, received = [length(rank, r) for r in range(size)], [length(r, rank) for r in range(size)]
    tensor, output = values(sum(sent), dtype, salt), torch.empty(sum(received), dtype=dtype)
    return [dist.all_to_all_single(output, tensor, received, sent, group=group, async_op=True)], [output], [tensor]


def barrier(group, _count, _dtype, _salt):
    return [dist.barrier(group=group, async_op=True)], [], []


def isend_irecv(group, count, dtype, salt):
    tensor, output = values(count, dtype, salt), torch.empty(count, dtype=dtype)
    works = [dist.isend(tensor, group_dst=after, group=group, tag=salt), dist.irecv(output, group_src=before, group=group, tag=salt)]
    return works, [output], [tensor]


def irecv_from_any(group, count, dtype, salt):
    """Posted on all ranks before any send."""
    tensor, output = values(count, dtype, salt), torch.empty(count, dtype=dtype)
    works = [dist.irecv(output, group=group, tag=salt), dist.isend(tensor, group_dst=after, group=group, tag=salt)]
    return works, [output], [tensor]


def batch(group, count, dtype, salt):
    tensor, output = values(count, dtype, salt), torch.empty(count, dtype=dtype)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, group=group, group_peer=before, tag=salt),
                                    dist.P2POp(dist.irecv, output, group=group, group_peer=after, tag=salt)])
    return works, [output], [tensor]


def of(group):
    return group._get_backend(torch.device("cpu"))


def all_reduce_sparse(group, count, dtype, salt):
    tensor = values(count, dtype, salt).to_sparse()
    return [dist.all_reduce(tensor, group=group, async_op=True)], [tensor], []


def all_reduce_listed_twice(group, count, dtype, salt):
    tensor = values(count, dtype, salt)
    work = of(group).allreduce_coalesced([tensor, tensor], dist.AllreduceCoalescedOptions())
    return [work], [tensor], []


def all_reduce_several(group, count, dtype, salt):
    tensors = [values(count, dtype, salt), values(count, dtype, salt + 1)]
    return [of(group).allreduce(tensors, dist.AllreduceOptions())], tensors, []


def broadcast_several(group, count, dtype, salt):
    tensors = [values(count, dtype, salt), values(count, dtype, salt + 1)]
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = ROOT, 1
    return [of(group).broadcast(tensors, options)], tensors, []


def all_gather_several(group, count, dtype, salt):
    inputs = [values(count, dtype, salt), values(count, dtype, salt + 1)]
    outputs = [[torch.empty_like(inputs[0]) for _ in range(2 * size)] for _ in inputs]
    return [of(group).allgather(outputs, inputs)], [output for some in outputs for output in some], inputs


def all_gather_coalesced(group, count, dtype, salt):
    inputs = [values(count, dtype, salt), values(count // 2, dtype, salt + 1)]
    outputs = [[torch.empty_like(tensor) for tensor in inputs] for _ in range(size)]
    work = of(group).allgather_coalesced(outputs, inputs)
    return [work], [output for some in outputs for output in some], inputs


REDUCING = {op.__name__: op for op in [all_reduce, all_reduce_coalesced, all_reduce_sparse, all_reduce_listed_twice, all_reduce_several,
                                        reduce, reduce_scatter, reduce_scatter_single, reduce_scatter_single_coalesced]}
REDUCING |= {f"{op.__name__}_{name}": by(op, getattr(dist.ReduceOp, name)) for op in [all_reduce, reduce]
             for name in ["MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR"]}
REDUCING |= {f"{op.__name__}_AVG": by(op, dist.ReduceOp.AVG) for op in [all_reduce, reduce, reduce_scatter_single]}
MOVING = {op.__name__: op for op in [broadcast, broadcast_several, all_gather, all_gather_single, all_gather_single_coalesced,
                                      all_gather_several, all_gather_coalesced, gather, scatter, all_to_all, all_to_all_single,
                                      all_to_all_single_uneven, barrier]}
MESSAGES = {op.__name__: op for op in [isend_irecv, irecv_from_any, batch]}
BLOCKING = {"all_reduce_sparse"}
OPERATIONS = REDUCING | MOVING | MESSAGES


def takes(name, dtype):
    """Returns false for undefined combinations."""
    if name.endswith(("_MIN", "_MAX", "_PRODUCT")):
        return not dtype.is_complex and dtype != torch.bool
    if name.endswith(("_BAND", "_BOR", "_BXOR")):
        return not dtype.is_floating_point and not dtype.is_complex
    # The average of whole numbers is defined by PyTorch, and a barrier has no type.
    if name.endswith("_AVG"):
        return dtype.is_floating_point or dtype.is_complex
    if name == "barrier":
        return dtype == torch.int32
    # PyTorch does not add sparse tensors of half precision, and does not sum booleans of several tensors.
    if name == "all_reduce_sparse":
        return dtype not in (torch.bool, torch.float16, torch.bfloat16)
    return not (dtype == torch.bool and name == "all_reduce_several")


def wait(works):
    for work in works:
        work.wait()


def right_results(name, count, dtype, salt):
    """Returns Gloo's results; if it rejects the type, Gloo's results in a wider one."""
    for wider in [dtype, torch.int64 if not dtype.is_floating_point and not dtype.is_complex else torch.float64]:
        try:
            works, outputs, _ = OPERATIONS[name](gloo, count, wider, salt)
            wait(works)
            return [output.to(dtype) for output in outputs]
        except (RuntimeError, ValueError) as error:
            refused_by_gloo.append([name, str(dtype)])
            reason = str(error)
    raise AssertionError(f"Gloo gives no {name} to compare {dtype} with: {reason}")


def compare(how, name, dtype, results, right):
    global checked
    assert len(results) == len(right)
    for result, expected in zip(results, right):
        result, expected = result.to_dense(), expected.to_dense()
        assert torch.equal(result, expected), f"{name} of {dtype}, {how}, rank {rank}: {result} is not {expected}"
    checked += 1


def kept(name, count, dtype, right):
    works, outputs, _ = OPERATIONS[name](first, count, dtype, 1)
    wait(works)
    compare("kept", name, dtype, outputs, right)
    for work in works:
        assert work.is_completed() and work.is_success() and work.exception() is None


def dropped(name, count, dtype, right):
    for salt in range(1, 4):
        OPERATIONS[name](first, count, dtype, salt)
    # They reuse the dropped memory.
    others = [torch.full((count,), 7).to(dtype) for _ in range(2 * size + 4)]
    works, outputs, _ = OPERATIONS[name](first, count, dtype, 1)
    wait(works)
    compare("after some that were dropped", name, dtype, outputs, right)
    dist.barrier(group=first)
    for other in others:
        assert torch.equal(other, torch.full((count,), 7).to(dtype)), f"{name} of {dtype} wrote into other memory on rank {rank}"


def future(name, count, dtype, right):
    works, outputs, _ = OPERATIONS[name](first, count, dtype, 1)
    done = [work.get_future().then(lambda value: value.wait() is not None) for work in works]
    for one in done:
        one.wait()
    compare("as a future", name, dtype, outputs, right)


def two_groups(name, count, dtype, right):
    # These block when they start: all ranks use one order.
    forwards = rank % 2 == 0 or name in BLOCKING
    started = {group: OPERATIONS[name](group, count, dtype, 1) for group in ([first, second] if forwards else [second, first])}
    for group in [second, first] if forwards else [first, second]:
        wait(started[group][0])
        compare("in two groups", name, dtype, started[group][1], right)


def timeout(name, dtype):
    """One rank does not join: ranks that need it fail, and other groups still work."""
    global checked
    group = dist.new_group()
    dist.barrier(group=group)
    missing, asks = {"broadcast": (ROOT, 0), "scatter": (ROOT, 0), "batch": (1, 0), "isend_irecv": (size - 1, 0),
                     "irecv_from_any": (size - 1, 0)}.get(name, (0, ROOT))
    if rank == asks:
        try:
            # These block before they return, with the group's own timeout.
            if name in BLOCKING:
                group._get_backend(torch.device("cpu")).set_timeout(SHORT)
            works, _, _ = OPERATIONS[name](group, 17, dtype, 1)
            for work in works:
                work.wait(SHORT)
        except rondo_torch.TimeoutError as error:
            # No other rank has come either: across hosts one of them is named, and after a wait() with a limit none.
            if name != "irecv_from_any" and not ACROSS_HOSTS:
                assert missing in error.ranks and 0 <= min(error.ranks), (name, dtype, error.ranks, str(error))
            assert rank not in error.ranks, (name, dtype, error.ranks, str(error))
        else:
            raise AssertionError(f"{name} of {dtype} on rank {rank} ended without rank {missing}")
        checked += 1
    dist.barrier(group=first)


def monitored_barrier():
    """The missing ranks are named, all of them or the first, and the group still works."""
    group = dist.new_group()
    group.monitored_barrier(timedelta(seconds=30), wait_all_ranks=True)
    for all_of_them in [True, False]:
        if rank == 0:
            try:
                group.monitored_barrier(timedelta(milliseconds=100), wait_all_ranks=all_of_them)
            except rondo_torch.TimeoutError as error:
                assert error.ranks == (list(range(1, size)) if all_of_them else [1]), error.ranks
            else:
                raise AssertionError("a monitored barrier let rank 0 pass alone")
        else:
            # In order with rank 0, which counts its call, but late.
            dist.barrier(group=first)
            try:
                group.monitored_barrier(timedelta(seconds=30))
            except rondo_torch.TimeoutError:
                pass
            else:
                raise AssertionError("a monitored barrier that failed let a late rank pass")
            continue
        dist.barrier(group=first)
    dist.all_reduce(total := torch.ones(1), group=group)
    assert total.item() == size


def wrong_calls():
    """Rejected with c10d's messages before anything starts."""
    options = dist.BroadcastOptions()
    options.rootRank = size
    one, two = torch.zeros(1), torch.zeros(2)
    for words, call in {
        "invalid root rank": lambda: of(first).broadcast([one], options),
        "requires non-empty tensor list": lambda: of(first).allreduce([], dist.AllreduceOptions()),
        "invalid tensor size": lambda: of(first).allreduce([one, two], dist.AllreduceOptions()),
        "invalid output tensor list": lambda: of(first).allgather([[one]], [one]),
    }.items():
        try:
            call()
        except rondo_torch.UsageError as error:
            assert words in str(error) and isinstance(error, ValueError) and isinstance(error, RuntimeError), str(error)
        else:
            raise AssertionError(f"accepted: {words}")


def cases(*more):
    """Returns the share of operations x types x `more`: consecutive types of an operation, and the same type of
    consecutive operations, are in different shares."""
    axes = [list(enumerate(axis)) for axis in (OPERATIONS, TYPES, *more)]
    chosen = [[value for _, value in case] for case in itertools.product(*axes) if sum(place for place, _ in case) % SHARE == 0]
    return [case for case in chosen if takes(*case[:2])]


for operation, element, number in cases(SIZES):
    expected = right_results(operation, number, element, 1)
    # Messages of several hosts are Gloo's, which have no futures.
    for mode in [kept, dropped, two_groups] if ACROSS_HOSTS and operation in MESSAGES else [kept, dropped, future, two_groups]:
        mode(operation, number, element, expected)
for operation, element in cases():
    timeout(operation, element)
monitored_barrier()
wrong_calls()
dist.barrier()
print(json.dumps({"checked": checked, "refused_by_gloo": sorted(map(list, {tuple(pair) for pair in refused_by_gloo}))}), flush=True)
dist.destroy_process_group()
leave()
