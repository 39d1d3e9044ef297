"""The rules that a case must satisfy; each function returns the violations."""
import json
import re
import signal
import subprocess
import time

from case import STEPS
from job import TIMEOUT_S, Job
from processes import kill_all, marked, send, wait_until

MORE_S = 15  # in addition to the deadline
WHOLE_TRAINING_S = 150
PREEMPTED = 3


def limit(case):
    """Returns the seconds after the fault within which everything must end."""
    return TIMEOUT_S + MORE_S if case.fault.outcome != "goes on" else WHOLE_TRAINING_S


def names_it(case, hit, text):
    """Returns true if the output names the lost part."""
    if case.fault.victim == "disk":
        return f"the checkpoint of step {STEPS} could not be written" in text and "No space left on device" in text
    if "RANK" in hit.environment:
        ranks = [hit.environment["RANK"]]
    else:  # each side of a cut loses the other one
        ranks = range(case.ranks) if case.fault.victim == "link" else case.ranks_of_host()
    named = [rf"(?:\branks?|missing:) (?:\d+(?:, | and ))*{rank}\b" for rank in ranks]
    if case.strategy.has_servers and "TF_CONFIG" in hit.environment:
        task = json.loads(hit.environment["TF_CONFIG"])["task"]
        named.append(rf"\b{task['type']} {task['index']}\b")
    return any(re.search(each, text) for each in named)


def of_the_end(job, hit, at):
    """Checks the ends of the processes, which have time until `at` + the limit."""
    case = job.case
    stopped = hit.launchers if hit and case.fault.name == "stop host" else ()
    waiting = [process for number, process in enumerate(job.launchers) if number not in stopped]
    wait_until(lambda: all(process.poll() is not None for process in waiting), at + limit(case) - time.monotonic())
    late = [number for number, process in enumerate(job.launchers) if process in waiting and process.poll() is None]
    if late:
        return [f"launchers {late} have not ended {limit(case)} s after the fault"]
    codes = [process.returncode for process in waiting]
    if hit is None:
        return [] if set(codes) == {0} else [f"exit codes {codes} without a fault"]
    is_over = job.last_step() == STEPS
    if case.fault.outcome == "goes on":
        return [] if set(codes) == {0} else [f"exit codes {codes}: the training is to go on"]
    if case.fault.outcome == "saves":
        return after_a_signal(job, hit, codes, is_over)
    return after_a_loss(job, hit, is_over)


def after_a_signal(job, hit, codes, is_over):
    stepped = job.last_step() > 0
    if not stepped and job.hosts and PREEMPTED in codes:
        # Ranks of other hosts lose a rank that has nothing to save.
        is_named = names_it(job.case, hit, job.output_since_the_fault())
        return [] if set(codes) == {PREEMPTED} or is_named else ["ranks that ended before the first step are not named"]
    if not set(codes) <= {0, PREEMPTED}:
        return [f"exit codes {codes} after a signal, expected {PREEMPTED}, or 0 at the end of the training"]
    if 0 in codes and not is_over:
        return [f"exit codes {codes}, but the training ended at step {job.last_step()}"]
    newest = max(job.checkpoints(), default=0)
    if PREEMPTED in codes and not job.case.strategy.has_servers and newest != job.last_step():
        return [f"stopped after step {job.last_step()}, but the newest checkpoint is of step {newest}"]
    return []


def after_a_loss(job, hit, is_over):
    witnesses = [process.returncode for number, process in enumerate(job.launchers) if number not in hit.launchers]
    if 0 in witnesses:
        goes_on_without = job.case.strategy.has_servers and job.case.fault.victim == "rank"
        return [] if is_over or goes_on_without else [f"exit codes {witnesses}, but the training ended at step {job.last_step()}"]
    if witnesses and not names_it(job.case, hit, job.output_since_the_fault()):
        return ["what was lost is not named"]
    return []


def of_leftovers(job, hit, at):
    """Checks for processes and files that outlive the training."""
    case = job.case
    is_off = hit is not None and case.fault.name in ("stop host", "kill host")
    if is_off:  # a stopped host is switched off at the end
        for pid in job.hosts[case.host].processes():
            send(pid, signal.SIGKILL)
    # A host that lost its launcher has the same time limit as the others.
    wait_until(lambda: not marked(job.mark), max(5.0, at + limit(case) - time.monotonic()))
    left = kill_all(job.mark)
    found = [f"left processes: {[(pid, environment.get('RANK')) for pid, environment in left.items()]}"] if left else []
    files = [str(entry.relative_to(job.folder)) for number, scratch in enumerate(job.scratch) if not (is_off and number == case.host)
             for entry in scratch.iterdir()]
    return found + ([f"left files in TMPDIR: {sorted(files)[:5]}"] if files else [])


def of_the_checkpoint(binaries, job):
    """Checks that the newest checkpoint, if any, is intact."""
    if not job.checkpoints():
        return []
    result = subprocess.run([str(binaries / "rondo"), "checkpoint", "verify", str(job.run_dir)], capture_output=True, text=True, timeout=120)
    return [] if result.returncode == 0 else [f"checkpoint verify: {result.stderr.strip()[-300:]}"]


def of_the_resume(hosts, binaries, job, expected):
    """Checks that `--resume` continues from the newest checkpoint and succeeds, with the losses of `expected` (step ->
    loss; None: any)."""
    case, newest = job.case, max(job.checkpoints(), default=0)
    again = Job(case, hosts, binaries, job.folder, job.run_dir, f"{job.mark}-resumed", resume=True)
    try:
        if not wait_until(again.has_ended, WHOLE_TRAINING_S):
            return [f"the resumed training has not ended after {WHOLE_TRAINING_S} s: {again.output().strip()[-600:]}"]
        codes = [process.returncode for process in again.launchers]
        if set(codes) != {0}:
            return [f"resume ended with {codes}: {again.output().strip()[-1000:]}"]
        if newest and "no checkpoint yet" in again.output():
            return [f"the resumed training began anew, though there was a checkpoint of step {newest}"]
        if expected is None:
            return []
        losses = {row["step"]: row["loss"] for row in again.rows()}
        if case.fault.victim == "disk":  # rows of a full disk are skipped
            expected = {step: loss for step, loss in expected.items() if step > newest or step in losses}
        wrong = [step for step in sorted(expected) if losses.get(step) != expected[step]]
        return [f"losses differ from an uninterrupted run from step {wrong[0]} on: {losses.get(wrong[0])}, {expected[wrong[0]]} "
                f"(resumed from step {newest})"] if wrong else []
    finally:
        again.end()
