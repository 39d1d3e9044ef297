"""The last call of a job, after which rank 0, which holds the store, exits at once: run by python_plugin_test.py as

    last_call.py PORT RANK RANKS WHAT
"""

import datetime
import os
import sys

import rondo_torch  # noqa: F401  (registers the backend)
import torch
import torch.distributed as dist

port, rank, size, what = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
dist.init_process_group("rondo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size,
                        timeout=datetime.timedelta(seconds=100))
if what == "monitored_barrier":
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    group.monitored_barrier(datetime.timedelta(seconds=100), False)
print("through", flush=True)
os._exit(0)
