"""Jobs on the native engine are isolated: no port is open, and no memory is shared with another job."""
import os
import pathlib
import signal

import pytest
from launching import wait_until


@pytest.fixture
def train(rondo, rondo_bin, tmp_path):
    """Starts an endless training on two ranks; returns the launcher's process after some steps."""
    data = tmp_path / "table.csv"
    data.write_text("a,b,label\n" + "\n".join(f"{i % 7},{i % 5},{i % 2}" for i in range(200)) + "\n")

    def start(name):
        job = rondo.start("run", "-n", 2, rondo_bin / "rondo-train-worker", "--data", data, "--model", "mlp", "--batch-size", 8,
                          "--epochs", 1000000, "--log-every", 1, "--run-dir", tmp_path / name)
        metrics = tmp_path / name / "metrics.jsonl"
        wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 20, f"some steps of {name} are done")
        return job

    return start


def family(pid):
    """Returns a process and all its descendants."""
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except OSError:  # the thread has ended meanwhile
            continue
        for child in children:
            found += family(int(child))
    return found


def shared_memory_of(pid):
    """Returns device and inode of each unnamed shared mapping."""
    lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    fields = [line.split(maxsplit=5) for line in lines if "memfd:" in line]
    return {(field[3], field[4]) for field in fields if field[1].endswith("s")}


def internet_sockets_of(pid):
    """Returns the lines of the kernel's TCP and UDP socket tables that belong to a process."""
    links = []
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(descriptor))
        except FileNotFoundError:  # closed meanwhile
            pass
    mine = {link[len("socket:["):-1] for link in links if link.startswith("socket:[")}
    tables = [pathlib.Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6", "udp", "udp6")]
    lines = [line for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return [line for line in lines if line.split()[9] in mine]


def test_jobs_share_no_memory_and_no_port(train):
    jobs = [train("one"), train("two")]
    families = [family(job.pid) for job in jobs]
    memories = []
    for processes in families:
        assert len(processes) >= 3  # a launcher and two ranks
        pieces = [shared_memory_of(pid) for pid in processes]
        ranks = [memory for memory in pieces if memory]
        assert len(ranks) >= 2 and set.intersection(*ranks), "the ranks of a job do share memory"
        memories.append(set.union(*pieces))
    assert not memories[0] & memories[1]
    for pid in sum(families, []):
        assert internet_sockets_of(pid) == []
    for job in jobs:
        job.send_signal(signal.SIGTERM)
    for job in jobs:
        job.communicate(timeout=120)
