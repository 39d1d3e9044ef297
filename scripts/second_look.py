#!/usr/bin/env python3
"""Runs failed tests again:  second_look.py ctest|pytest RESULTS -- COMMAND...

RESULTS has the runner's JUnit file (ctest.xml or NAME.xml, with --name). COMMAND runs tests; for pytest their ids are
appended. A failed test is run three more times, alone. If it passes each time it is unsteady: its name is written to
RESULTS/unsteady.txt, and its output of the failure to RESULTS/failed-first.txt. All other failures remain. There is no
second look for:

- more than five tests: that is no accident;
- a test that crashed, did not end, or was reported by a sanitizer: users may see such a failure, too.

Exit code 0: all failures were unsteady. The reasons are in docs/decisions/0071-reruns-of-failed-tests.md.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

from count_tests import failed_itself

MOST_TESTS = 5
TIMES = 3
GRAVE = re.compile(r"Sanitizer: |: runtime error: |SIGSEGV|SIGABRT|SIGBUS|SIGILL|Segmentation fault|double free|corrupt(ed|ion)|"
                   r"TimeoutExpired|Fatal Python error|worker '\w+' crashed")


def failed_cases(path):
    """Yields the element and the output of each failed test of a JUnit file."""
    for case in ElementTree.parse(path).iter("testcase"):
        if failed_itself(case):
            yield case, "\n".join(text for element in case.iter() for text in (element.get("message"), element.text) if text)


def grave(runner, output):
    """Returns the reason why a failure gets no second look, or None."""
    found = GRAVE.search(output)
    if found:
        return f"it printed '{found[0]}'"
    # gtest prints this for each test that runs to its end.
    if runner == "ctest" and "[  FAILED  ]" not in output:
        return "it did not finish"
    return None


def name_of(case, runner):
    return case.get("name") if runner == "ctest" else f"{case.get('classname')}.{case.get('name')}"


def pytest_id(case):
    return case.get("classname").replace(".", "/") + ".py::" + case.get("name")


def passes_again(runner, case, command, results):
    for _ in range(TIMES):
        if runner == "ctest":
            arguments = ["--tests-regex", f"^{re.escape(case.get('name'))}$", "--no-tests=error", "--output-on-failure"]
        else:
            arguments = [pytest_id(case), "--junitxml", str(results / "second-look.xml")]
        if subprocess.run([*command, *arguments], check=False).returncode != 0:
            return False
    return True


def main():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runner", choices=["ctest", "pytest"])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--name", help="of the JUnit file; default: the runner's")
    options = parser.parse_args(sys.argv[1:split])
    command, results = sys.argv[split + 1:], options.results
    try:
        failed = list(failed_cases(results / f"{options.name or options.runner}.xml"))
    except (OSError, ElementTree.ParseError) as error:
        print(f"no second look: the runner did not finish ({error})")
        return 1
    if not failed or len(failed) > MOST_TESTS:
        print(f"no second look: {len(failed)} tests failed")
        return 1
    with open(results / "failed-first.txt", "a", encoding="utf-8") as kept:
        for case, output in failed:
            kept.write(f"==== {name_of(case, options.runner)}\n{output}\n")
    for case, output in failed:
        if why := grave(options.runner, output):
            print(f"no second look at {name_of(case, options.runner)}: {why}")
            return 1
    # The next runs overwrite the suites' files of the first run.
    if (results / "suites").exists():
        shutil.copytree(results / "suites", results / "suites-first")
    steady = []
    for case, _ in failed:
        print(f"second look at {name_of(case, options.runner)}", flush=True)
        if passes_again(options.runner, case, command, results):
            with open(results / "unsteady.txt", "a", encoding="utf-8") as unsteady:
                unsteady.write(name_of(case, options.runner) + "\n")
        else:
            steady.append(case)
    if (results / "suites-first").exists():
        shutil.rmtree(results / "suites")
        (results / "suites-first").rename(results / "suites")
    return 1 if steady else 0


if __name__ == "__main__":
    sys.exit(main())
