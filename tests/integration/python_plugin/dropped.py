"""Started operations complete, and own the memory that they write: run by python_plugin_test.py as  dropped.py
RENDEZVOUS RANK RANKS

Works, tensors and groups are dropped while operations are in flight, ranks are outside torch.distributed meanwhile,
receives from any rank are posted first, futures of two groups are chained in opposite order. Each rank prints its
checks; the last operations are in flight when the process exits.
"""

import datetime
import sys
import warnings

import rondo_torch  # noqa: F401  (registers the backend)
import torch
import torch.distributed as dist

warnings.simplefilter("ignore")
rendezvous, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("rondo", init_method=rendezvous, rank=rank, world_size=size,
                        timeout=datetime.timedelta(seconds=100))
store = dist.distributed_c10d._get_default_store()
other = 1 - rank
checks = 0


def check(condition, what):
    global checks
    assert condition, what
    checks += 1


def ones(elements):
    return torch.ones(elements)


def outputs(elements):
    return [torch.empty(elements) for _ in range(size)]


def backend():
    """Returns the backend, for functions that torch.distributed does not expose."""
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def coalesced(operation, outputs_of_one, inputs_of_one, n):
    with dist._coalescing_manager(async_ops=True):
        for _ in range(2):
            operation(ones(outputs_of_one * n), ones(inputs_of_one * n))


def uneven(n):
    """Rank 0 receives n elements from each rank, rank 1 twice as many."""
    mine = n * (rank + 1)
    dist.all_to_all_single(ones(2 * mine), ones(3 * n), [mine, mine], [n, 2 * n], async_op=True)


# The same kinds as in tests/backend/ownership_test.cpp.
STARTED = {
    "all_reduce": lambda n: dist.all_reduce(ones(n), async_op=True),
    "strided all_reduce": lambda n: dist.all_reduce(torch.ones(n, 2).t(), async_op=True),
    "several all_reduce": lambda n: backend().allreduce([ones(n), ones(n)], dist.AllreduceOptions()),
    # Complete when its call returns.
    "sparse all_reduce": lambda n: dist.all_reduce(ones(n).to_sparse(), async_op=True),
    "broadcast": lambda n: dist.broadcast(ones(n), src=0, async_op=True),
    "reduce": lambda n: dist.reduce(ones(n), dst=0, async_op=True),
    "all_gather": lambda n: dist.all_gather(outputs(n), ones(n), async_op=True),
    "all_gather_into_tensor": lambda n: dist.all_gather_into_tensor(torch.empty(size * n), ones(n), async_op=True),
    "all_gather_coalesced": lambda n: dist.all_gather_coalesced([outputs(n) for _ in range(size)], outputs(n), async_op=True),
    "all_gather_into_tensor coalesced": lambda n: coalesced(dist.all_gather_into_tensor, size, 1, n),
    "gather": lambda n: dist.gather(ones(n), outputs(n) if rank == 0 else None, dst=0, async_op=True),
    "scatter": lambda n: dist.scatter(ones(n), outputs(n) if rank == 0 else None, src=0, async_op=True),
    "reduce_scatter": lambda n: dist.reduce_scatter(ones(n), outputs(n), async_op=True),
    "reduce_scatter_tensor": lambda n: dist.reduce_scatter_tensor(ones(n), ones(size * n), async_op=True),
    "reduce_scatter_tensor coalesced": lambda n: coalesced(dist.reduce_scatter_tensor, 1, size, n),
    "all_to_all": lambda n: dist.all_to_all(outputs(n), outputs(n), async_op=True),
    "all_to_all_single": lambda n: dist.all_to_all_single(torch.empty(size * n), ones(size * n), async_op=True),
    "uneven all_to_all_single": uneven,
    "coalesced": lambda n: dist.all_reduce_coalesced([ones(n), ones(n)], async_op=True),
    "messages": lambda n: (dist.isend(ones(n), other), dist.irecv(ones(n), other)),
    "receive from any": lambda n: (dist.irecv(ones(n), tag=2), dist.isend(ones(n), other, tag=2)),
    "barrier": lambda n: dist.barrier(async_op=True),
}

for elements in (1000, 10_000, 1_000_000):
    for what, start in STARTED.items():
        mine = []
        for _ in range(4):
            start(elements)
            # Reuses the dropped memory, if it was released.
            mine.append(torch.full((elements,), 7.0))
        dist.barrier()
        check(all(bool((tensor == 7).all()) for tensor in mine), f"{what} of {elements} wrote into another tensor")

