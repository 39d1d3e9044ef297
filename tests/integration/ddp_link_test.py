"""Two hosts over a shaped link (network namespaces, veth, tc tbf): communication hides behind the backward pass."""
import contextlib
import json
import select
import statistics
import subprocess

import pytest
from hosts import linked_hosts

RATE_MBIT = 100


@pytest.fixture
def two_hosts():
    """Names of two network namespaces, 10.77.0.1 and 10.77.0.2, joined by a link of RATE_MBIT in each direction."""
    with linked_hosts(f"{RATE_MBIT}mbit") as hosts:
        yield [(host.name, host.interface) for host in hosts]


class Worker:
    """One process that speaks the protocol of rondo bench step's workers."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def receive(self, seconds=120):
        readable, _, _ = select.select([self.process.stdout], [], [], seconds)
        assert readable, "no answer"
        line = self.process.stdout.readline()
        assert line, "the worker ended"
        return json.loads(line)


def run(workers, steps):
    for worker in workers:
        worker.send(f"run {steps}")
    return [worker.receive() for worker in workers]


def test_all_but_the_last_bucket_leave_during_backward(two_hosts, rondo_bin, clean_environment, tmp_path):
    program = str(rondo_bin / "rondo-bench")
    config = {"context": 64, "dropout": 0.0, "heads": 4, "layers": 4, "tied_head": False, "vocabulary": 256, "width": 128}
    weights = tmp_path / "weights.safetensors"
    made = subprocess.run([program, "step", "--model", "gpt-tiny", "--ranks", "1", "--rounds", "1", "--steps", "1",
                           "--keep-weights", str(weights), "--json", "-"],
                          env=clean_environment, capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stderr
    common = [program, "step-worker", "--model", "gpt-tiny", "--config", json.dumps(config), "--weights", str(weights),
              "--dtype", "float32", "--batch-size", "48", "--learning-rate", "0.001", "--optimizer", "adamw", "--backend",
              "gloo", "--bucket-bytes", "256KiB", "--world-size", "2", "--rendezvous", "tcp://10.77.0.1:29577"]
    with contextlib.ExitStack() as stack:
        def start(rank, strategy):
            host, link = two_hosts[rank]
            environment = clean_environment | {"GLOO_SOCKET_IFNAME": link, "OMP_NUM_THREADS": "1"}
            worker = Worker(["ip", "netns", "exec", host, *common, "--rank", str(rank), "--strategy", strategy], environment)
            stack.callback(worker.process.wait)
            stack.callback(worker.process.kill)
            return worker

        alone = [start(rank, "one_device") for rank in range(2)]
        together = [start(rank, "ddp") for rank in range(2)]
        for worker in alone + together:
            assert worker.receive() == {"ready": True}
        run(alone, 1), run(together, 2)
        compute, step, communication = [], [], []
        for _ in range(4):
            compute += [ms for answer in run(alone, 1) for ms in answer["step_ms"]]
            # The second of two steps ends what the first has left to it.
            for answer in run(together, 2):
                step += answer["step_ms"][1:]
                blocks = answer["communication"]
                assert len(blocks) > 4
                # What the link needs for these bytes, were it used all the time: of each block half goes either way.
                communication.append(sum(block["bytes"] for block in blocks) / 2 * 8 / (RATE_MBIT * 1e3))
    assert statistics.median(step) < statistics.median(compute) + statistics.median(communication)
