"""A training as processes: started on its hosts, hit by its fault, and what is left of it."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from case import STEPS

TIMEOUT_S = 10
MARK = "RONDO_CHAOS_CASE"  # stands in the environment of every process of a case
DROPPED = ("PET_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "RONDO_", "TF_CONFIG", "WORLD_SIZE", "RANK", "LOCAL_", "MASTER_")


def wait_until(condition, seconds):
    """The first true value of condition(), or what it is when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(0.005)


def marked(mark):
    """Processes of a case, zombies left out: id -> environment."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            environment = (entry / "environ").read_bytes().split(b"\0")
            if f"{MARK}={mark}".encode() in environment and (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX":
                found[int(entry.name)] = {key: value for key, _, value in (e.decode(errors="replace").partition("=") for e in environment)}
    return found


class Job:
    """The processes of one start of a training."""

    def __init__(self, case, hosts, binaries, folder, run_dir, mark, steps=STEPS, resume=False):
        self.case, self.hosts, self.folder, self.run_dir, self.mark = case, hosts, folder, run_dir, mark
        scratch = folder / "tmp"
        scratch.mkdir(exist_ok=True)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(DROPPED)}
        environment |= {MARK: mark, "TMPDIR": str(scratch), "HOME": str(folder), "OMP_NUM_THREADS": "1", "RONDO_MATMUL": "default"}
        self.logs = []
        self.launchers = []
        for command in self.commands(binaries, steps, resume):
            log = folder / f"{mark}-{len(self.logs)}.log"
            self.logs.append(log)
            with open(log, "wb") as out:
                self.launchers.append(subprocess.Popen([str(word) for word in command], cwd=folder, env=environment, stdout=out,
                                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                                                       preexec_fn=lambda: [signal.signal(n, signal.SIG_DFL) for n in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)]))

    def commands(self, binaries, steps, resume):
        case = self.case
        train = ["train", "--strategy", case.strategy.name, *case.strategy.flags, "--data", self.folder / "text.txt", "--model", "gpt-tiny",
                 "--layers", 2, "--width", 32, "--heads", 4, "--context", 16, "--batch-size", 4, "--steps", steps, "--seed", 7,
                 "--checkpoint-every", 3, "--keep", 2, "--log-every", 1, "--validation-fraction", 0, "--trace-steps", 0, "--matmul", "default",
                 "--progress", "off", "--timeout", f"{TIMEOUT_S}s", "--run-dir", self.run_dir]
        if resume:
            train.append("--resume")
        if not self.hosts:
            processes = [] if case.ranks == 1 or case.strategy.name == "parameter_server" else ["--nproc-per-node", case.ranks]
            return [[binaries / "rondo", *train, *processes]]
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        return [host.command(binaries / "rondo", "run", "--nnodes", len(self.hosts), "--node-rank", number, "--master-addr",
                             self.hosts[0].address, "--master-port", port, "--interface", host.interface, "-n",
                             case.ranks // len(self.hosts), "--rdzv-conf", f"join_timeout={TIMEOUT_S}", "--", binaries / "rondo", *train)
                for number, host in enumerate(self.hosts)]

    def has_ended(self):
        return all(process.poll() is not None for process in self.launchers)

    def rows(self):
        """Rows of the metrics of rank 0, as far as they are whole."""
        rows = []
        with contextlib.suppress(OSError):
            for line in (self.run_dir / "metrics.jsonl").read_text(errors="replace").split("\n")[:-1]:
                with contextlib.suppress(ValueError):
                    row = json.loads(line)
                    if row.get("rank") == 0 and "loss" in row and "step" in row:
                        rows.append(row)
        return rows

    def last_step(self):
        return max((row["step"] for row in self.rows()), default=0)

    def is_saving(self):
        """A checkpoint is being written: its folder is there under another name than that of a whole one."""
        with contextlib.suppress(OSError):
            return any(not entry.name.startswith("step-") for entry in (self.run_dir / "checkpoints").iterdir())
        return False

    def wait_for_the_moment(self):
        case = self.case
        if case.moment != "starting":
            wait_until(lambda: self.has_ended() or self.last_step() >= case.at_step, 90)
        if case.moment == "saving":
            wait_until(lambda: self.has_ended() or self.is_saving(), 2)
        end = time.monotonic() + case.delay
        wait_until(lambda: self.has_ended() or time.monotonic() > end, case.delay)

    def processes_of(self, rank):
        """Ids of the processes that are this rank, or any worker or server where there are servers."""
        found = []
        for pid, environment in marked(self.mark).items():
            with contextlib.suppress(OSError):
                name = os.readlink(f"/proc/{pid}/exe").rsplit("/", 1)[-1]
                if name != "rondo-train-worker":
                    continue
                if self.case.strategy.has_servers or environment.get("RANK", "0") == str(rank):
                    found.append(pid)
        return sorted(found)

    def inject(self):
        """Does it; returns what was hit, or None where there was nothing to hit any more."""
        case, fault = self.case, self.case.fault
        if self.has_ended():
            return None
        if fault in ("kill", "stop"):
            pids = self.processes_of(case.victim)
            if not pids:
                return None
            pid = pids[case.at_step % len(pids)]
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
            return f"rank {case.victim} (pid {pid})"
        launcher = self.launchers[case.victim % len(self.launchers)]
        host = self.hosts[case.victim % len(self.hosts)] if self.hosts else None
        if fault == "kill launcher":
            launcher.kill()
            return f"launcher {launcher.pid}"
        if fault in ("TERM", "INT", "HUP"):
            launcher.send_signal(getattr(signal, "SIG" + fault))
            return f"launcher {launcher.pid}"
        if fault == "cut link":
            host.cut()
            return host.address
        if fault == "stop host":
            pids = set(map(int, subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True).stdout.split()))
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            return host.address
        if fault == "disk":
            with contextlib.suppress(OSError), open(self.run_dir.parent / "filler", "wb") as filler:
                while True:
                    filler.write(bytes(1 << 16))
                    filler.flush()
            return "disk"
        raise AssertionError(fault)

    def hosts_that_must_end(self):
        """Launchers that nobody has stopped from outside."""
        stopped = self.case.victim % len(self.launchers) if self.case.fault == "stop host" else None
        return [process for number, process in enumerate(self.launchers) if number != stopped]

    def output(self):
        return "\n".join(log.read_text(errors="replace") for log in self.logs)

    def clean_up(self):
        """Ends what is left; returns it."""
        left = marked(self.mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.launchers:
            process.kill()
            process.wait()
        return left


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system of `size` at `folder`, so that it can be filled."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
