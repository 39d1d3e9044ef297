"""Helpers of the tests that start processes with rondo run."""
import contextlib
import fcntl
import os
import pathlib
import re
import signal
import socket
import struct
import termios
import time

TORCHRUN_VARIABLES = (
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE "
    "MASTER_ADDR MASTER_PORT TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID "
    "TORCHELASTIC_ERROR_FILE").split()


def below(pid):
    """Returns the process ids of the descendants."""
    try:
        children = [int(child) for task in os.listdir(f"/proc/{pid}/task")
                    for child in pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    except OSError:
        return []
    return children + [grandchild for child in children for grandchild in below(child)]


def sharing_socket(address, port):
    """Returns a socket at an address and port that sockets with the same option can share."""
    shared = socket.socket()
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    shared.bind((address, port))
    return shared


@contextlib.contextmanager
def reserved_ports(count):
    """Yields ports that the system assigns to no other process meanwhile; a process can still bind one by number, even
    repeatedly."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(sharing_socket("", 0)) for _ in range(count)]
        yield [each.getsockname()[1] for each in sockets]


def wait_until(condition, what, seconds=120):
    """Returns the first true value of condition(). Only a broken program misses the deadline, on any machine."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"not within {seconds} s: {what}")


def state(pid):
    """Returns the letter of the process's state in /proc; raises OSError if there is no such process."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def alive(pid):
    """Returns true until the last thread has ended, which need not be the first one: it holds files and locks until
    then."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    for thread in threads:
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            if state(thread) not in "ZX":
                return True
    return False


def all_gone(pids):
    wait_until(lambda: not any(alive(pid) for pid in pids), f"processes {pids} are gone")


def kill_launcher(process):
    """Kills both halves of `rondo run`, so that neither cleans up."""
    guardian, = map(int, pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    # Suspends the launcher, which would otherwise clean up after the guardian's end. Suspending the guardian would not
    # help: the launcher's end wakes it.
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: state(process.pid) == "T", "the launcher is suspended")
    os.kill(guardian, signal.SIGKILL)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    all_gone([guardian])


def bash(script):
    return ["bash", "-c", script]


def by_rank(text):
    """Returns each rank's lines, without the prefix."""
    ranks = {}
    for line in text.splitlines():
        match = re.match(r"\[rank (\d+)\] (.*)", line)
        assert match, f"a line without a rank: {line!r}"
        ranks.setdefault(int(match[1]), []).append(match[2])
    return ranks


def one_run_directory(path):
    runs = list(path.iterdir())
    assert len(runs) == 1, runs
    return runs[0]


def set_terminal_width(descriptor, columns):
    """Gives a pseudo-terminal 24 rows and so many columns."""
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def read_terminal(leader, on_piece=lambda _: None):
    """Returns what programs write to a pseudo-terminal until all have closed it. Calls on_piece(bytes so far) after each
    piece."""
    output = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:
            break
        if not piece:
            break
        output += piece
        on_piece(output)
    os.close(leader)
    return output.decode()
