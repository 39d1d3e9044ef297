"""One standard term for each concept (docs/glossary.md): replaced words do not return, and tables stay readable."""
import re
import subprocess

import pytest
from layers_test import tracked_files

pytestmark = pytest.mark.tooling

LONGEST_CELL = 15  # words
WIDEST_LINE = 120  # characters
LONGEST_PAGE = 1500  # words
MOST_WORDS = 50000  # words of all pages but generated ones and decisions
LONGEST_NAME = 8  # words of a test
# References that are lists.
LONG_PAGES = {"docs/benchmarks.md"}

# Former words and their replacements. `\\b` excludes longer names; matching is case-sensitive.
REPLACED = {
    r"\b(on the|keeps?|the) books\b|\bbooks of memory\b|[Ll]edger": "memory tracker, tracked memory",
    r"\bmake_whole\b|\bSummonFull\b": "unshard, SummonFullParams",
    r"\b(whole_parameter|whole_sizes|part_offset|optimizes_parts)\b": "full_parameter, full_sizes, shard_offset, optimizes_shards",
    r"\badopt_values\b": "reload_shards",
    r"\b\w+Books(?![a-z])\w*|\b[kK]?Accounting\w*": "memory tracker, tracked memory",
    r"\bkeeps_masters\b|\bfloat32 masters\b": "has_fp32_master_weights, master weights",
    r"\bmust_meet_?\b": "needs_barrier",
    r"\benv/claims\b|\bClaims claims\b": "settings",
    r"\bGradientCarriers\b|\bcarriers\b": "gradient buffers",
    r"\blaunch_gradients\b": "start_reduction",
    r"\bgoes_beside\b|\bsets? out\b": "overlaps; is enqueued, is sent",
    r"\bcredit_bytes\b|--credit\b": "in-flight limit",
    r"\b(gather_in|hand_out)\b": "intra-host reduce, intra-host broadcast",
    r"\bFabric\b|\bmisfit\b|\bstruct Told\b": "transports, incompatibility, agreed settings",
    r"\bshadow_\w+": "join_step",
    r"\bring_bells?\b|\bbell\b": "notify, wakeup",
    r"(?i)\bparts of (the |whole )?parameters\b|\bwhole parameters\b": "shards, full parameters",
    r"\bsettled?\(\)": "flush, is_flushed",
    r"\bthrow_if_hopeless\b|Stage::courtesy": "throw_if_peer_failed, preemption grace",
    r"\broot_place\b|\branks of (the same|one) place\b|\bby place on the host\b": "local rank",
    r"\b[Rr]eproducible sums\b|\b\w*ReproducibleJob|--reproducible\b|RONDO_REPRODUCIBLE": "deterministic reduction",
    r"\bpolish(es|ing)?\b": "local search",
    r"[Pp]rogrammes?\b": "program",
    r"\bstand_ins\b": "placeholders",
    r"\bFitPlan\b(?!`)|\b(Worker|Stream)Plan\b": "FitOutline; WorkerSpec, StreamSpec",
    r"\b(nobody counts|uncounted)\b": "unmodelled memory",
    r"(?<!deep and )\bnarrow(er)? (floating-point |model|parameter|tensor|type|dtype|weight)": "low-precision dtype",
}
READ = {".h", ".hpp", ".cpp", ".py", ".sh", ".md", ".js"}
# Exceptions: the glossary names replaced words (ByteScheduler's credit), and this file lists all of them.
EXCEPT = {"docs/glossary.md", "tests/integration/terms_test.py"}


# First words of comments that paraphrase: a comment begins with a verb or a noun phrase.
PARAPHRASE = re.compile(r"(?://|#|/\*)\s*((?:What|Of|Who|Whose|Where|For who)\b.*)")
COMMENTED = {".h", ".hpp", ".cpp", ".py", ".sh", ".js", ".css", ".cmake", ".in", ".cu", ".txt"}


def pages(repository):
    return [path for path in tracked_files(repository) if path.suffix == ".md"]


