"""The rules that a case must keep."""
import re
import subprocess
import time

from job import MARK, TIMEOUT_S, Job, marked, wait_until

MORE_S = 15  # besides the deadline
SIGNALS = ("TERM", "INT", "HUP")
GOES_ON = ("disk",)


def names_it(case, text):
    """Whether the output names what was lost."""
    if case.strategy.has_servers:
        return re.search(r"\b(?:rank|worker|server|ps) \d", text) is not None
    ranks = [case.victim]
    if case.hosts > 1 and case.fault in ("kill launcher", "cut link", "stop host"):
        per_host, host = case.ranks // case.hosts, case.victim % case.hosts
        # Both sides of a cut miss the other one.
        ranks = range(case.ranks) if case.fault == "cut link" else range(host * per_host, (host + 1) * per_host)
    return any(re.search(rf"\branks? (?:\d+(?:, | and ))*{rank}\b", text) for rank in ranks)


def of_the_end(case, job, hit, at):
    """How the processes ended, which they have until `at` + the deadline and MORE_S."""
    found = []
    patience = 150 if case.fault in GOES_ON else TIMEOUT_S + MORE_S
    waiting = job.hosts_that_must_end()
    wait_until(lambda: all(process.poll() is not None for process in waiting), max(0.0, at + patience - time.monotonic()))
    late = [process.pid for process in waiting if process.poll() is None]
    if late:
        return [f"{len(late)} of {len(waiting)} launchers have not ended {patience} s after the fault"]
    codes = [process.returncode for process in waiting]
    text = job.output()
    if hit is None:
        return [] if set(codes) == {0} else [f"exit codes {codes} without a fault"]
    if case.fault in SIGNALS:
        if not set(codes) <= {0, 3}:
            found.append(f"exit codes {codes} after SIG{case.fault}, expected 3 (or 0 at the end of the training)")
    elif case.fault in GOES_ON:
        if set(codes) != {0}:
            found.append(f"exit codes {codes}: the training is to go on")
    elif case.fault == "kill launcher" and case.hosts == 1:
        pass  # who would say it
    elif 0 not in codes and not names_it(case, text):
        found.append("what was lost is not named")
    elif 0 in codes and not case.strategy.has_servers and job.last_step() == 0:
        found.append(f"exit codes {codes} after {case.fault}")
    return found


def of_leftovers(case, job):
    """Processes and files that outlive the training."""
    if case.fault == "stop host":
        job.clean_up()  # the stopped host is switched off
        return []
    wait_until(lambda: not marked(job.mark), TIMEOUT_S + MORE_S)
    left = job.clean_up()
    found = [f"left processes: {[(pid, env.get('RANK')) for pid, env in left.items()]}"] if left else []
    files = sorted(entry.name for entry in (job.folder / "tmp").iterdir())
    return found + ([f"left files in TMPDIR: {files[:5]}"] if files else [])


def of_the_checkpoint(binaries, job):
    """Whether the newest checkpoint is intact; without one there is nothing to ask."""
    folder = job.run_dir / "checkpoints"
    if not folder.exists() or not any(entry.name.startswith("step-") for entry in folder.iterdir()):
        return []
    result = subprocess.run([str(binaries / "rondo"), "checkpoint", "verify", str(job.run_dir)], capture_output=True, text=True, timeout=120)
    return [] if result.returncode == 0 else [f"checkpoint verify: {result.stderr.strip()[-300:]}"]


def of_the_resume(case, hosts, binaries, job, expected):
    """`--resume` ends well, with the losses of `expected` (step -> loss; None where they may differ)."""
    again = Job(case, hosts, binaries, job.folder, job.run_dir, f"{job.mark}-resumed", resume=True)
    try:
        if not wait_until(again.has_ended, 150):
            return ["the resumed training has not ended after 150 s"]
        codes = [process.returncode for process in again.launchers]
        if set(codes) != {0}:
            return [f"resume ended with {codes}: {again.output().strip()[-600:]}"]
        if expected is None:
            return []
        losses = {row["step"]: row["loss"] for row in again.rows()}
        wrong = [step for step in sorted(expected) if losses.get(step) != expected[step]]
        return [f"losses differ from an uninterrupted run from step {wrong[0]} on: {losses.get(wrong[0])}, {expected[wrong[0]]}"] if wrong else []
    finally:
        again.clean_up()


__all__ = ["MARK", "of_leftovers", "of_the_checkpoint", "of_the_end", "of_the_resume"]
