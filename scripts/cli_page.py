#!/usr/bin/env python3
"""Writes the tables of `rondo train` in docs/cli.md from the program's own declarations.

cli_page.py PROGRAM [--check]: PROGRAM is the built `rondo`. With --check nothing is written; if the page differs from
the program, the first difference is printed with its line, and the exit code is 1.
"""
import itertools
import json
import pathlib
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "cli.md"
BEGIN, END = "<!-- rondo train: flags (scripts/cli_page.py) -->", "<!-- end of flags -->"
WITHOUT_FLAG = "Options without a flag: for `--set NAME=VALUE` and configuration files"
TOPICS = [("Strategy", "strategies"), ("Model", "models"), ("Kind of data", "data_kinds"), ("Engine", "engines"),
          ("Log target", "log_targets")]


def table(head, rows):
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]]) + "\n"


def cell(text):
    return text.replace("|", "\\|")


def flag_row(flag):
    name = ("--" if flag["has_flag"] else "") + flag["name"]
    names = f"`{name}`" if not flag["type"] else f"`{name} {cell(flag['type'])}`"
    default = flag["default"]
    return [names, cell(flag["help"]), f"`{default}`" if default not in (None, "", "false") else "",
            cell(flag["for"]["text"]) if flag["for"] else ""]


def render(declared):
    """Returns the tables as Markdown, from the JSON of `rondo train --help-all --json -`."""
    groups = {}
    for flag in declared["flags"]:
        if flag["has_flag"]:
            groups.setdefault(flag["group"], []).append(flag_row(flag))
    groups[WITHOUT_FLAG] = [flag_row(flag) for flag in declared["flags"] if not flag["has_flag"]]
    parts = [f"**{group}**\n\n" + table(["Flag", "Meaning", "Default", "Only for"], rows) for group, rows in groups.items()]
    for title, key in TOPICS:
        rows = [[", ".join(f"`{name}`" for name in [entry["name"], *entry["aliases"]]), cell(entry["summary"])]
                for entry in declared[key]]
        parts.append(table([title, "Description"], rows))
    return "\n".join(parts)


def with_tables(page, declared):
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{PAGE} has no lines '{BEGIN}' and '{END}'")
    return f"{before}{BEGIN}\n{render(declared)}\n{END}{after}"


def first_difference(page, wanted):
    """Returns the line number of the first difference, the line of the page and the line of the program."""
    lines = [text.splitlines() for text in (page, wanted)]
    number = next(number for number, pair in enumerate(itertools.zip_longest(*lines), 1) if pair[0] != pair[1])
    return number, *("".join(each[number - 1:number]) for each in lines)


def main(arguments):
    program = arguments[0]
    declared = json.loads(subprocess.run([program, "train", "--help-all", "--json", "-"], check=True, capture_output=True,
                                         text=True).stdout)
    page = PAGE.read_text()
    wanted = with_tables(page, declared)
    if "--check" in arguments:
        if page == wanted:
            return 0
        number, found, declared = first_difference(page, wanted)
        print(f"docs/cli.md:{number}: differs from the program; update it with:  scripts/cli_page.py {program}\n"
              f"  page:    {found}\n  program: {declared}", file=sys.stderr)
        return 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