# One rank is outside torch.distributed.
for what, start in {"all_reduce": STARTED["all_reduce"],
                    "4 MiB": lambda n: dist.isend(ones(n), 1) if rank == 0 else dist.irecv(ones(n), 0)}.items():
    work = start(1 << 20)
    if rank == 0:
        store.get(f"through with {what}")
    else:
        work.wait()
        store.set(f"through with {what}", "")
    work.wait()
    check(work.is_completed(), what)

# Both ranks post the receive before they send.
received = torch.zeros(3)
work = dist.irecv(received)
dist.barrier()
dist.isend(torch.full((3,), float(rank)), other)
work.wait()
check(received.tolist() == [other] * 3, "irecv from any rank")
check(work._source_rank() == other, "its source")

# Two groups, in opposite order.
groups = [dist.new_group(), dist.new_group()]
order = groups if rank == 0 else groups[::-1]
called = []
futures = [dist.all_reduce(torch.ones(100_000), group=group, async_op=True).get_future()
           .then(lambda done: called.append(float(done.value()[0][0])) or done.value()) for group in order]
check([float(future.wait()[0][0]) for future in futures] == [size, size], "futures")
check(called == [size, size], "callbacks")

# Overlapping outputs.
shared = torch.ones(10)
for what, call in {
    "all_gather": lambda: dist.all_gather([shared] * size, torch.ones(10)),
    "expanded": lambda: dist.all_reduce(torch.ones(1).expand(10)),
    "input": lambda: dist.all_to_all_single(shared, shared),
}.items():
    try:
        call()
    except ValueError as error:
        check("all_" in str(error) and ("overlap" in str(error) or "share memory" in str(error)), str(error))
    else:
        raise AssertionError(f"{what} was accepted")
# As over Gloo, each entry of a coalesced list is reduced from its original value.
dist.all_reduce_coalesced([shared, shared])
check(shared.tolist() == [size] * 10, "listed twice")
dist.all_reduce_coalesced([shared[:6], shared[4:]])
check(shared.tolist() == [size * size] * 10, "views that overlap")
columns = torch.zeros(5, size)
dist.all_gather(list(columns.unbind(1)), torch.full((5,), float(rank)))
check(columns.tolist() == [list(map(float, range(size)))] * 5, "columns do not overlap")
whole = torch.full((size * 4,), float(rank))
dist.all_gather_into_tensor(whole, whole[rank * 4:rank * 4 + 4])
check(whole.tolist() == [float(i // 4) for i in range(size * 4)], "in place")

# Operations that Gloo has.
lists = [[torch.empty(2), torch.empty(3)] for _ in range(size)]
dist.all_gather_coalesced(lists, [torch.full((2,), rank + 0.5), torch.full((3,), rank + 1.5)])
check([[float(t[0]) for t in one] for one in lists] == [[r + 0.5, r + 1.5] for r in range(size)], "all_gather_coalesced")
late = dist.new_group()
dist.barrier(group=late)
dist.distributed_c10d._set_pg_timeout(datetime.timedelta(milliseconds=200), late)
if rank == 0:
    try:
        dist.all_reduce(torch.ones(1), group=late)
    except rondo_torch.TimeoutError as error:
        check(error.ranks == [1], "who is missing")
dist.barrier()  # other groups still work

# A group is aborted while an operation that its peer never starts is in flight: its memory is released to the program.
aborted = dist.new_group()
dist.barrier(group=aborted)
mine = []
if rank == 0:
    for elements in (1000, 1_000_000):
        dist.all_reduce(ones(elements), group=aborted, async_op=True)
        dist.irecv(ones(elements), other, group=aborted)
    dist.distributed_c10d._abort_process_group(aborted)
    mine = [torch.full((elements,), 7.0) for elements in (1000, 1_000_000) for _ in range(4)]
dist.barrier()
check(all(bool((tensor == 7).all()) for tensor in mine), "an aborted operation wrote into another tensor")
del aborted

dropped = dist.new_group()
dist.barrier(group=dropped)
work = dist.all_reduce(torch.ones(1_000_000), group=dropped, async_op=True)
dist.destroy_process_group(dropped)
del work, dropped
dist.barrier()

print(f"rank {rank}: {checks} checks", flush=True)
for start in STARTED.values():
    start(1_000_000)
