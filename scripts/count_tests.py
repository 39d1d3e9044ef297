#!/usr/bin/env python3
"""Sums JUnit files: prints failed and skipped tests with reasons, then one line `N passed, M failed, K skipped`.

A missing or unreadable file counts as one failure, because its runner did not finish. If a test of ctest is a suite
with a file of its own, suites/NAME.xml beside the first, that suite's tests count instead. A test in unsteady.txt
beside the file (second_look.py) counts as passed, and is named.
"""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def reason(element, fallback):
    text = (element.get("message") or element.text or "").strip()
    return text.splitlines()[0] if text else fallback


def skip_reason(case):
    """Returns the printed reason of a skipped test: gtest's is in the output, pytest's in the element."""
    skipped = case.find("skipped")
    output = case.findtext("system-out") or ""
    lines = [line.strip() for line in output.splitlines()]
    for index, line in enumerate(lines):
        if line.endswith(": Skipped") and index + 1 < len(lines) and lines[index + 1]:
            return lines[index + 1]
    return reason(skipped, "no reason given") if skipped is not None else "no reason given"


def failed_itself(case):
    return case.get("status") == "fail" or case.find("failure") is not None or case.find("error") is not None


def cases_of(path):
    """Yields the tests of a file, each with whether it or its suite is unsteady."""
    listed = pathlib.Path(path).parent / "unsteady.txt"
    unsteady = set(listed.read_text().splitlines()) if listed.exists() else set()
    for case in ElementTree.parse(path).iter("testcase"):
        suite = pathlib.Path(path).parent / "suites" / f"{case.get('name')}.xml".replace("/", "_")
        tests = list(ElementTree.parse(suite).iter("testcase")) if suite.exists() else []
        is_unsteady = case.get("name") in unsteady or f"{case.get('classname')}.{case.get('name')}" in unsteady
        yield from ((test, is_unsteady) for test in tests)
        # Also yields a suite that was terminated early, or failed after its tests.
        if not tests or (failed_itself(case) and not any(map(failed_itself, tests))):
            yield case, is_unsteady


def count(paths):
    passed, failed, unsteady, skipped = 0, [], [], []
    for path in paths:
        try:
            cases = list(cases_of(path))
        except (OSError, ElementTree.ParseError) as error:
            failed.append((path, f"its runner did not finish ({error})"))
            continue
        for case, is_unsteady in cases:
            name = ".".join(filter(None, [case.get("classname"), case.get("name")]))
            if case.get("classname") == case.get("name"):  # ctest repeats the name
                name = case.get("name")
            failures = case.findall("failure") + case.findall("error")
            if failed_itself(case):
                passed += is_unsteady
                (unsteady if is_unsteady else failed).append((name, reason(failures[0], "failed") if failures else "failed"))
            elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
                skipped.append((name, skip_reason(case)))
            else:
                passed += 1
    return passed, failed, unsteady, skipped


def main(paths):
    passed, failed, unsteady, skipped = count(paths)
    for name, why in skipped:
        print(f"skipped: {name}: {why}")
    for name, why in unsteady:
        print(f"unsteady: {name}: failed once, then passed three times alone; its error: {why}")
    for name, why in failed:
        print(f"failed: {name}: {why}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
