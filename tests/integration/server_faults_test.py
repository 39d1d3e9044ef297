"""Repeated kill -9 of workers and servers. A few times by default; with RONDO_FAULTS=all (`make faults`) a worker 100
times and a server 20 times, which takes some minutes."""
import json
import os
import signal
import statistics
import time

import pytest
from launching import alive, wait_until
from parameter_server_test import SERVED, losses, result_of, table, tasks  # noqa: F401

ALL = os.environ.get("RONDO_FAULTS") == "all"
WORKER_KILLS = 100 if ALL else 2
SERVER_KILLS = 20 if ALL else 4


def last_step(run, worker):
    """Returns the last step in the worker's metrics; 0 before the first row."""
    path = run / ("metrics.jsonl" if worker == 0 else f"metrics.worker-{worker}.jsonl")
    if not path.exists():
        return 0
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = [line for line in file.read().split(b"\n")[:-1] if b'"step"' in line]
    return json.loads(lines[-1])["step"] if lines and lines[-1].startswith(b"{") else 0


def losses_so_far(run):
    """Returns the losses of complete lines: the last line may still be written."""
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().split("\n")[:-1] if '"loss"' in line]


def rate(run, seconds=1.0):
    """Returns the steps per second of both workers together."""
    begin, clock = [last_step(run, worker) for worker in (0, 1)], time.monotonic()
    wait_until(lambda: time.monotonic() > clock + seconds, "the time is over")
    return sum(last_step(run, worker) - begin[worker] for worker in (0, 1)) / (time.monotonic() - clock)


def test_a_worker_that_is_killed_again_and_again(rondo, table, tmp_path):  # noqa: F811
    run = tmp_path / "run"
    flags = ["--data", table, "--validation-fraction", 0.1, "--run-dir", run, "--json", tmp_path / "result.json", *SERVED,
             "--model-config", '{"hidden": [256, 256]}', "--batch-size", 256, "--steps", 10_000_000, "--eval-every", 10_000_000,
             "--checkpoint-every", 10_000_000]
    process = rondo.start("run", "--ps", 1, "--workers", 2, "--on-failure", f"worker=restart:{WORKER_KILLS}", "--", rondo.program, "train",
                          *flags)
    wait_until(lambda: last_step(run, 0) > 20 and last_step(run, 1) > 20, "both workers train")
    before, returns = rate(run), []
    for _ in range(WORKER_KILLS):
        worker = wait_until(lambda: tasks(process.pid).get(("worker", 1)), "there is a worker")
        os.kill(worker, signal.SIGKILL)
        killed, at_kill = time.monotonic(), last_step(run, 0)
        wait_until(lambda: not alive(worker) and last_step(run, 0) > at_kill + 5, "the chief goes on")
        size = (run / "metrics.worker-1.jsonl").stat().st_size
        wait_until(lambda: (run / "metrics.worker-1.jsonl").stat().st_size > size, "the worker trains again")
        returns.append(time.monotonic() - killed)
    after, steps = rate(run), [last_step(run, worker) for worker in (0, 1)]
    wait_until(lambda: all(last_step(run, worker) > steps[worker] + 20 for worker in (0, 1)), "both workers go on")
    wait_until(lambda: sum(losses_so_far(run)[-20:]) / 20 < 0.2, "the model has learnt")
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=120)
    assert (tmp_path / "result.json").exists(), errors
    worker = result_of(tmp_path)["servers"]["workers"][1]
    print(f"{WORKER_KILLS} kills of a worker: it trains again after {statistics.median(returns):.2f} s (longest {max(returns):.2f} s), "
          f"{before:.0f} steps/s before and {after:.0f} after; lost steps {worker['lost_steps']}")
    assert worker["returns"] == WORKER_KILLS
    assert losses(run)[0] > 0.2


def test_repeatedly_killed_server_loses_nothing(rondo, table, tmp_path):  # noqa: F811
    """With one worker every loss depends on every earlier update: a lost or repeated update would change it. (The
    reference has servers, too: a process without servers rounds differently, and thousands of steps later a ReLU near
    zero differs.)"""
    flags = ["--data", table, "--validation-fraction", 0.1, *SERVED, "--momentum", 0.9, "--lr", 0.01, "--matmul", "libtorch"]
    run, intact = tmp_path / "run", tmp_path / "intact"
    command = ["run", "--ps", 1, "--workers", 1, "--on-failure", f"ps=restart:{SERVER_KILLS}", "--", rondo.program, "train", *flags,
               "--json", tmp_path / "result.json"]
    # It continues until it is told to end, so that no kill is too late.
    process = rondo.start(*command, "--steps", 10_000_000, "--run-dir", run)
    for kill in range(SERVER_KILLS):
        wait_until(lambda: last_step(run, 0) > 100 * kill + 50, "steps are done")
        server = wait_until(lambda: tasks(process.pid).get(("ps", 0)), "there is a server")
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: not alive(server), "it is gone")
    wait_until(lambda: last_step(run, 0) > 200 * (SERVER_KILLS + 1), "steps are done after the last kill", 300)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 3, errors
    result, steps = result_of(tmp_path)["servers"], last_step(run, 0)
    print(f"{SERVER_KILLS} kills of a server in {steps} steps: {result['recovered_updates']} updates were half done and finished")
    assert [w["steps"] for w in result["workers"]] == [steps] and result["lost_steps"] == 0
    done = rondo(*command, "--steps", steps, "--run-dir", intact, timeout=300)
    assert done.returncode == 0, done.stderr
    assert losses(run) == losses(intact) and len(losses(run)) == steps


def test_ends_long_suspended_chief(rondo, table, tmp_path):  # noqa: F811
    """The end of a worker that gives up the server would not end the job."""
    run = tmp_path / "run"
    process = rondo.start("train", "--data", table, "--run-dir", run, *SERVED, "--ps", 1, "--workers", 2, "--timeout", "1s",
                          "--steps", 10_000_000)
    wait_until(lambda: last_step(run, 0) > 20, "the chief trains")
    chief = wait_until(lambda: tasks(process.pid).get(("worker", 0)), "there is a chief")
    os.kill(chief, signal.SIGSTOP)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGKILL, errors
    assert "worker 0 (rank 0)" in errors and "was suspended (SIGSTOP) for" in errors, errors
