#!/usr/bin/env python3
"""Writes the tables of flags in docs/cli/*.md from the programs' own help.

cli_page.py PROGRAM [--check]: PROGRAM is the built `rondo`. A page marks the place of a table by a command's name:
`<!-- flags of rondo run -->` and `<!-- end of flags of rondo run -->`. With --check nothing is written; the exit code
is 1, and the first difference of a page is printed with its line, if a page differs from the programs or a command has
no table. Without rondo-bench-dev, its tables are neither written nor checked.
"""
import itertools
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = re.compile(r"(?ms)^<!-- flags of (?P<command>[a-z -]+) -->\n.*?^<!-- end of flags of (?P=command) -->$")
WITHOUT_FLAG = "Options without a flag: for `--set NAME=VALUE` and configuration files"
TOPICS = [("Strategy", "strategies"), ("Model", "models"), ("Kind of data", "data_kinds"), ("Engine", "engines"),
          ("Log target", "log_targets")]
HELP = "Help"  # the group of flags that every command has
WITH_OWN_PROGRAM = "bench-dev"  # is not installed, so `rondo --help-json` leaves it out
LONGEST_TYPE = 40  # characters; longer ones, with many values, are in the flag's meaning


def table(head, rows):
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]]) + "\n"


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def flag_row(flag):
    name = ("--" if flag["has_flag"] else "") + flag["name"]
    names = f"`{name}`" if not flag["type"] else f"`{name} {cell(flag['type'])}`"
    default = flag["default"]
    return [names, cell(flag["help"]), f"`{default}`" if default not in (None, "", "false") else "",
            cell(flag["for"]["text"]) if flag["for"] else ""]


def render_train(declared):
    """Returns the tables of `rondo train` as Markdown, from the JSON of `rondo train --help-all --json -`."""
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


def entry_row(entry):
    names, text = ", ".join(f"`{name}`" for name in entry["names"]), entry["text"]
    if len(entry["type"]) > LONGEST_TYPE:
        names += " `VALUE`"
        text += ": " + ", ".join(f"`{choice}`" for choice in entry["type"].strip("{}").split(","))
    elif entry["type"] and not entry["names"][-1].startswith(entry["type"]):
        names += f" `{cell(entry['type'])}`"
    default = entry["default"] if entry["type"] else ""
    return [names, cell(text), f"`{default}`" if default else ""]


def render_command(page):
    """Returns the usage and the tables of a command and its subcommands as Markdown, from their help."""
    parts = [] if page["commands"] else [f"`{page['usage']}`\n"]
    for group in page["groups"]:
        if group["title"] == HELP or page["commands"]:
            continue
        head = "Argument" if group["title"] == "Arguments" else "Flag"
        title = re.sub(r" \(docs/.*\)$", "", group["title"])
        if title not in ("Arguments", "Options"):
            parts.append(f"**{title}**\n")
        parts.append(table([head, "Meaning", "Default"], map(entry_row, group["entries"])))
    return "\n".join([*parts, *map(render_command, page["commands"])])


def printed(program, *words):
    return json.loads(subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout)


def read_help(program):
    """Returns the tables by the name of their command, and the names that pages must have."""
    pages = printed(program, "--help-json")["commands"]
    if program.with_name(f"{program.name}-{WITH_OWN_PROGRAM}").exists():
        pages.append(printed(program, WITH_OWN_PROGRAM, "--help-json"))
    tables, needed = {}, []
    for page in pages:
        with_own_tables = [page, *page["commands"]]
        tables |= {each["name"]: render_command(each) for each in with_own_tables}
        needed.append([each["name"] for each in with_own_tables])
    tables["rondo train"] = render_train(printed(program, "train", "--help-all", "--json", "-"))
    return tables, needed


def with_tables(text, tables):
    """Returns a page with its tables as they are in `tables`; others stay."""
    def filled(match):
        command = match["command"]
        content = f"\n{tables[command]}\n" if command in tables else match[0].split("\n", 1)[1].rsplit("\n", 1)[0] + "\n"
        return f"<!-- flags of {command} -->\n{content}<!-- end of flags of {command} -->"

    return TABLES.sub(filled, text)


def without_table(found, needed):
    """Returns commands that have no table of their own, of their subcommands or of the command they belong to."""
    return [name for names in needed for name in names
            if name not in found and names[0] not in found and not (name == names[0] and set(names[1:]) & found)]


def first_difference(page, wanted):
    """Returns the line number of the first difference, the line of the page and the line of the program."""
    lines = [text.splitlines() for text in (page, wanted)]
    number = next(number for number, pair in enumerate(itertools.zip_longest(*lines), 1) if pair[0] != pair[1])
    return number, *("".join(each[number - 1:number]) for each in lines)


def main(arguments):
    program = pathlib.Path(arguments[0])
    tables, needed = read_help(program)
    found, status = set(), 0
    for path in sorted((ROOT / "docs" / "cli").glob("*.md")):
        name, page = path.relative_to(ROOT), path.read_text()
        wanted = with_tables(page, tables)
        found |= {match["command"] for match in TABLES.finditer(page)}
        if page == wanted:
            continue
        if "--check" not in arguments:
            path.write_text(wanted)
            continue
        number, written, declared = first_difference(page, wanted)
        print(f"{name}:{number}: differs from the program; update it with:  scripts/cli_page.py {program}\n"
              f"  page:    {written}\n  program: {declared}", file=sys.stderr)
        status = 1
    for command in without_table(found, needed):
        print(f"docs/cli: no page has the flags of `{command}`; add the lines\n"
              f"  <!-- flags of {command} -->\n  <!-- end of flags of {command} -->", file=sys.stderr)
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
