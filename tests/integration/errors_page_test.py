"""The reference of errors (docs/errors*.md): it names every class that users can catch, and messages that are printed."""
import re

from public_headers_test import public_headers

CLASS = re.compile(r"^class (\w+)(?: final)? : public ((?:\w+)Error|Error)\b", re.M)
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
WORD = re.compile(r"[a-z0-9_./'-]+")
# Messages of the system: its loader and its network.
OF_THE_SYSTEM = ("error while loading shared libraries", "GLIBC_2.34", "No route to host", "Connection timed out")


def message_rows(text):
    """Returns (line, message) of every message in the first column of a table of messages."""
    rows, inside = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lower().startswith("| message"):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|--"):
            rows += [(number, message) for message in re.findall(r"`([^`]+)`", line.split(" | ")[0])]
    return rows


def words_of_messages(repository):
    """Returns the words of all texts in the sources, with a mark between two texts."""
    texts = []
    for folder in ("rondo", "apps", "python"):
        for path in sorted((repository / folder).rglob("*")):
            if path.suffix in (".cpp", ".h", ".py"):
                code = re.sub(r"^\s*(//|#include).*", "", path.read_text(), flags=re.M)
                texts += LITERAL.findall(re.sub(r'"\s*\n\s*"', "", code))
    return " " + " | ".join(" ".join(WORD.findall(text.lower())) for text in texts) + " "


def is_printed(message, printed):
    """Returns whether three words in a row, or two long ones, are in one text of the sources: names and numbers vary."""
    words = WORD.findall(message.replace("...", " ").lower())
    runs = [" ".join(words[start:start + length]) for length in (3, 2) for start in range(len(words) - length + 1)]
    return any(f" {run} " in printed and (run.count(" ") == 2 or len(run) > 8) for run in runs)


def test_documented_messages_exist(repository):
    printed = words_of_messages(repository)
    rows = {path: message_rows(path.read_text()) for path in sorted((repository / "docs").glob("*.md"))}
    assert len(rows[repository / "docs" / "errors.md"]) > 20
    assert [f"{path.relative_to(repository)}:{number}: no source has a message like '{message}'"
            for path, found in rows.items() for number, message in found
            if not is_printed(message, printed) and not any(text in message for text in OF_THE_SYSTEM)] == []


def test_a_message_that_nobody_prints_is_recognised():
    printed = " cannot write | rank | was killed by sigkill | "
    assert is_printed("cannot write .../x: No space left on device", printed)
    assert is_printed("rank 3 was killed by SIGKILL; ...", printed)
    assert not is_printed("rank 3 was stopped by SIGSTOP", printed)


def test_page_names_every_error_class(repository):
    page = (repository / "docs" / "errors.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.M))
    declared = {name for header in public_headers(repository) for name, _ in CLASS.findall((repository / header).read_text())}
    assert len(declared) >= 7
    assert declared - listed == set()
