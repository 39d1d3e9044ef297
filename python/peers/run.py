#!/usr/bin/env python3
"""PyTorch's own distributed tests over Gloo and over rondo, side by side.

    run.py TESTS [--suites spawn,gloo] [--names EXPRESSION] [--repeat 20] [--json PATH]

TESTS is the folder `test` of PyTorch's sources, of the version of the torch in use or one near it. Nothing of it is changed: over
rondo, gloo_is_rondo/sitecustomize.py makes "gloo" be rondo, and says there what that means. Each file runs as a whole in one
pytest a repetition and backend, in turns. A test that ends its process, or takes longer than --limit seconds, counts as crashed,
and the rest of its file goes on without it.

What Gloo's first run skips, because the machine has no GPU for example, is not run again. The table counts the tests that passed in
every repetition; below it stand those that differ, with the reason that suites.py has for them. Exit code 0 says that rondo passes all
that Gloo passes, but for tests with a reason there; 1 that others differ, 2 that nothing could be run.
"""

import argparse
import collections
import importlib.metadata
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from suites import DIFFERENCES, SUITES

HERE = pathlib.Path(__file__).resolve().parent
BACKENDS = ("gloo", "rondo")
# Messages of PyTorch's multi-process tests about a process that was killed by a signal.
SIGNALLED = re.compile(r"(?:exit(?:ed with error |ed with exit | )code:?|but got) -\d+")
NEEDED = ("expecttest", "hypothesis", "pytest", "numpy")


def files_of(suite, tests):
    there = [tests / path for path in suite.files if (tests / path).is_file()]
    return there if suite.together else there[:1]


class FileRun:
    """One file over one backend, once: {test: (outcome, text)}."""

    def __init__(self, path, suite, backend, arguments, scratch, without):
        self.path, self.suite, self.backend, self.arguments = path, suite, backend, arguments
        self.without = without
        self.report = scratch / "report.jsonl"
        self.output = scratch / "output.txt"
        self.scratch = scratch
        self.results = {}

    def environment(self):
        folders = [HERE / "reporting", self.path.parent]
        if self.backend == "rondo":
            folders[:0] = [HERE / "gloo_is_rondo", self.arguments.package]
        environment = dict(os.environ) | self.suite.env
        before = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([*map(str, folders), *([before] if before else [])])
        environment |= {"PEERS_REPORT": str(self.report), "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": "",
                        "OMP_NUM_THREADS": "1", "PEERS_FORK": "0" if self.arguments.spawn else "1",
                        "PEERS_PRELOAD": f"torch {self.path.stem}",
                        "PEERS_WITHOUT": json.dumps([*self.without, *self.results])}
        if "BACKEND" in self.suite.env:
            folder = self.scratch / "temporary"
            (folder / "barrier").mkdir(parents=True, exist_ok=True)
            environment["TEMP_DIR"] = str(folder)
        return environment

    def run(self):
        while self.run_the_rest():
            pass
        return self.results

    def run_the_rest(self):
        """True when a test ended the process or was ended, and there may be more."""
        self.report.write_text("")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "peers_report", "-p", "no:cacheprovider", "-c", os.devnull,
                   "--noconftest", "--rootdir", str(self.path.parent), str(self.path)]
        names = [f"({names})" for names in (self.suite.names, self.arguments.names) if names]
        if names:
            command += ["-k", " and ".join(names)]
        with open(self.output, "w", encoding="utf-8") as output:
            process = subprocess.Popen(command, cwd=self.scratch, env=self.environment(), stdout=output, stderr=subprocess.STDOUT,
                                       start_new_session=True)
        began = time.monotonic()
        known = 0
        try:
            while process.poll() is None:
                time.sleep(0.1)
                lines = self.report.stat().st_size
                if lines != known:
                    known, began = lines, time.monotonic()
                if time.monotonic() - began > self.arguments.limit:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        finally:
            # Kills ranks of a test that was stopped, and ranks that a test left running.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        running = self.take_report()
        if running is None:
            if process.returncode not in (0, 1, 5) and not self.results:
                sys.exit(f"{self.path}: pytest ended with {process.returncode}:\n{self.output.read_text()[-3000:]}")
            return False
        how = (f"took longer than {self.arguments.limit:g} s" if process.returncode == -signal.SIGKILL else
               f"its process ended with {process.returncode}")
        self.results[running] = ("crashed", f"{how}\n{self.output.read_text()[-3000:]}")
        return True

    def take_report(self):
        """Adds what ended to the results, and returns the test that had begun only."""
        running = None
        for line in self.report.read_text().splitlines():
            said = json.loads(line)
            test, outcome = said["test"], said["outcome"]
            if outcome == "begun":
                running = test
                continue
            running = None if running == test else running
            if outcome == "failed" and SIGNALLED.search(said["text"]):
                outcome = "crashed"
            if self.results.get(test, ("passed",))[0] == "passed":
                self.results[test] = (outcome, said.get("text", ""))
        return running