def test_replaced_words_do_not_come_back(repository):
    patterns = {re.compile(pattern): word for pattern, word in REPLACED.items()}
    found = []
    for path in tracked_files(repository):
        where = str(path.relative_to(repository))
        if path.suffix not in READ or where in EXCEPT:
            continue
        text = path.read_text(errors="replace")
        found += [f"{where}:{text.count(chr(10), 0, match.start()) + 1}: '{match.group()}', say: {word}"
                  for pattern, word in patterns.items() for match in pattern.finditer(text)]
    assert found == []


def paraphrases(text):
    """Returns number and text of comments that begin with a word of PARAPHRASE; lines that continue one are none."""
    found, is_continued = [], False
    for number, line in enumerate(text.splitlines(), 1):
        starts = re.match(r"\s*(//|#|/\*)", line)
        match = PARAPHRASE.match(line.lstrip()) if starts else PARAPHRASE.search(line, re.search(r"\s(//|#)\s|$", line).start())
        if match and not (starts and is_continued):
            found.append((number, match[1]))
        is_continued = bool(starts)
    return found


def test_comments_begin_with_verb_or_noun(repository):
    assert paraphrases("// What it does.\nint x;  // Of both\n// Returns the place\n// Where it is.\n# Whose\n") == [
        (1, "What it does."), (2, "Of both")]
    found = [f"{path.relative_to(repository)}:{number}: {text}" for path in tracked_files(repository)
             if path.suffix in COMMENTED and path.name != "terms_test.py" for number, text in paraphrases(path.read_text(errors="replace"))]
    assert found == []


@pytest.mark.parametrize("text", ["the books say", "MemoryLedger ledger;", "two programmes", "bell.fetch_add(1)", "ring_bell(peer)", "flat parts of parameters", "parts().settled()",
                                  "--credit 4MiB",
                                  "TEST(Meter, KeepsBooksByUnit)", "kAccountingExamples", "must_meet_ = true", "shadow_all()",
                                  "a narrow model", "the ranks of the same place", "AReproducibleJobSays", "const FitPlan& plan", "StreamPlan out"])
def test_the_check_sees_words(text):
    assert any(re.search(pattern, text) for pattern in REPLACED)


def hand_written(text):
    """Returns a page without generated parts, which are between <!-- name --> and <!-- end of name -->. Their lines are
    empty, so that line numbers stay."""
    return re.sub(r"(?ms)^<!-- (?P<name>[^\n]*) -->$.*?^<!-- end of (?P=name) -->$", lambda part: "\n" * part[0].count("\n"), text)


def prose(text):
    """Returns the numbers and texts of lines outside of code blocks."""
    found, code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        fence = line.lstrip().startswith("```")
        code = code != fence
        if not code and not fence:
            found.append((number, line))
    return found


def long_cells(page):
    return [f"{page.name}:{number}: {len(cell.split())} words" for number, line in prose(hand_written(page.read_text()))
            if line.startswith("|") for cell in re.split(r"(?<!\\)\|", line.strip("| ")) if len(cell.split()) > LONGEST_CELL]


def wide_lines(page):
    """Returns long lines, except rows of tables and lines that only a link makes long."""
    return [f"{page.name}:{number}: {len(line)} characters" for number, line in prose(hand_written(page.read_text()))
            if len(line) > WIDEST_LINE and not line.startswith("|") and not re.search(r"\]\([^)]*\)\S*$", line)]


def words_of(page):
    """Returns the number of words of a page's hand-written parts, without comments and the bars of tables."""
    return len(re.sub(r"(?s)<!--.*?-->", "", hand_written(page.read_text())).replace("|", " ").split())


def test_the_checks_see_cells_lines_and_words(tmp_path):
    page = tmp_path / "page.md"
    made = f"<!-- run as: a => b -->\n<!-- made -->\n| {'word ' * 16}|\n{'word ' * 30}\n<!-- end of made -->\n"
    page.write_text(f"| a | {'word ' * 16}|\n{made}| {'word ' * 15}|\n```\n{'x' * 121}\n```\n{'word ' * 24}x\n[text]({'x' * 121})\n")
    assert long_cells(page) == ["page.md:1: 16 words"]
    assert wide_lines(page) == ["page.md:11: 121 characters"]
    assert words_of(page) == 1 + 16 + 15 + 3 + 25 + 1


