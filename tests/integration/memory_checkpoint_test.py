"""Memory checkpoints: killed ranks and hosts, damaged memory, and the losses afterwards."""
import json
import os
import pathlib
import shutil
import signal

import pytest
from launching import alive, all_gone, bash, kill_launcher, reserved_ports, wait_until
from train_test import worker_pids

# Sixty steps more than the moment at which it is stopped.
FLAGS = ["--model", "gpt-tiny", "--layers", 2, "--width", 32, "--seq-len", 16, "--data-kind", "text", "--extensions", ".md",
         "--batch-size", 2, "--log-every", 1, "--validation-fraction", 0, "--progress", "off", "--trace-steps", 0, "--steps", 80]
RUN = ["run", "-n", 2, "--max-restarts", 2, "--"]
# Two hosts of two ranks that share no memory as far as the ranks know.
ON_HOSTS = 'RONDO_HOST=host$((RANK / 2)) exec "$0" "$@"'


@pytest.fixture
def words(repository):
    return ["train", "--data", repository / "docs", *FLAGS]


def losses(run_dir):
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    found = [(row["step"], row["loss"]) for row in rows if row["rank"] == 0 and "loss" in row]
    assert [step for step, _ in found] == list(range(1, len(found) + 1)), "each step once"
    return [loss for _, loss in found]


def steps_in(folder):
    return sorted(int(path.name[5:]) for path in folder.glob("step-*") if (path / "manifest.json").exists())


class Job:
    """A training that is stopped between two memory checkpoints, disturbed, and continued."""

    def __init__(self, process, run_dir, ranks):
        self.process, self.run_dir = process, run_dir
        self.pids = wait_until(lambda: (pids := worker_pids(process.pid)) and len(pids) == ranks and pids, "the ranks are there")
        environ = pathlib.Path(f"/proc/{next(iter(self.pids.values()))}/environ").read_bytes().split(b"\0")
        self.memory, = [pathlib.Path(os.fsdecode(word.split(b"=", 1)[1])) for word in environ if word.startswith(b"RONDO_JOB_MEMORY=")]

    def checkpoints(self):
        """Returns the folders of the run's memory checkpoints, one for each host."""
        return sorted(self.memory.glob("host-*/run-*"))

    def newest(self):
        """Returns the newest step that all hosts have in memory; 0 if there is none."""
        steps = [steps_in(folder) for folder in self.checkpoints()]
        return min((found[-1] if found else 0 for found in steps), default=0)

    def suspend(self, moment):
        """Suspends all ranks at a time when moment(newest memory checkpoint) holds."""
        def suspended():
            assert self.process.poll() is None, self.process.stderr.read()
            if not moment(self.newest()):
                return False
            self.send(signal.SIGSTOP)
            if moment(self.newest()):
                return True
            self.send(signal.SIGCONT)
            return False
        wait_until(suspended, "a memory checkpoint to go on from")
        return self.newest()

    def send(self, number, ranks=None):
        for rank in self.pids if ranks is None else ranks:
            if alive(self.pids[rank]):
                os.kill(self.pids[rank], number)

    def finish(self):
        out, err = self.process.communicate(timeout=600)
        assert self.process.returncode == 0, out + err
        assert not self.memory.exists(), "the launcher removes the memory"
        return err


def went_on_from(err):
    """Returns the steps, each once: a failure report may repeat a rank's output."""
    return list(dict.fromkeys(int(line.rsplit("step-", 1)[1]) for line in err.splitlines() if "resuming from the memory checkpoint" in line))


def is_newest(found, step, every):
    """Allows for the next memory checkpoint, which was in progress and may have been completed."""
    return step <= found <= step + 2 * every


@pytest.mark.parametrize("launcher", ["train", pytest.param("run", marks=pytest.mark.long)])
def test_killed_rank_resumes_from_memory_bit_for_bit(rondo, words, tmp_path, launcher):
    flags = [*words, "--strategy", "zero3", "--steps", 120]
    start = [*RUN, rondo.program, *flags] if launcher == "run" else [*flags, "--nproc-per-node", 2, "--max-restarts", 2]
    undisturbed = rondo(*start, "--run-dir", "a", timeout=600)
    assert undisturbed.returncode == 0, undisturbed.stderr
    job = Job(rondo.start(*start, "--run-dir", "b", "--memory-checkpoint-every", 2), tmp_path / "b", 2)
    step = job.suspend(lambda newest: newest >= 20)
    assert steps_in(tmp_path / "b" / "checkpoints") == []
    job.send(signal.SIGKILL, [1])
    job.send(signal.SIGCONT, [0])
    # Again in the second attempt, after the first attempt's ranks have ended.
    all_gone(job.pids.values())
    again = Job(job.process, tmp_path / "b", 2)
    assert again.memory == job.memory
    later = again.suspend(lambda newest: newest >= 60)
    again.send(signal.SIGKILL, [0])
    again.send(signal.SIGCONT, [1])
    err = again.finish()
    first, second = went_on_from(err)
    assert is_newest(first, step, 2) and is_newest(second, later, 2), err
    assert losses(tmp_path / "b") == losses(tmp_path / "a")


