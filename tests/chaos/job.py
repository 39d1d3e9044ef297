"""A training as processes on its hosts; its ranks, its rows, its output."""
import contextlib
import json
import os
import signal
import socket
import subprocess

from case import SAVE_EVERY, STEPS
from processes import MARK, kill_all, marked, program_of

TIMEOUT_S = 10
DROPPED = ("PET_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "RONDO_", "TF_CONFIG", "WORLD_SIZE", "RANK", "LOCAL_", "MASTER_")
STOP_SIGNALS = "TERM,INT,HUP,QUIT,USR1"


class Job:
    """The processes of one start of a training."""

    def __init__(self, case, hosts, binaries, folder, run_dir, mark, resume=False):
        self.case, self.hosts, self.folder, self.run_dir, self.mark = case, hosts, folder, run_dir, mark
        environment = {key: value for key, value in os.environ.items() if not key.startswith(DROPPED)}
        environment |= {MARK: mark, "HOME": str(folder), "OMP_NUM_THREADS": "1", "RONDO_MATMUL": "libtorch"}
        self.scratch = []  # TMPDIR by host
        self.logs = []
        self.launchers = []
        self.lengths = []  # lengths of the logs at the time of the fault
        for command in self.commands(binaries, resume):
            log = folder / f"{mark}-{len(self.logs)}.log"
            scratch = folder / f"tmp-{len(self.logs)}"
            scratch.mkdir(exist_ok=True)
            self.logs.append(log)
            self.scratch.append(scratch)
            with open(log, "wb") as out:
                self.launchers.append(subprocess.Popen([str(word) for word in command], cwd=folder, stdout=out, env=environment | {"TMPDIR": str(scratch)},
                                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                                                       preexec_fn=reset_signals))

    def commands(self, binaries, resume):
        case = self.case
        train = ["train", "--strategy", case.strategy.name, *case.strategy.flags, "--data", self.folder / "text.txt", "--model", "gpt-tiny",
                 "--layers", 2, "--width", 32, "--heads", 4, "--seq-len", 16, "--batch-size", 4, "--steps", STEPS, "--seed", 7,
                 "--checkpoint-every", SAVE_EVERY, "--keep-checkpoints", 2, "--log-every", 1, "--validation-fraction", 0, "--trace-steps", 0,
                 "--matmul", "libtorch", "--progress", "off", "--timeout", f"{TIMEOUT_S}s", "--run-dir", self.run_dir]
        if resume:
            train.append("--resume")
        if not self.hosts:
            processes = [] if case.ranks == 1 or case.strategy.name == "parameter_server" else ["--nproc-per-node", case.ranks]
            return [[binaries / "rondo", *train, "--signals-to-handle", "{STOP_SIGNALS}", *processes]]
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        return [host.command(binaries / "rondo", "run", "--nnodes", len(self.hosts), "--node-rank", number, "--master-addr",
                             self.hosts[0].address, "--master-port", port, "--interface", host.interface, "-n",
                             case.ranks // len(self.hosts), "--rdzv-conf", f"join_timeout={TIMEOUT_S}", "--signals-to-handle",
                             STOP_SIGNALS, "--", binaries / "rondo", *train)
                for number, host in enumerate(self.hosts)]

    def has_ended(self):
        return all(process.poll() is not None for process in self.launchers)

    def rows(self):
        """Returns the complete rows of rank 0's metrics."""
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

    def checkpoints(self):
        """Returns the steps of the checkpoints on disk, the newest last."""
        with contextlib.suppress(OSError):
            return sorted(int(entry.name[5:]) for entry in (self.run_dir / "checkpoints").iterdir() if entry.name.startswith("step-"))
        return []

    def is_saving(self):
        """Returns true while a checkpoint is being written: its folder has the name of an incomplete one."""
        with contextlib.suppress(OSError):
            return any(entry.name.startswith(".tmp-") for entry in (self.run_dir / "checkpoints").iterdir())
        return False

    def ranks(self):
        """Returns the processes that are ranks, including servers and workers: id -> environment."""
        return {pid: environment for pid, environment in marked(self.mark).items()
                if program_of(pid) == "rondo-train-worker" and (self.case.ranks == 1 or "RANK" in environment)}

    def has_begun(self):
        """Returns true if the launchers have passed `ip netns exec`."""
        return all(program_of(process.pid).startswith("rondo") for process in self.launchers)

    def note_the_fault(self):
        self.lengths = [log.stat().st_size for log in self.logs]

    def output(self):
        return "\n".join(log.read_text(errors="replace") for log in self.logs)

    def output_since_the_fault(self):
        return "\n".join(log.read_bytes()[length:].decode(errors="replace") for log, length in zip(self.logs, self.lengths))

    def end(self):
        """Kills the remaining processes; returns them."""
        left = kill_all(self.mark)
        for process in self.launchers:
            process.kill()
            process.wait()
        return left


def reset_signals():
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
