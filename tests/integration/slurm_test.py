"""rondo under a real Slurm, mpirun and sshd, on hosts that are namespaces of this machine (slurm.py)."""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess

import pytest
from launching import wait_until
from slurm import CONTROLLER, slurm_cluster
from stop_signals_test import below
from train_test import rows, text  # noqa: F401

SMALL = ["--model", "gpt-tiny", "--layers", 1, "--width", 32, "--heads", 4, "--seq-len", 16, "--batch-size", 4, "--log-every", 1,
         "--trace-steps", 0, "--validation-fraction", 0, "--progress", "off", "--checkpoint-every", 10_000_000]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as two_hosts:
        yield two_hosts


class Jobs:
    """Batch jobs in the test's folder, with the test's environment."""

    def __init__(self, cluster, environment, folder, program):
        self.cluster, self.folder, self.program = cluster, folder, program
        self.environment = environment | {"PATH": cluster.environment["PATH"], "SLURM_CONF": cluster.environment["SLURM_CONF"],
                                          "MUNGE_SOCKET": cluster.environment["MUNGE_SOCKET"], "OMP_NUM_THREADS": "1"}
        self.count = 0

    def command(self, *words):
        return " ".join(shlex.quote(str(word)) for word in words)

    def submit(self, script, *flags):
        """Submits a job that runs `script` and returns its number; its output goes to output()."""
        self.count += 1
        path = self.folder / f"job-{self.count}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        return self.cluster.submit("sbatch", "--parsable", "-D", self.folder, "-o", self.folder / "out-%j", *flags, path,
                                   env=self.environment)

    def output(self, job):
        return (self.folder / f"out-{job}").read_text()

    def run(self, script, *flags):
        """Returns the output of a job that must succeed."""
        job = self.submit(script, *flags)
        self.cluster.wait_for(job, "COMPLETED", "FAILED")
        assert self.cluster.state(job) == "COMPLETED", self.output(job)
        return self.output(job)

    def end(self, job):
        """Ends a running job."""
        self.cluster.on(CONTROLLER, "scancel", job)
        self.cluster.wait_for(job, "CANCELLED", "COMPLETED", "FAILED")


@pytest.fixture
def jobs(cluster, clean_environment, tmp_path, rondo_bin):
    return Jobs(cluster, clean_environment, tmp_path, rondo_bin / "rondo")


def steps_of(run):
    """Returns the steps of rank 0 so far."""
    if not (run / "metrics.jsonl").exists():
        return []
    lines = (run / "metrics.jsonl").read_text().split("\n")[:-1]  # the last row may be incomplete
    return [row["step"] for row in map(json.loads, lines) if row["rank"] == 0 and "loss" in row]


def newest(run):
    names = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
    return int(names[-1].removeprefix("step-")) if names else 0


def train_words(jobs, text, run, *more):  # noqa: F811
    return jobs.command(jobs.program, "train", "--data", text, "--run-dir", run, *SMALL, *more)


def test_preempted_job_saves_and_resumes(cluster, jobs, tmp_path, text):  # noqa: F811
    """Slurm sends TERM twice within milliseconds, to every task. The requeued job has the same command line."""
    run = tmp_path / "run"
    job = jobs.submit(f"srun {train_words(jobs, text, run, '--steps', 1000000)}", "-N", 2, "-n", 2, "-p", "main", "--requeue")
    wait_until(lambda: len(steps_of(run)) > 3, "it trains")
    urgent = jobs.submit("true", "-N", 2, "-n", 8, "-p", "urgent")
    cluster.wait_for(urgent, "COMPLETED")
    saved = newest(run)
    assert re.search(rf"pre-empted after step {saved},", jobs.output(job)), jobs.output(job)
    assert steps_of(run)[-1] == saved
    cluster.wait_for(job, "PENDING")
    cluster.submit("scontrol", "update", f"jobid={job}", "StartTime=now")
    wait_until(lambda: steps_of(run)[-1] > saved + 3, "it goes on")
    jobs.end(job)
    steps = steps_of(run)
    assert steps == list(range(1, len(steps) + 1))
    assert newest(run) == len(steps), "a cancelled job saves too"


