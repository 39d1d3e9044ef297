#!/usr/bin/env python3
"""Writes docs/README.md, the list of all pages, from the tables of contents in docs/index.md.

    scripts/docs_index.py            writes the list
    scripts/docs_index.py --check    fails, and names the difference, if the list is out of date or lacks a page
"""
import argparse
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEAD = """# Documentation

All pages in reading order. `scripts/docs_index.py` writes this list from [index.md](index.md); `make docs` builds the
pages as a site with a search.
"""


def title(page):
    return re.search(r"(?m)^# (.*)$", page.read_text())[1]


def pages_of(entry, docs):
    """Returns the pages of a line of a table of contents; a pattern may have several or none."""
    base, name = (docs.parent, entry[1:]) if entry.startswith("/") else (docs, entry)
    return sorted(base.glob(f"{name}.md")) if re.search(r"[*\[]", name) else [base / f"{name}.md"]


def link(page, docs, text=None):
    return f"[{text or title(page)}]({os.path.relpath(page, docs)})"


def listing(docs):
    """Returns the text of the list. A page NAME.md is followed by the pages of the folder NAME."""
    parts = [HEAD]
    for block in re.findall(r"(?ms)^```\{toctree\}\n(.*?)^```", (docs / "index.md").read_text()):
        parts.append(f"\n## {re.search(r':caption: (.*)', block)[1]}\n\n")
        for line in (line for line in block.splitlines() if line and not line.startswith(":")):
            named = re.fullmatch(r"(.*) <(.*)>", line)
            for page in pages_of(named[2] if named else line, docs):
                below = sorted(page.with_suffix("").glob("*.md")) if page.parent == docs else []
                lines = [f"- {link(page, docs, named and named[1])}", *(f"  - {link(child, docs)}" for child in below)]
                parts.append("\n".join(lines) + "\n")
    return "".join(parts)


def missing_pages(text, docs):
    """Returns the pages below docs/ that the list lacks, except decisions, which have their own list."""
    pages = [str(page.relative_to(docs)) for page in docs.rglob("*.md") if "decisions" not in page.parts]
    return sorted(page for page in pages if page not in ("README.md", "index.md") and f"]({page})" not in text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="root of the repository")
    arguments = parser.parse_args()
    docs = arguments.root / "docs"
    text = listing(docs)
    for page in missing_pages(text, docs):
        print(f"docs/{page}: in no table of contents of docs/index.md", file=sys.stderr)
    if not arguments.check:
        (docs / "README.md").write_text(text)
    elif text != (docs / "README.md").read_text():
        print("docs/README.md: differs from docs/index.md; update it with:  scripts/docs_index.py", file=sys.stderr)
        return 1
    return 1 if missing_pages(text, docs) else 0


if __name__ == "__main__":
    sys.exit(main())
