"""Numbers that documents cite equal those of the linked tables, and ratios in tables follow the rule."""
import decimal
import re
import subprocess
import sys

import pytest
from measured import MOST_OVER_MINIMUM, REPOSITORY, RULE, peer_ratio, ratio_text, section, tables

pytestmark = pytest.mark.tooling

DOCUMENTS = ["README.md", "docs/communication.md", "docs/hierarchical.md", "docs/status.md"]
# These also have numbers of their own.
WITHOUT_TABLES = ["docs/status.md", "docs/model_parallel.md", "docs/precision.md"]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+\.md)?(?:#([^)\s]+))?\)")
# A cited number is followed by one of these units; "0.6 to 0.8 of its memory" has two.
NUMBER = r"\d+(?:\.\d+)?"
FIGURE = re.compile(rf"({NUMBER})(?: to ({NUMBER}))?(?: %| x\b|x\b| times\b| ms\b| us\b| of its memory\b| of the time\b)")
# "[0.875](benchmarks.md#training-steps) of the work".
LINKED_FIGURE = re.compile(rf"\[({NUMBER})(?: %| x| times)?\]\(")
# A number that compares speed or size with something else.
RATIO = re.compile(rf"{NUMBER} (?:x |times )(?:as|the|the work|PyTorch|computation)|{NUMBER} of (?:PyTorch|the work|the independent)")


def numbers_of(text):
    return {decimal.Decimal(number) for number in re.findall(NUMBER, text)}


def is_rounding(cited, number):
    """Returns true for 12 of 12.4, 1.42 of 1.416: a cited number has at most the digits of the table."""
    return number.quantize(cited, rounding=decimal.ROUND_HALF_UP) == cited


def citations(document):
    """Returns (line number, page, anchor, numbers) of every line of `document` that has numbers and links to a page
    with measured tables. Rows of a table without links belong to the link of the line before the table, if that line
    ends in a colon."""
    before = introduction = ""
    for number, line in enumerate(document.read_text().splitlines(), 1):
        row = line.startswith("|")
        if not row and line.strip():
            before = line
        if not row:
            introduction = before if before.endswith(":") else ""
        links = LINK.findall(line) or (LINK.findall(introduction) if row else [])
        for page, place in links:
            target = (document.parent / page).resolve() if page else document
            # "(goal 1.18)" is a goal, not a measurement.
            measured = re.sub(r"\(goal [^)]*\)", "", line)
            figures = [f for match in FIGURE.findall(measured) for f in match if f] + LINKED_FIGURE.findall(measured)
            if target.name in ("benchmarks.md", "quality.md", "accuracy.md", "sharded.md") and figures:
                yield number, target, place, figures
                break


@pytest.mark.parametrize("name", DOCUMENTS)
def test_cited_figures_match_linked_tables(name):
    document = REPOSITORY / name
    found = 0
    for line, target, place, figures in citations(document):
        known = numbers_of(section(target.read_text(), place))
        for figure in map(decimal.Decimal, figures):
            assert any(is_rounding(figure, number) for number in known), \
                f"{name}:{line} cites {figure}, which {target.relative_to(REPOSITORY)}#{place} does not have"
            found += 1
    if name == "README.md":
        assert found >= 10
    # A page cites another page's tables with a link.
    assert found > 0


def sections(text):
    """Returns each heading's own part, without those of its subheadings."""
    return re.split(r"(?m)^(?=#+ )", text)


@pytest.mark.parametrize("name", WITHOUT_TABLES)
def test_unlinked_ratios_name_their_measurement(name):
    found = 0
    for part in sections((REPOSITORY / name).read_text()):
        loose = [line for line in part.splitlines() if RATIO.search(line) and not LINK.search(line)]
        if not loose:
            continue
        found += 1
        assert re.search(r"20\d\d-\d\d-\d\d", part), f"{name} does not say when this was measured: {loose[0]}"
        assert re.search(r"`[^`]*(?:rondo (?:bench|doctor)|make |bench/peers/)[^`]*`", part), f"{name} does not say with what: {loose[0]}"
    assert found > 0


def test_schedule_idle_times_match_the_table():
    page = section((REPOSITORY / "docs" / "model_parallel.md").read_text(), "pipeline-bubbles")
    figures = section((REPOSITORY / "docs" / "benchmarks.md").read_text(), "pipelines-of-4-ranks-emulated-accelerators")
    measured = {row["schedule"]: row for row in tables(figures)[0]}
    rows = tables(page)[0]
    assert len(rows) == len(measured) == 5
    for row in rows:
        of = measured[row["schedule"].strip("`")]
        assert (row["idle, ms"], row["simulated"]) == (of["idle, ms"], of["simulated"])
        assert row["of the step"] == f"{100 * float(of['idle, ms']) / float(of['step, ms']):.0f} %"


def test_plugin_ratios_match_its_steps():
    page = section((REPOSITORY / "python" / "README.md").read_text(), "measured")
    assert re.search(r"`bench/peers/[^`]*` on 20\d\d-\d\d-\d\d", page)
    rows = [row for t in tables(page) if "ratio" in t[0] for row in t]
    assert len(rows) >= 5
    for row in rows:
        gloo, rondo = (float(re.match(rf"({NUMBER}) ms", row[f"over {engine}"].replace(" a step", ""))[1]) for engine in ("Gloo", "rondo"))
        assert float(row["ratio"]) == pytest.approx(gloo / rondo, abs=0.005), row


def test_readme_figures_link_to_one_table():
    measured = section((REPOSITORY / "README.md").read_text(), "benchmarks")
    rows = [line for line in measured.splitlines() if line.startswith("| [")]
    assert len(rows) >= 4
    for row in rows:
        (page, place), = LINK.findall(row)
        assert place, f"links to a whole page, not to a table: {row}"
        assert tables(section((REPOSITORY / page).read_text(), place)), f"no table at {page}#{place}"


def test_bars_are_drawn_from_the_tables(tmp_path):
    subprocess.run([sys.executable, REPOSITORY / "bench" / "benchmarks.py", "--bars", tmp_path / "bars.svg"], check=True)
    assert (tmp_path / "bars.svg").read_text() == (REPOSITORY / "docs" / "images" / "benchmarks.svg").read_text()


def test_the_readme_begins_with_an_example():
    before = (REPOSITORY / "README.md").read_text().partition("```")[0]
    assert len(before.split()) <= 150


def times(cell):
    """Returns the median and the minimum of "3.31 ms (0.353)" in microseconds."""
    median, unit, minimum = re.fullmatch(rf"({NUMBER}) ([um]s) \(({NUMBER})\)", cell).groups()
    return [float(value) * {"us": 1, "ms": 1e3}[unit] for value in (median, minimum)]


def test_table_ratios_follow_their_rule():
    page = (REPOSITORY / "docs" / "benchmarks.md").read_text()
    assert RULE in page
    checked = marked = 0
    for table in tables(page):
        for row in table:
            for heading in [h for h in row if h.startswith("over ")]:
                peer = re.match(r"over (\w+):", heading)[1]
                for ours, cited in zip(("rondo, registered", "rondo, ordinary"), row[heading].split(", ")):
                    value, of_minima = peer_ratio(*times(row[ours]), *times(row[peer]))
                    assert cited.endswith("*") == of_minima, (row["size"], heading)
                    # The table's own times are rounded to three digits.
                    assert float(cited.rstrip("x*")) == pytest.approx(value, rel=0.012, abs=0.06), (row["size"], heading)
                    checked += 1
                    marked += of_minima
    assert checked >= 40 and marked > 0


@pytest.mark.parametrize("ours, peer, value, of_minima", [
    ((10, 8), (24, 8), 2.4, False),  # three times the minimum is not more than three times
    ((0.3, 0.26), (3000, 130), 500, True),
    ((100, 1), (200, 150), 2, False),
    ((0, 0), (1, 1), 0, False),
])
def test_the_rule(ours, peer, value, of_minima):
    assert peer_ratio(*ours, *peer) == (pytest.approx(value), of_minima)


def test_program_and_scripts_have_one_rule():
    """tests/base/peer_ratio_test.cpp tests the program's rule with the same cases."""
    text = (REPOSITORY / "rondo" / "base" / "arithmetic.cpp").read_text()
    assert re.search(r"kMostOverMinimum = (\d+);", text)[1] == str(MOST_OVER_MINIMUM)
    said = "".join(re.findall(r'"([^"]*)"', text[text.index("kPeerRatioRule ="):text.index("PeerRatio peer_ratio(")]))
    assert said == RULE.replace("\n", " ")
    assert (ratio_text(2.44, False), ratio_text(500.2, True)) == ("2.4x", "500x*")
