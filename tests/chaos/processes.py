"""Processes of a case, identified by a mark in their environment."""
import contextlib
import os
import pathlib
import signal
import time

MARK = "RONDO_CHAOS_CASE"  # in the environment of every process of a case


def wait_until(condition, seconds, every=0.02):
    """Returns the first true value of condition(), or its last value after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(every)


def state_of(pid):
    """Returns the letter of /proc/PID/stat; X for a process that has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def marked(mark):
    """Returns the processes of a case, without zombies: id -> environment."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            environment = (entry / "environ").read_bytes().split(b"\0")
            if f"{MARK}={mark}".encode() in environment and state_of(entry.name) not in "ZX":
                found[int(entry.name)] = {key: value for key, _, value in (e.decode(errors="replace").partition("=") for e in environment)}
    return found


def program_of(pid):
    """Returns the file name of a process's program; empty if it has ended."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe").rsplit("/", 1)[-1]
    return ""


def handles(pid, number):
    """Returns true if a process blocks or catches a signal, as rondo's programs do from the start of main()."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("SigBlk", "SigCgt")) and int(line.split()[1], 16) >> number - 1 & 1:
                return True
    return False


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_all(mark):
    """Kills all processes of a case; returns those that existed: id -> environment."""
    left = marked(mark)
    for pid in left:
        send(pid, signal.SIGKILL)
    return left