def words_of_name(name):
    """Returns the number of words of the name of a test in Python or C++."""
    return len(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name.removeprefix("test_")))


def test_names_of_tests_are_short(repository):
    assert words_of_name("test_resumes_bit_for_bit") == words_of_name("ResumesBitForBit") == 4
    found = []
    for path in tracked_files(repository / "tests"):
        text = path.read_text() if path.suffix in (".py", ".cpp", ".h") else ""
        names = re.findall(r"^def (test_\w+)\(", text, re.MULTILINE) + re.findall(r"^TEST(?:_[FP])?\(\w+,\s*(\w+)\)", text, re.MULTILINE)
        found += [f"{path.relative_to(repository)}: {name}" for name in names if words_of_name(name) > LONGEST_NAME]
    assert found == []


def test_cells_of_tables_are_short(repository):
    assert [cell for page in pages(repository) for cell in long_cells(page)] == []


def test_lines_are_at_most_120_characters_long(repository):
    assert [line for page in pages(repository) for line in wide_lines(page)] == []


def test_pages_are_short(repository):
    """A page of more words has two subjects, or repeats another page."""
    long = {str(page.relative_to(repository)): words_of(page) for page in (repository / "docs").rglob("*.md")}
    assert {name: words for name, words in long.items() if words > LONGEST_PAGE and name not in LONG_PAGES} == {}


def test_all_pages_together_are_short(repository):
    docs = repository / "docs"
    read = [page for page in docs.rglob("*.md") if page.name != "support.md" and "decisions" not in page.parts]
    assert sum(words_of(page) for page in read) <= MOST_WORDS


def reached_pages(readme):
    """Markdown pages that a reader reaches from `readme` through links."""
    reached, waiting = set(), [readme.resolve()]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for target in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text()):
            linked = (page.parent / target).resolve()
            if linked.exists():
                waiting.append(linked)
    return reached


def test_every_page_is_reached_from_the_readme(repository):
    """A page that nobody links to is not read."""
    reached = reached_pages(repository / "README.md")
    assert [str(page) for page in sorted((repository / "docs").rglob("*.md")) if page.resolve() not in reached] == []


def test_list_of_pages_equals_the_site(repository):
    result = subprocess.run([repository / "scripts" / "docs_index.py", "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_list_of_pages_names_what_it_lacks(repository, tmp_path):
    docs = tmp_path / "docs"
    (docs / "first").mkdir(parents=True)
    (docs / "index.md").write_text("# Site\n\n```{toctree}\n:caption: Start\n:glob:\n\nOverview </README>\nfirst\nguide*\n```\n")
    for page in ("README.md", "docs/first.md", "docs/first/below.md", "docs/guide_a.md"):
        (tmp_path / page).write_text(f"# Title of {page}\n")

    def index(*flags):
        return subprocess.run([repository / "scripts" / "docs_index.py", "--root", tmp_path, *flags], capture_output=True, text=True)

    assert index().returncode == 0
    assert (docs / "README.md").read_text().endswith(
        "## Start\n\n- [Overview](../README.md)\n- [Title of docs/first.md](first.md)\n"
        "  - [Title of docs/first/below.md](first/below.md)\n- [Title of docs/guide_a.md](guide_a.md)\n")
    assert index("--check").returncode == 0
    (docs / "lonely.md").write_text("# Lonely\n")
    result = index("--check")
    assert result.returncode == 1 and "docs/lonely.md: in no table of contents" in result.stderr
    (docs / "first.md").write_text("# Another title\n")
    assert "differs from docs/index.md" in index("--check").stderr


def test_every_decision_is_in_their_list(repository):
    decisions = repository / "docs" / "decisions"
    listed = (decisions / "README.md").read_text()
    assert [page.name for page in sorted(decisions.glob("[0-9]*.md")) if f"({page.name})" not in listed] == []
