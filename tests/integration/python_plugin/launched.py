"""The launcher's memory as the ranks' store, under `rondo run`: run by python_plugin_test.py on 2 ranks."""

import os
import pathlib
import sys

import rondo_torch  # noqa: F401  (registers the backend)
import torch
import torch.distributed as dist

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "peers"))
from leaving import leave  # noqa: E402

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def sum_of_ranks():
    tensor = torch.full((50_000,), float(rank))
    dist.all_reduce(tensor)
    return tensor[0].item()


def listening_ports():
    """Returns the ports that this process listens on."""
    own = set()
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        try:
            own.add(os.readlink(entry))
        except OSError:
            pass
    ports = []
    for table in ["tcp", "tcp6", "udp", "udp6"]:
        for line in pathlib.Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[9]}]" in own:
                ports.append(fields[1])
    return ports


# Three times in one job: in the launcher's memory, and twice over a persistent store.
dist.init_process_group("rondo", init_method="rondo://")
assert dist.get_rank() == rank and dist.get_world_size() == size
assert sum_of_ranks() == 1
assert listening_ports() == [], listening_ports()
assert not any("dev/shm" in line for line in pathlib.Path("/proc/self/maps").read_text().splitlines())
dist.destroy_process_group()
for _ in range(2):
    dist.init_process_group("rondo", init_method="rondo://")
    assert sum_of_ranks() == 1
    dist.destroy_process_group()

dist.init_process_group("rondo")  # env://, a TCPStore
assert sum_of_ranks() == 1
dist.destroy_process_group()
print("launched: ok", flush=True)
leave()
