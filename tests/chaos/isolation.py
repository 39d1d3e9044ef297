"""Namespaces for a run: its processes, mounts, emulated hosts and /dev/shm end with it, however it ends."""
import ctypes
import os
import signal
import subprocess
import sys
import tempfile

INSIDE = "RONDO_CHAOS_INSIDE"
PR_SET_PDEATHSIG = 1


def is_inside():
    return INSIDE in os.environ


def run_inside(script, arguments):
    """Runs the script again in separate namespaces, below an empty TMPDIR; returns its exit code."""
    with tempfile.TemporaryDirectory(prefix="rondo-chaos-", ignore_cleanup_errors=True) as folder:
        command = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
                   sys.executable, script, *arguments]
        child = subprocess.Popen(command, env=os.environ | {INSIDE: "1", "TMPDIR": folder}, preexec_fn=end_with_parent)

        def stop(number, _):
            child.kill()  # the namespace's first process ends with it, and all others with that
            raise SystemExit(128 + number)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, stop)
        return child.wait()


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def set_up():
    """Mounts file systems that only this run sees. The first process stays to reap orphans; the run continues in its
    child."""
    os.makedirs("/run/netns", exist_ok=True)
    for folder in ("/run/netns", "/dev/shm"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    child = os.fork()
    if child == 0:
        return
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) % 256)