@pytest.mark.parametrize("launcher, flags", [("srun", ["-n", 2]), ("exec rondo run", ["-n", 1, "-c", 2])])
def test_usr1_saves(cluster, jobs, tmp_path, text, launcher, flags):  # noqa: F811
    """Sent before the time limit as by --signal=USR1@N and --signal=B:USR1@N: to the tasks, or to the batch script."""
    run = tmp_path / "run"
    starter = "srun" if launcher == "srun" else f"exec {jobs.program} run -n 2 --"
    job = jobs.submit(f"{starter} {train_words(jobs, text, run, '--steps', 1000000)}", "-N", 1, *flags)
    wait_until(lambda: len(steps_of(run)) > 3, "it trains")
    cluster.submit("scancel", "--signal=USR1", *([] if launcher == "srun" else ["--batch"]), job)
    cluster.wait_for(job, "FAILED")
    assert cluster.exit_code(job) == "3:0", jobs.output(job)
    assert re.search(rf"pre-empted after step {newest(run)},", jobs.output(job)) and newest(run) > 0


def test_a_batch_script_is_one_process(jobs, text):  # noqa: F811
    """Without srun: --nproc-per-node applies, and evaluation does not wait for other tasks."""
    command = jobs.command(jobs.program, "train", "--data", text, *SMALL, "--steps", 1)
    output = jobs.run(f"{command} --run-dir one --json one.json && {command} --run-dir two --nproc-per-node 2 --json two.json && "
                      f"{jobs.program} evaluate one --data {shlex.quote(str(text))} --json evaluated.json && {jobs.program} doctor --json doctor.json",
                      "-N", 1, "-n", 4)
    assert json.loads((jobs.folder / "one.json").read_text())["ranks"] == 1
    assert json.loads((jobs.folder / "two.json").read_text())["ranks"] == 2
    assert "SLURM_NTASKS" in output and "srun" in output
    assert '"world_size": 1' in (jobs.folder / "doctor.json").read_text()


WHO = "echo rank $RANK of $WORLD_SIZE on $(hostname), host $GROUP_RANK of $GROUP_WORLD_SIZE at $MASTER_ADDR"
FOUR = {f"rank {rank} of 4 on n{rank // 2 + 1}, host {rank // 2} of 2 at n1" for rank in range(4)}


def said(output):
    return {line.split("] ", 1)[1] for line in output.splitlines() if re.match(r"\[rank \d\] rank ", line)}


def test_one_launcher_a_host_finds_its_place(jobs, text):  # noqa: F811
    """srun starts `rondo run` on each host; the ranks are one job. Flags take precedence, and double training is
    rejected."""
    launcher = f"srun --ntasks-per-node=1 -n 2 {jobs.program} run"
    who = jobs.command("bash", "-c", WHO)
    output = jobs.run(f"{launcher} -n 2 -- {who}; {launcher} -n 2 -- {train_words(jobs, text, 'both', '--steps', 2, '--json', 'both.json')} && "
                      f"{launcher} --nnodes 1 -- {who} > apart", "-N", 2, "-n", 2, "-c", 2)
    assert said(output) == FOUR, output
    assert json.loads((jobs.folder / "both.json").read_text())["ranks"] == 4
    assert said((jobs.folder / "apart").read_text()) == {f"rank 0 of 1 on n{host}, host 0 of 1 at 127.0.0.1" for host in (1, 2)}
    refused = jobs.run(f"srun -n 4 {jobs.program} run -n 2 -- true; srun -n 2 {jobs.program} run --nnodes 3 -n 2 -- true; exit 0",
                       "-N", 2, "--ntasks-per-node=2")
    assert "SLURM_STEP_TASKS_PER_NODE=2" in refused and "--ntasks-per-node=1" in refused
    assert "--nnodes 3" in refused and "SLURM_STEP_NUM_TASKS=2" in refused


