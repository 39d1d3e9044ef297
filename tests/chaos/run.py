#!/usr/bin/env python3
"""Random faults in real trainings; see README.md."""
import argparse
import collections
import contextlib
import os
import pathlib
import secrets
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import isolation  # noqa: E402
import verdict  # noqa: E402
from case import STEPS, draw  # noqa: E402
from faults import inject, small_disk, wait_for_the_moment  # noqa: E402
from hosts import emulated  # noqa: E402
from job import Job  # noqa: E402
from processes import wait_until  # noqa: E402

TEXT = "the quick brown fox jumps over the lazy dog. " * 200


class References:
    """Losses of uninterrupted trainings, for each strategy, number of hosts and number of ranks."""

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
        with case_folder() as folder, emulated(case.hosts) as hosts:
            job = Job(case, hosts, self.binaries, folder, folder / "run", f"reference-{secrets.token_hex(4)}")
            try:
                wait_until(job.has_ended, verdict.WHOLE_TRAINING_S)
                if not job.has_ended() or any(process.returncode for process in job.launchers):
                    raise RuntimeError(f"the uninterrupted training of {case} failed: {job.output()[-1000:]}")
                losses = {row["step"]: row["loss"] for row in job.rows()}
                if len(losses) != STEPS:
                    raise RuntimeError(f"the uninterrupted training of {case} has {len(losses)} rows")
                return losses
            finally:
                job.end()


@contextlib.contextmanager
def case_folder(keep=False):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="case-"))
    try:
        (folder / "text.txt").write_text(TEXT)
        yield folder
    finally:
        if keep:
            shutil.copytree(folder, f"{keep}/{folder.name}", dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def run_case(case, binaries, references, keep=None):
    """Returns the violations as text, or None, and the Hit."""
    expected = references.of(case)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(case_folder(keep))
        place = stack.enter_context(small_disk(folder / "disk", "24m")) if case.fault.victim == "disk" else folder
        hosts = stack.enter_context(emulated(case.hosts))
        job = Job(case, hosts, binaries, folder, place / "run", f"case-{case.number}")
        try:
            wait_for_the_moment(job)
            hit = inject(job)
            at = hit.at if hit else time.monotonic()
            found = verdict.of_the_end(job, hit, at)
            took = time.monotonic() - at
            found += verdict.of_leftovers(job, hit, at)
        finally:
            job.end()
        with contextlib.suppress(OSError):
            (place / "filler").unlink()
        found += verdict.of_the_checkpoint(binaries, job)
        with emulated(case.hosts) as whole:  # the network is repaired
            found += verdict.of_the_resume(whole, binaries, job, expected)
        if not found:
            return None, hit
        return "\n    ".join([f"{case}, hit {hit.what if hit else None}, ended after {took:.1f} s, load {os.getloadavg()[0]:.1f}:", *found,
                              *job.output().strip()[-1500:].split("\n")]), hit


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--only", help="SEED:NUMBER of one case")
    parser.add_argument("--strategy")
    parser.add_argument("--fault")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--seconds", type=float, default=None, help="begin no case after so long")
    parser.add_argument("--keep", help="copy the folders of the cases to this one")
    parser.add_argument("--list", action="store_true", help="only print the cases")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    if options.only:
        options.seed, options.first = map(int, options.only.split(":"))
        options.count = 1
    seed = options.seed if options.seed is not None else secrets.randbelow(1 << 30)
    cases = [draw(seed, number, options.strategy, options.fault) for number in range(options.first, options.first + options.count)]
    if options.list:
        print("\n".join(map(str, cases)))
        return 0
    if os.geteuid() != 0:
        print("chaos: emulated hosts and small file systems need root", file=sys.stderr)
        return 2
    if not isolation.is_inside():
        return isolation.run_inside(__file__, [*sys.argv[1:], "--seed", str(seed)])
    isolation.set_up()
    return run_all(seed, cases, options)


def run_all(seed, cases, options):
    binaries = pathlib.Path(os.environ.get("RONDO_BIN", "build/release/bin")).resolve()
    print(f"seed {seed}", flush=True)
    references, began = References(binaries), time.monotonic()
    violations, counts = [], collections.Counter()

    def attempt(case):
        if options.seconds is not None and time.monotonic() - began > options.seconds:
            return "left out", None
        try:
            return run_case(case, binaries, references, options.keep)
        except Exception as error:  # an error of the harness counts as a violation, so that it is noticed
            return f"{case}: {type(error).__name__}: {error}", None

    with ThreadPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(attempt, case): case for case in cases}
        for future in as_completed(futures):
            case, (violation, hit) = futures[future], future.result()
            if violation == "left out":
                continue
            counts["ran"] += 1
            counts["missed"] += hit is None
            violations += [violation] if violation else []
            took = f"{time.monotonic() - began:.0f} s"
            print(f"VIOLATION {violation}" if violation else f"ok {case}{'' if hit else ': came after the end'} ({took})", flush=True)
    left = sorted(os.listdir("/dev/shm"))
    if left:
        violations.append(f"left in /dev/shm: {left}")
        print(violations[-1])
    print(f"{counts['ran']} faults, seed {seed}, {counts['missed']} came after the end: {len(violations)} violations, "
          f"{time.monotonic() - began:.0f} s")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
