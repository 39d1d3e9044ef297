#!/usr/bin/env python3
"""Sums gcov's counters in a build folder:  scripts/coverage.py BUILD

Prints lines, executed lines and their share for each layer of rondo/ and each program of apps/, and the total. Writes
the lines that were not executed, by file, to BUILD/coverage.txt. A line counts as executed if any program that contains
it executed it.
"""
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("rondo", "apps")


def counts_of(data):
    """Returns {file: {line: count}} from one object's counters, for the project's own files."""
    result = subprocess.run(["gcov", "--json-format", "--stdout", str(data)], capture_output=True, text=True, cwd=data.parent)
    found = {}
    for line in result.stdout.splitlines():
        for file in json.loads(line)["files"]:
            path = pathlib.Path(os.path.normpath(data.parent / file["file"]))
            if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in FOLDERS:
                continue
            lines = found.setdefault(str(path.relative_to(ROOT)), {})
            for one in file["lines"]:
                number = one["line_number"]
                lines[number] = max(lines.get(number, 0), one["count"])
    return found


def sum_up(build):
    files = collections.defaultdict(dict)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        # Objects without an executed program also have their lines, in the .gcno.
        for found in pool.map(counts_of, sorted(build.rglob("*.gcno"))):
            for name, lines in found.items():
                for number, times in lines.items():
                    files[name][number] = max(files[name].get(number, 0), times)
    return files


def table(files):
    """Returns rows (layer, lines, executed lines), the total last."""
    rows = collections.defaultdict(lambda: [0, 0])
    for name, lines in files.items():
        for row in (rows["/".join(name.split("/")[:2])], rows["~total"]):
            row[0] += len(lines)
            row[1] += sum(times > 0 for times in lines.values())
    return [(name.lstrip("~"), *row) for name, row in sorted(rows.items())]


def main(build):
    files = sum_up(build)
    if not files:
        sys.exit(f"error: {build} has no counters; build it with scripts/coverage.sh")
    print(f"{'':<22}{'lines':>8}{'run':>8}{'share':>8}")
    for name, lines, ran in table(files):
        print(f"{name:<22}{lines:>8}{ran:>8}{ran / lines:>8.1%}")
    with open(build / "coverage.txt", "w") as details:
        for name, lines in sorted(files.items()):
            missed = sorted(number for number, times in lines.items() if times == 0)
            if missed:
                print(f"{name}: {len(missed)} of {len(lines)} lines: {' '.join(map(str, missed))}", file=details)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve())