def test_steps_that_differ_from_their_job(jobs, text):  # noqa: F811
    """Fewer hosts, and hosts with different numbers of tasks: Slurm's lists and counts are consistent."""
    command = jobs.command(jobs.program, "train", "--data", text, *SMALL, "--steps", 1, "--global-batch-size", 12, "--backend", "gloo")
    jobs.run(f"srun -N 1 -n 2 -w n2 {command.replace('--batch-size 4', '')} --run-dir part --json part.json && "
             f"srun -n 3 {command.replace('--batch-size 4', '')} --run-dir uneven --json uneven.json", "-N", 2, "--ntasks-per-node=2")
    assert json.loads((jobs.folder / "part.json").read_text())["ranks"] == 2
    assert json.loads((jobs.folder / "uneven.json").read_text())["ranks"] == 3


def test_mpirun_rendezvous_on_first_host(jobs, text):  # noqa: F811
    """Its ranks see the variables of Open MPI's daemon on their host, whose list of hosts lacks that of rank 0."""
    if shutil.which("mpirun") is None:
        pytest.skip("Open MPI is not installed (make setup-peers)")
    mpirun = "NO_COLOR=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -N 1"
    output = jobs.run(f"{mpirun} {train_words(jobs, text, 'mpi', '--steps', 1, '--json', 'mpi.json')} && "
                      f"{mpirun} {jobs.program} run -n 2 -- {jobs.command('bash', '-c', WHO)}", "-N", 2, "-n", 4)
    assert json.loads((jobs.folder / "mpi.json").read_text())["ranks"] == 2
    assert said(output) == FOUR, output


def test_names_unresolvable_host_list(rondo, text):  # noqa: F811
    task = {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "nobody-knows[1-2]"}
    result = rondo("train", "--data", text, *SMALL, "--steps", 1, env=task)
    assert result.returncode == 2, result.stderr
    for part in ("nobody-knows1", "SLURM_JOB_NODELIST", "MASTER_ADDR"):
        assert part in result.stderr, result.stderr


# sshd


@pytest.fixture(scope="module")
def ssh(cluster, tmp_path_factory):
    """Returns the beginning of a command line that logs in on n1 with a terminal."""
    folder = tmp_path_factory.mktemp("ssh")
    daemon = shutil.which("sshd", path=cluster.environment["PATH"])
    if daemon is None:
        pytest.skip("sshd is not installed (make setup-peers)")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    (folder / "sshd_config").write_text(f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
                                        "PasswordAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\n")
    (folder / "known").write_text("n1 " + " ".join((folder / "host.pub").read_text().split()[:2]) + "\n")
    cluster.must("n1", daemon, "-f", folder / "sshd_config")
    return ["ssh", "-F", "none", "-tt", "-i", folder / "user", "-o", f"UserKnownHostsFile={folder}/known", "-o", "BatchMode=yes", "n1"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_lost_login_saves(cluster, ssh, jobs, tmp_path, text, ranks):  # noqa: F811
    """The ssh client is killed: its terminal hangs up, and the programs on it receive HUP."""
    run = tmp_path / "run"
    variables = " ".join(f"{name}={shlex.quote(jobs.environment[name])}" for name in ("TMPDIR", "RONDO_MATMUL_MEASUREMENTS"))
    command = f"cd {tmp_path}; {variables} {train_words(jobs, text, run, '--steps', 1000000, '--nproc-per-node', ranks)}"
    client = subprocess.Popen(list(map(str, cluster.enter(CONTROLLER, *ssh, command))), env=jobs.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: len(steps_of(run)) > 3 or client.poll() is not None, "it trains")
        assert client.poll() is None, client.stderr.read()
    finally:
        for process in below(client.pid):  # children of nsenter, which waits for them
            os.kill(process, signal.SIGKILL)
        client.wait(timeout=120)
    wait_until(lambda: newest(run) > 0 and newest(run) == steps_of(run)[-1], "it has saved")
    wait_until(lambda: cluster.on("n1", "pgrep", "-f", "rondo-train").returncode == 1, "it has ended")
