"""The fault of a case: waits for its moment and injects it."""
import contextlib
import dataclasses
import shutil
import signal
import subprocess
import time

from job import TIMEOUT_S
from processes import handles, send, wait_until

PAUSE_S = 2.0  # shorter than the deadline
LATE_S = TIMEOUT_S + 2.0  # others have given up, or are about to
ABSENCES = {"pause": PAUSE_S, "pause host": PAUSE_S, "blink link": PAUSE_S, "late": LATE_S, "late link": LATE_S}
SIGNALS = {"TERM": signal.SIGTERM, "TERM of a rank": signal.SIGTERM, "INT": signal.SIGINT, "HUP": signal.SIGHUP, "USR1": signal.SIGUSR1}


@dataclasses.dataclass
class Hit:
    """A fault's victim and time: the environment of a process, and the launchers that cannot report the fault."""

    what: str
    environment: dict = dataclasses.field(default_factory=dict)
    launchers: tuple = ()
    at: float = dataclasses.field(default_factory=time.monotonic)


def wait_for_the_moment(job):
    case = job.case
    if case.moment != "starting":
        wait_until(lambda: job.has_ended() or job.last_step() >= case.at_step, 120)
    if case.moment == "saving":
        wait_until(lambda: job.has_ended() or job.is_saving(), 2, every=0.001)
    else:
        wait_until(lambda: job.has_ended() or job.has_begun(), 60)
    time.sleep(case.delay)


def inject(job):
    """Injects the fault; returns the Hit, or None if no victim was left."""
    job.note_the_fault()
    if job.has_ended():
        return None
    return {"rank": hit_rank, "launcher": hit_launcher, "host": hit_host, "link": hit_link, "disk": hit_disk}[job.case.fault.victim](job)


def hit_rank(job):
    case = job.case
    found = wait_until(lambda: job.has_ended() or the_rank(job), 60)
    if found is True:
        return None
    pid, environment = found
    if case.fault.name in SIGNALS:
        wait_until(lambda: job.has_ended() or handles(pid, SIGNALS[case.fault.name]), 60)
    what = Hit(f"rank {environment.get('RANK', 0)} (pid {pid})", environment,
               tuple(number for number, each in enumerate(job.launchers) if each.pid == pid))
    return what if strike(case.fault.name, [pid]) else None


def the_rank(job):
    """Returns id and environment of the victim; with servers, of any process except the launcher."""
    found = sorted(job.ranks().items())
    if not job.case.strategy.has_servers:
        found = [(pid, environment) for pid, environment in found if int(environment.get("RANK", 0)) == job.case.victim]
    return found[job.case.at_step % len(found)] if found else None


def hit_launcher(job):
    number = job.case.host
    launcher = job.launchers[number]
    name = job.case.fault.name
    if name in SIGNALS:
        wait_until(lambda: launcher.poll() is not None or handles(launcher.pid, SIGNALS[name]), 60)
    what = Hit(f"launcher {number} (pid {launcher.pid})", launchers=(number,) if name == "kill launcher" else ())
    return what if launcher.poll() is None and strike(name, [launcher.pid]) else None


def hit_host(job):
    host = job.hosts[job.case.host]
    if job.case.fault.name == "kill host":
        host.cut()  # a host without power sends nothing
    what = Hit(host.address, launchers=() if job.case.fault.outcome == "goes on" else (job.case.host,))
    return what if strike(job.case.fault.name, host.processes()) else None


def hit_link(job):
    host = job.hosts[job.case.host]
    what = Hit(host.address)
    host.cut()
    if job.case.fault.name in ABSENCES:
        time.sleep(ABSENCES[job.case.fault.name])
        host.join()
    return what


def hit_disk(job):
    filler = job.run_dir.parent / "filler"
    with contextlib.suppress(OSError), open(filler, "wb") as file:
        while True:
            file.write(bytes(1 << 16))
            file.flush()
    if job.case.fault.name == "full disk for a while":
        wait_until(lambda: job.has_ended() or "No space left" in job.output_since_the_fault(), 10)
        filler.unlink()
    return Hit("disk")


def strike(name, pids):
    """Sends the fault's signals; returns whether there was a process."""
    if name in ABSENCES or name.startswith("stop"):
        for pid in pids:
            send(pid, signal.SIGSTOP)
        if name in ABSENCES:
            time.sleep(ABSENCES[name])
            for pid in pids:
                send(pid, signal.SIGCONT)
    else:
        for pid in pids:
            send(pid, SIGNALS.get(name, signal.SIGKILL))
    return bool(pids)


@contextlib.contextmanager
def small_disk(folder, size):
    """Mounts a file system of `size` at `folder`, so that it can be filled."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
