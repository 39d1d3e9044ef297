"""Invalid calls and a killed rank, started by hand: run by python_plugin_test.py as  faults.py RENDEZVOUS RANK RANKS

Every rank prints one JSON object for each error: what, type, message, ranks, seconds.
"""

import datetime
import json
import os
import signal
import sys
import time

import rondo_torch
import torch
import torch.distributed as dist

rendezvous, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("rondo", init_method=rendezvous, rank=rank, world_size=size,
                        timeout=datetime.timedelta(seconds=100))


def report(what, call):
    began = time.monotonic()
    try:
        call()
    except Exception as error:
        print(json.dumps({"what": what, "type": type(error).__name__, "message": str(error),
                          "ranks": getattr(error, "ranks", None), "communication":
                          isinstance(error, (rondo_torch.CommunicationError, dist.DistBackendError)),
                          "seconds": time.monotonic() - began}), flush=True)
    else:
        print(json.dumps({"what": what, "type": None}), flush=True)


def in_own_group(what, call):
    # A group fails permanently with its first error, so each call has its own group.
    group = dist.new_group()
    dist.barrier(group=group)
    report(what, lambda: call(group))


in_own_group("size", lambda group: dist.all_reduce(torch.ones(1000 + rank), group=group))
in_own_group("dtype", lambda group: dist.broadcast(
    torch.ones(10, dtype=torch.float64 if rank == 1 else torch.float32), src=0, group=group))
in_own_group("operation", lambda group: dist.barrier(group=group) if rank == 2
             else dist.all_reduce(torch.ones(5), group=group))
in_own_group("future", lambda group: dist.all_reduce(torch.ones(100 + rank), group=group, async_op=True)
             .get_future().wait())
report("sparse", lambda: dist.all_reduce(torch.eye(3).to_sparse(), op=dist.ReduceOp.MAX))
group = dist.new_group()
if rank == 0:
    work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
    report("timeout", lambda: work.wait(datetime.timedelta(milliseconds=200)))
dist.barrier()
if rank > 0:
    report("late", lambda: dist.all_reduce(torch.ones(1), group=group))
    report("late again", lambda: dist.all_reduce(torch.ones(1), group=group))
print("ready", flush=True)
if rank == size - 1:
    os.kill(os.getpid(), signal.SIGKILL)
report("killed", lambda: dist.all_reduce(torch.ones(200_000)))
os._exit(0)
