"""A Slurm cluster for tests: every host is a set of namespaces on this machine, with its own network, names, processes
and memory.

Nothing is registered outside the test's own folder, and killing a host's first process ends all its processes."""
import contextlib
import os
import pathlib
import secrets
import shutil
import subprocess
import sys

import pytest
from launching import wait_until

CONTROLLER = "ctl"
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "munged")

# The first process of a host: creates the host's resources, and reaps orphans.
FIRST_PROCESS = """
import os, pathlib, signal, socket, subprocess, sys
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
socket.sethostname(name)
for place in ("/dev/shm", "/run"):
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
pathlib.Path("/run/sshd").mkdir()
subprocess.run(["mount", "--bind", folder / "hosts", "/etc/hosts"], check=True)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
(folder / f"up-{name}").touch()
while True:
    signal.sigwait([signal.SIGCHLD])
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""

CONFIGURATION = """
ClusterName=tests
SlurmctldHost=ctl(10.77.0.254)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=100000,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
MailProg=/bin/true
KillWait=30
NodeName=n[1-{hosts}] NodeAddr=10.77.0.[1-{hosts}] CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""


def why_no_slurm():
    """Returns the reason why this machine cannot run Slurm in namespaces; None if it can."""
    if os.geteuid() != 0:
        return "hosts in namespaces need root"
    missing = [name for name in (*PROGRAMS, "unshare", "nsenter", "ip") if shutil.which(name, path=search_path()) is None]
    if missing:
        return f"Slurm is not installed (make setup-peers): {', '.join(missing)} missing"
    probe = subprocess.run(["unshare", "--net", "--uts", "--mount", "--ipc", "--pid", "--fork", "--mount-proc", "ip", "link", "add",
                            "probe", "type", "bridge"], capture_output=True, text=True)
    return f"this kernel or container does not allow namespaces: {probe.stderr.strip()}" if probe.returncode else None


def search_path():
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class Cluster:
    """Hosts n1, n2, ... and the controller, which accepts jobs."""

    def __init__(self, folder, hosts):
        self.folder, self.hosts = folder, [f"n{number + 1}" for number in range(hosts)]
        self.first_processes = {}
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
        self.environment |= {"PATH": search_path(), "SLURM_CONF": str(folder / "slurm.conf"), "MUNGE_SOCKET": str(folder / "munge.socket")}

    def enter(self, host, *command):
        """Returns the command line that runs `command` on `host`."""
        return ["nsenter", "-t", str(self.first_processes[host]), "--net", "--uts", "--mount", "--ipc", "--pid", f"--wdns={os.getcwd()}",
                *map(str, command)]

    def on(self, host, *command, **options):
        """Runs `command` on `host` to its end."""
        options = {"capture_output": True, "text": True, "timeout": 120, "env": self.environment} | options
        return subprocess.run(self.enter(host, *command), **options)

    def submit(self, *command, **options):
        """Runs `command` on the controller, and returns its output; it must succeed."""
        done = self.on(CONTROLLER, *command, **options)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def state(self, job):
        """Returns the job's state, such as RUNNING or COMPLETED."""
        shown = self.submit("scontrol", "show", "job", job)
        return shown.split("JobState=")[1].split()[0]

    def exit_code(self, job):
        """Returns EXIT:SIGNAL of the batch script."""
        return self.submit("scontrol", "show", "job", job).split("ExitCode=")[1].split()[0]

    def wait_for(self, job, *states):
        return wait_until(lambda: self.state(job) in states and self.state(job), f"job {job} is {' or '.join(states)}")

    def start(self):
        for name, text in {"slurm.conf": CONFIGURATION.format(folder=self.folder, hosts=len(self.hosts)),
                           "hosts": "".join(f"{address} {name}\n" for name, address in self.addresses().items())}.items():
            (self.folder / name).write_text(text)
        (self.folder / "munge.key").write_bytes(secrets.token_bytes(1024))
        (self.folder / "munge.key").chmod(0o600)
        for name in ("state", *(f"spool-{host}" for host in self.hosts)):
            (self.folder / name).mkdir()
        self.folder.chmod(0o755)
        self.start_host(CONTROLLER)
        self.must(CONTROLLER, "ip", "link", "add", "bridge", "type", "bridge")
        self.must(CONTROLLER, "ip", "addr", "add", "10.77.0.254/24", "dev", "bridge")
        self.must(CONTROLLER, "ip", "link", "set", "bridge", "up")
        for host in self.hosts:
            self.start_host(host)
            self.connect(host)
        self.must(CONTROLLER, "munged", f"--key-file={self.folder}/munge.key", f"--socket={self.folder}/munge.socket",
                  f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed",
                  "--force")
        self.must(CONTROLLER, "slurmctld", "-c")
        for host in self.hosts:
            self.must(host, "slurmd", "-N", host)
        wait_until(lambda: self.on(CONTROLLER, "sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%D").stdout.strip() == str(len(self.hosts)),
                   "all hosts are idle")

    def addresses(self):
        return {"localhost": "127.0.0.1", CONTROLLER: "10.77.0.254"} | {host: f"10.77.0.{host[1:]}" for host in self.hosts}

    def must(self, host, *command):
        # A daemon would keep a pipe open.
        with open(self.folder / "bring-up.log", "a", encoding="utf-8") as log:
            subprocess.run(self.enter(host, *command), env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)

    def start_host(self, host):
        process = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc",
                                    sys.executable, "-c", FIRST_PROCESS, self.folder, host], env=self.environment,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        self.first_processes[host] = None
        self.outer = getattr(self, "outer", []) + [process]
        wait_until(lambda: (self.folder / f"up-{host}").exists() or process.poll() is not None, f"{host} is up")
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        self.first_processes[host] = int(children[0])

    def connect(self, host):
        link = f"v{host}"
        self.must(CONTROLLER, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0")
        # The controller's namespace does not show this machine's processes, whose ids name the other end's namespace.
        subprocess.run(["nsenter", "-t", str(self.first_processes[CONTROLLER]), "--net", "ip", "link", "set", "eth0", "netns",
                        str(self.first_processes[host])], check=True)
        self.must(CONTROLLER, "ip", "link", "set", link, "master", "bridge", "up")
        self.must(host, "ip", "addr", "add", f"{self.addresses()[host]}/24", "dev", "eth0")
        self.must(host, "ip", "link", "set", "eth0", "up")

    def stop(self):
        for process in getattr(self, "outer", []):
            process.kill()  # this also ends the host's first process
            process.wait()


@contextlib.contextmanager
def slurm_cluster(folder, hosts=2):
    """Yields a cluster that is ready for jobs; skips with the reason if that is impossible."""
    reason = why_no_slurm()
    if reason:
        print(reason)
        pytest.skip(reason)
    cluster = Cluster(folder, hosts)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