def cause(text):
    """The one line of a failure's text that says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"(Error|Exception|Failure|Fault)\b.*:|did not raise|signal|longer than", line)]
    return (errors or lines or ["no output"])[-1][:200]


def run_suite(name, arguments, tests):
    suite = SUITES[name]
    paths = files_of(suite, tests)
    if not paths:
        print(f"{name}: none of its files is in {tests}", flush=True)
        return None
    # {backend: {test: [(outcome, text), ...]}}
    outcomes = {backend: collections.defaultdict(list) for backend in BACKENDS}
    skipped = {path: set() for path in paths}  # by Gloo's first run: they need what this machine lacks
    for repetition in range(arguments.repeat):
        for backend in BACKENDS:
            if backend == "gloo" and repetition >= arguments.gloo_repeat:
                continue
            began = time.monotonic()
            counts = collections.Counter()
            for path in paths:
                with tempfile.TemporaryDirectory(prefix="rondo-peers-") as scratch:
                    results = FileRun(path, suite, backend, arguments, pathlib.Path(scratch), skipped[path]).run()
                if repetition == 0 and backend == "gloo":
                    skipped[path] = {test for test, (outcome, _) in results.items() if outcome == "skipped"}
                for test, (outcome, text) in results.items():
                    outcomes[backend][f"{path.stem}::{test}"].append((outcome, text))
                    counts[outcome] += 1
            said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
            print(f"{name} over {backend}, run {repetition + 1} of {arguments.repeat}: {said or 'no test'} "
                  f"({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
    return outcomes


def always_passed(runs):
    return bool(runs) and all(outcome == "passed" for outcome, _ in runs)


def summary(outcomes):
    passed = {backend: {test for test, runs in outcomes[backend].items() if always_passed(runs)} for backend in BACKENDS}
    row = {}
    for backend in BACKENDS:
        runs = [outcome for test in outcomes[backend].values() for outcome, _ in test]
        row[backend] = {"passed": len(passed[backend]), "crashes": runs.count("crashed"),
                        "tests": sum(any(o != "skipped" for o, _ in runs) for runs in outcomes[backend].values())}
    row["both"] = len(passed["gloo"] & passed["rondo"])
    differing = []
    for test in sorted(passed["gloo"] ^ passed["rondo"]):
        worse = "rondo" if test in passed["gloo"] else "gloo"
        runs = outcomes[worse].get(test, [])
        bad = [(outcome, text) for outcome, text in runs if outcome != "passed"]
        reason = DIFFERENCES.get(test.rpartition("::")[2], "") if worse == "rondo" else ""
        differing.append({"test": test, "backend": worse, "reason": reason, "passed": len(runs) - len(bad), "runs": len(runs),
                          "outcome": bad[0][0] if bad else "not run", "cause": cause(bad[0][1]) if bad else "",
                          "text": bad[0][1] if bad else ""})
    row["differing"] = differing
    return row


def print_table(rows, torch, repeat, gloo_repeat):
    less = f", over Gloo of {gloo_repeat}" if gloo_repeat < repeat else ""
    print(f"\nPassed in each of {repeat} runs{less}, with torch {torch}\n")
    print("| suite | Gloo | rondo | both | crashes over Gloo | crashes over rondo |\n|---|---|---|---|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {row['gloo']['passed']} of {row['gloo']['tests']} | {row['rondo']['passed']} of {row['rondo']['tests']} "
              f"| {row['both']} | {row['gloo']['crashes']} | {row['rondo']['crashes']} |")
    of_gloo = sum(row["gloo"]["passed"] for row in rows.values())
    both = sum(row["both"] for row in rows.values())
    print(f"\nOver rondo pass {both} of the {of_gloo} that pass over Gloo: {100 * both / max(of_gloo, 1):.1f} %")
    for name, row in rows.items():
        for test in row["differing"]:
            print(f"\n{name}: {test['test']}: {test['outcome']} over {test['backend']}, passed {test['passed']} of "
                  f"{test['runs']}\n    {test['reason'] or test['cause']}")


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", type=pathlib.Path, help="the folder `test` of PyTorch's sources")
    parser.add_argument("--suites", default=",".join(SUITES), help="comma-separated suites; default: %(default)s")
    parser.add_argument("--names", default="", help="only tests that match this expression of pytest's -k")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run everything N times (%(default)s)")
    parser.add_argument("--gloo-repeat", type=int, metavar="N", help="run them N times over Gloo, at least once")
    parser.add_argument("--spawn", action="store_true", help="start ranks as new interpreters, as PyTorch does, in place of forks "
                        "of one that has imported torch (reporting/peers_fork.py): ten times slower")
    parser.add_argument("--limit", type=float, default=400, metavar="S", help="seconds a test may take (%(default)g)")
    parser.add_argument("--package", type=pathlib.Path, default=HERE.parents[1] / "build" / "release" / "python",
                        help="the folder that holds rondo_torch, of a build or of an installed wheel (%(default)s)")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="also write everything as JSON")
    arguments = parser.parse_args(words)
    unknown = [name for name in arguments.suites.split(",") if name not in SUITES]
    if unknown:
        parser.error(f"no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    if arguments.gloo_repeat is None:
        arguments.gloo_repeat = arguments.repeat
    if min(arguments.repeat, arguments.gloo_repeat) < 1:
        parser.error("--repeat and --gloo-repeat must be at least 1")
    arguments.package = arguments.package.resolve()
    if not list(arguments.package.glob("rondo_torch/native*.so")):
        parser.error(f"rondo_torch is not built in {arguments.package}")
    tests = arguments.tests.resolve()
    if not (tests / "distributed").is_dir():
        parser.error(f"{tests} is not the folder `test` of PyTorch's sources: it has no folder `distributed`")
    missing = [module for module in NEEDED if subprocess.run([sys.executable, "-c", f"import {module}"], check=False,
                                                             stderr=subprocess.DEVNULL).returncode]
    if missing:
        parser.error(f"PyTorch's tests need {', '.join(missing)}: {sys.executable} -m pip install --target DIR "
                     f"{' '.join(missing)}, and DIR in PYTHONPATH")
    return arguments, tests


def main():
    # Also ends running tests.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    arguments, tests = parse(sys.argv[1:])
    torch = importlib.metadata.version("torch")
    rows = {}
    for name in arguments.suites.split(","):
        outcomes = run_suite(name, arguments, tests)
        if outcomes is not None:
            rows[name] = summary(outcomes)
            if arguments.json:  # after each suite: a run of all takes long, and may be ended before
                arguments.json.write_text(json.dumps({"torch": torch, "repeat": arguments.repeat, "gloo_repeat": arguments.gloo_repeat,
                                                      "suites": rows}, indent=1))
    if not any(row[backend]["tests"] for row in rows.values() for backend in BACKENDS):
        sys.exit(2)
    print_table(rows, torch, arguments.repeat, arguments.gloo_repeat)
    unexplained = any(test["backend"] == "rondo" and not test["reason"] for row in rows.values() for test in row["differing"])
    sys.exit(1 if unexplained else 0)


if __name__ == "__main__":
    main()
