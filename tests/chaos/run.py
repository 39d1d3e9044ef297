#!/usr/bin/env python3
"""Random faults in real trainings; see README.md."""
import argparse
import contextlib
import os
import pathlib
import secrets
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import verdict  # noqa: E402
from case import STEPS, draw  # noqa: E402
from hosts import emulated  # noqa: E402
from job import Job, small_disk, wait_until  # noqa: E402

TEXT = "the quick brown fox jumps over the lazy dog. " * 200


class References:
    """Losses of uninterrupted trainings, one for each strategy, number of hosts and of ranks."""

    def __init__(self, binaries):
        self.binaries, self.lock, self.locks, self.losses = binaries, threading.Lock(), {}, {}

    def of(self, case):
        if not case.strategy.is_exact:
            return None
        key = (case.strategy.name, case.hosts, case.ranks)
        with self.lock:
            own = self.locks.setdefault(key, threading.Lock())
        with own:
            if key not in self.losses:
                self.losses[key] = self.train(case)
            return self.losses[key]

    def train(self, case):
        folder = new_folder()
        try:
            with emulated(case.hosts) as hosts:
                job = Job(case, hosts, self.binaries, folder, folder / "run", f"reference-{os.getpid()}-{secrets.token_hex(4)}")
                try:
                    wait_until(job.has_ended, 150)
                    if not job.has_ended() or any(process.returncode for process in job.launchers):
                        raise RuntimeError(f"the uninterrupted training of {case} failed: {job.output()[-1000:]}")
                    losses = {row["step"]: row["loss"] for row in job.rows()}
                    if len(losses) != STEPS:
                        raise RuntimeError(f"the uninterrupted training of {case} has {len(losses)} rows")
                    return losses
                finally:
                    job.clean_up()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def new_folder():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="rondo-chaos-"))
    (folder / "text.txt").write_text(TEXT)
    return folder


def run_case(case, binaries, references, keep=False):
    """None, or what is wrong; and what was hit."""
    expected = references.of(case)
    folder = new_folder()
    try:
        with contextlib.ExitStack() as stack:
            place = folder
            if case.fault == "disk":
                place = stack.enter_context(small_disk(folder / "disk", "24m"))
            hosts = stack.enter_context(emulated(case.hosts))
            job = Job(case, hosts, binaries, folder, place / "run", f"case-{os.getpid()}-{case.number}")
            try:
                job.wait_for_the_moment()
                at, hit = time.monotonic(), job.inject()
                found = verdict.of_the_end(case, job, hit, at)
                found += verdict.of_leftovers(case, job)
            finally:
                job.clean_up()
            with contextlib.suppress(OSError):
                (place / "filler").unlink()
            found += verdict.of_the_checkpoint(binaries, job)
            with stack.enter_context(contextlib.ExitStack()) as fresh:
                whole = fresh.enter_context(emulated(case.hosts))  # the cut is mended
                found += verdict.of_the_resume(case, whole, binaries, job, expected)
            if not found:
                return None, hit
            return f"{case}, hit {hit}:\n    " + "\n    ".join(found) + "\n    " + job.output().strip()[-1500:].replace("\n", "\n    "), hit
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", help="SEED:NUMBER of one case")
    parser.add_argument("--strategy")
    parser.add_argument("--fault")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--seconds", type=float, default=None, help="begin no case after so long")
    parser.add_argument("--keep", action="store_true", help="leave the folders of the cases")
    parser.add_argument("--list", action="store_true", help="only print the cases")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("chaos: emulated hosts and small file systems need root", file=sys.stderr)
        return 2
    binaries = pathlib.Path(os.environ.get("RONDO_BIN", "build/release/bin")).resolve()
    if options.only:
        seed, number = map(int, options.only.split(":"))
        numbers = [number]
    else:
        seed = options.seed if options.seed is not None else secrets.randbelow(1 << 30)
        numbers = range(options.count)
    print(f"seed {seed}", flush=True)
    cases = [draw(seed, number, options.strategy, options.fault) for number in numbers]
    if options.list:
        print("\n".join(map(str, cases)))
        return 0
    shared_before = set(os.listdir("/dev/shm"))
    references, began = References(binaries), time.monotonic()
    violations, missed, ran = [], 0, 0

    def attempt(case):
        if options.seconds is not None and time.monotonic() - began > options.seconds:
            return case, None
        try:
            return case, run_case(case, binaries, references, options.keep)
        except Exception as error:  # of the harness: counts as a violation, so that it is seen
            return case, (f"{case}: {type(error).__name__}: {error}", None)

    with ThreadPoolExecutor(options.jobs) as pool:
        for case, result in pool.map(attempt, cases):
            if result is None:
                continue
            violation, hit = result
            ran += 1
            missed += hit is None
            print(f"{'VIOLATION ' + violation if violation else 'ok ' + str(case)}", flush=True)
            violations += [violation] if violation else []
    left = sorted(name for name in set(os.listdir("/dev/shm")) - shared_before if "rondo" in name)
    if left:
        violations.append(f"left in /dev/shm: {left}")
        print(violations[-1])
    print(f"{ran} faults, seed {seed}, {missed} came after the end: {len(violations)} violations, {time.monotonic() - began:.0f} s")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