def test_lost_host_resumes_from_neighbour_memory(rondo, words, tmp_path):
    command = [*RUN[:2], 4, *RUN[3:], *bash(ON_HOSTS), rondo.program, *words]
    undisturbed = rondo(*command, "--run-dir", "a", "--strategy", "zero3", timeout=600)
    assert undisturbed.returncode == 0, undisturbed.stderr
    job = Job(rondo.start(*command, "--run-dir", "b", "--strategy", "zero3", "--memory-checkpoint-every", 3), tmp_path / "b", 4)
    step = job.suspend(lambda newest: newest >= 15)
    assert len(job.checkpoints()) == 2
    shutil.rmtree(job.checkpoints()[1].parent)
    job.send(signal.SIGKILL, [2, 3])
    job.send(signal.SIGCONT, [0, 1])
    err = job.finish()
    found, = went_on_from(err)
    assert is_newest(found, step, 3), err
    assert losses(tmp_path / "b") == losses(tmp_path / "a")


def test_another_host_replaces_a_lost_one(rondo, words, tmp_path):
    """The launcher of host 1 and all its descendants die, and their memory is lost; a new host joins the others' next
    attempt."""
    with reserved_ports(1) as (port,):
        def host(number, run_dir, *flags):
            return rondo.start("run", "--nnodes", 2, "--node-rank", number, "--master-addr", "127.0.0.1", "--master-port", port, "-n", 1,
                               "--max-restarts", 1, *flags, "--", rondo.program, *words,
                               "--run-dir", run_dir, "--memory-checkpoint-every", 3,
                               env={"RONDO_HOST": f"host{number}"})

        for process in [host(0, "a"), host(1, "a")]:
            out, err = process.communicate(timeout=600)
            assert process.returncode == 0, out + err
        first, second = host(0, "b"), host(1, "b")
        job, lost = Job(first, tmp_path / "b", 1), Job(second, tmp_path / "b", 1)
        step = job.suspend(lambda newest: newest >= 15)
        guardian, = map(int, pathlib.Path(f"/proc/{second.pid}/task/{second.pid}/children").read_text().split())
        for pid in (second.pid, guardian):
            os.kill(pid, signal.SIGKILL)
        second.wait()
        all_gone([guardian, *lost.pids.values()])
        job.send(signal.SIGCONT)
        other = host(1, "b", "--restart-count", 1)
        err = job.finish()
        assert other.wait(timeout=120) == 0 and not lost.memory.exists()
    found, = went_on_from(err)
    assert is_newest(found, step, 3), err
    assert losses(tmp_path / "b") == losses(tmp_path / "a")


def test_damaged_memory_falls_back_to_disk(rondo, words, tmp_path):
    assert rondo(*RUN, rondo.program, *words, "--run-dir", "a", timeout=600).returncode == 0
    job = Job(rondo.start(*RUN, rondo.program, *words, "--run-dir", "b", "--memory-checkpoint-every", 1, "--checkpoint-every", 10),
              tmp_path / "b", 2)

    def on_disk():
        return max(steps_in(tmp_path / "b" / "checkpoints"), default=0)

    step = job.suspend(lambda newest: newest > on_disk() > 0)
    saved = on_disk()
    folder, = job.checkpoints()
    for path in folder.glob("step-*/optimizer-00002-of-00002.safetensors"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    job.send(signal.SIGKILL, [0])  # it would complete the next memory checkpoint
    job.send(signal.SIGCONT, [1])
    err = job.finish()
    assert went_on_from(err) == [], err
    assert f"step {step}" in err and "optimizer-00002-of-00002.safetensors" in err, err
    assert saved > 0 and losses(tmp_path / "b") == losses(tmp_path / "a")


@pytest.mark.alone  # the next start of any launcher on the machine removes it
def test_next_start_removes_leftover_memory_checkpoints(rondo):
    process = rondo.start("run", "--max-restarts", 1, *bash("echo $RONDO_JOB_MEMORY; exec sleep 100"))
    memory = pathlib.Path(process.stdout.readline().split()[-1])
    assert memory.is_dir() and memory.stat().st_mode & 0o77 == 0
    kill_launcher(process)
    assert memory.exists()
    assert rondo("run", "--max-restarts", 1, "true").returncode == 0
    assert not memory.exists()
    # Without restarts no memory is needed.
    assert rondo("run", *bash("echo [$RONDO_JOB_MEMORY]")).stdout.strip().endswith("[]")


@pytest.mark.parametrize("flags, parts", [
    (["--run-dir", "r", "--memory-checkpoint-every", 5], ["--memory-checkpoint-every 5", "--max-restarts"]),
    (["--run-dir", "r", "--memory-checkpoint-every", 5, "--max-restarts", 1, "--ema-decay", 0.9], ["--memory-checkpoint-every 5", "--ema-decay"]),
    (["--memory-checkpoint-every", -1], ["--memory-checkpoint-every"]),
])
def test_refuses_memory_checkpoints_where_impossible(rondo, words, flags, parts):
    result = rondo(*words, *flags)
    assert result.returncode == 2, result.stdout + result.stderr
    assert all(part in result.stderr for part in parts), result.stderr
