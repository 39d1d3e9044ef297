#!/usr/bin/env python3
"""Writes a manual page for each of rondo's commands.

man_pages.py FILE FOLDER: FILE is the output of `rondo --help-json`. FOLDER gets rondo.1, rondo-train.1,
rondo-checkpoint-inspect.1 and so on. SOURCE_DATE_EPOCH sets the date of the pages.
"""
import json
import os
import pathlib
import re
import sys
import time

VERSION = re.search(r'#define RONDO_VERSION "(.+)"',
                    (pathlib.Path(__file__).resolve().parent.parent / "rondo/base/version.h").read_text())[1]
# Flags that every command has, and no page needs to repeat.
HELP = "Help"
LONGEST_TYPE = 40  # longer ones, with many values, stand in the text


def escape(text):
    """Returns a line of text for roff: hyphens as typed, no line that looks like a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + text if text[:1] in (".", "'") else text


def title_of(page):
    return page["name"].replace(" ", "-")


def bold(text):
    return f"\\fB{escape(text)}\\fR"


def entry_lines(entry):
    names = ", ".join(map(bold, entry["names"]))
    type_text = f" \\fI{escape(entry['type'])}\\fR" if entry["type"] else ""
    text = entry["text"]
    if len(entry["type"]) > LONGEST_TYPE:
        type_text = " \\fIVALUE\\fR"
        text += ". Values: " + entry["type"].strip("{}").replace(",", ", ")
    default = f" (default: {escape(entry['default'])})" if entry["type"] and entry["default"] else ""
    return [".TP", names + type_text + default, escape(text) or "\\&"]


def footer_lines(footer):
    """The examples as they stand, and prose as paragraphs."""
    lines, is_prose = [], True
    for line in filter(None, footer.split("\n")):
        if line == "Examples:":
            if not is_prose:
                lines.append(".fi")
            lines.append(".SH EXAMPLES")
            is_prose = True
        elif line.startswith(" "):
            if is_prose:
                lines.append(".nf")
            is_prose = False
            lines.append(escape(line.strip()))
        else:
            lines += [".fi", ".PP"] if not is_prose else [] if not lines or lines[-1].startswith(".SH") else [".PP"]
            is_prose = True
            lines.append(escape(line))
    return lines if is_prose else [*lines, ".fi"]


def first_sentence(summary):
    return summary.split("\n")[0].split(". ")[0].rstrip(".")


def render(page, others, date):
    name = title_of(page)
    summary = re.sub(r"^rondo [0-9.]+: ", "", page["summary"])
    lines = [f'.TH {name.upper()} 1 {date} "rondo {VERSION}" "rondo"', ".SH NAME",
             f"{escape(name)} \\- {escape(first_sentence(summary))}", ".SH SYNOPSIS", bold(page["usage"]), ".SH DESCRIPTION",
             *map(escape, filter(None, summary.split("\n")))]
    footer = page["footer"]
    # Prose before the examples belongs to the description.
    before, mark, examples = footer.partition("Examples:")
    lines += [line for text in filter(None, before.split("\n")) for line in (".PP", escape(text.strip()))]
    groups = [group for group in page["groups"] if group["title"] not in (HELP, "Commands")]
    for title, header in (("Commands", ".SH COMMANDS"), ):
        entries = [entry for group in page["groups"] if group["title"] == title for entry in group["entries"]]
        if entries:
            lines += [header, *(line for entry in entries for line in entry_lines(entry))]
    if groups:
        lines.append(".SH OPTIONS")
    for group in groups:
        if len(groups) > 1:
            lines.append(f".SS {escape(group['title'])}")
        lines += [line for entry in group["entries"] for line in entry_lines(entry)]
    lines += footer_lines(mark + examples)
    if others:
        lines += [".SH SEE ALSO", ",\n".join(f"{bold(other)}(1)" for other in others)]
    return "\n".join(lines) + "\n"


def all_pages(page):
    yield page
    for command in page["commands"]:
        yield from all_pages(command)


def main(source, folder):
    front = json.loads(pathlib.Path(source).read_text())
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    pages = list(all_pages(front))
    titles = {title_of(page) for page in pages}
    for page in pages:
        title = title_of(page)
        above = title.rpartition("-")[0]
        others = sorted({above} & titles | {title_of(command) for command in page["commands"]})
        (folder / f"{title}.1").write_text(render(page, others, date))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
