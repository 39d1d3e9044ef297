#!/usr/bin/env python3
"""Sums up JUnit files: prints what failed or was skipped and why, then one line `N passed, M failed, K skipped`.

A file that is missing or unreadable counts as one failure, because its runner did not finish.
"""
import sys
import xml.etree.ElementTree as ElementTree


def reason(element, fallback):
    text = (element.get("message") or element.text or "").strip()
    return text.splitlines()[0] if text else fallback


def skip_reason(case):
    """What a test printed when it skipped itself: gtest's reason stands in the output, pytest's in the element."""
    skipped = case.find("skipped")
    output = case.findtext("system-out") or ""
    lines = [line.strip() for line in output.splitlines()]
    for index, line in enumerate(lines):
        if line.endswith(": Skipped") and index + 1 < len(lines) and lines[index + 1]:
            return lines[index + 1]
    return reason(skipped, "no reason given") if skipped is not None else "no reason given"


def count(paths):
    passed, failed, skipped = 0, [], []
    for path in paths:
        try:
            cases = list(ElementTree.parse(path).iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            failed.append((path, f"its runner did not finish ({error})"))
            continue
        for case in cases:
            name = ".".join(filter(None, [case.get("classname"), case.get("name")]))
            if case.get("classname") == case.get("name"):  # ctest gives the name twice
                name = case.get("name")
            failures = case.findall("failure") + case.findall("error")
            if failures or case.get("status") == "fail":
                failed.append((name, reason(failures[0], "failed") if failures else "failed"))
            elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
                skipped.append((name, skip_reason(case)))
            else:
                passed += 1
    return passed, failed, skipped


def main(paths):
    passed, failed, skipped = count(paths)
    for name, why in skipped:
        print(f"skipped: {name}: {why}")
    for name, why in failed:
        print(f"failed: {name}: {why}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
