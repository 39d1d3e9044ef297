"""Measurements in the documents: tables and sections of Markdown, and the rule for ratios to peers."""
import pathlib
import re
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "bench" / "peers"))
from peer_ratio import MOST_OVER_MINIMUM, RULE, peer_ratio, ratio_text  # noqa: E402, F401


def anchor(heading):
    """Returns GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def section(text, wanted):
    """Returns the part of a document under the heading with this anchor, up to the next of its rank; without an anchor
    all of it."""
    if not wanted:
        return text
    lines, rank = [], 0
    for line in text.splitlines():
        match = re.match(r"(#+) (.*)", line)
        if match and rank and len(match[1]) <= rank:
            break
        if match and not rank and anchor(match[2]) == wanted:
            rank = len(match[1])
        if rank:
            lines.append(line)
    assert lines, f"there is no heading for #{wanted}"
    return "\n".join(lines)


def tables(text):
    """Returns each table as a list of {heading: cell}."""
    result, heading = [], None
    for line in text.splitlines():
        if not line.startswith("|"):
            heading = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if heading is None:
            heading = cells
            result.append([])
        elif set("".join(cells)) - set("-: "):
            result[-1].append(dict(zip(heading, cells)))
    return result
