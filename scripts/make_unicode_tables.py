#!/usr/bin/env python3
"""Writes rondo/data/unicode_tables.cpp: the handling of each Unicode character by BERT's tokenizer.

    .venv/bin/python scripts/make_unicode_tables.py

The tables are computed with the `tokenizers` package, character by character, because models were trained with it. Its
behaviour is fixed to the Unicode version that it was built with: a table of another version would split some words
differently.
"""
import pathlib

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

OUTPUT = pathlib.Path(__file__).resolve().parents[1] / "rondo" / "data" / "unicode_tables.cpp"
HANGUL = range(0xAC00, 0xD7A4)  # decomposed arithmetically
SURROGATES = range(0xD800, 0xE000)

HEADER = """// Made by scripts/make_unicode_tables.py: change that, not this.
#include "rondo/data/unicode_tables.h"

// clang-format off
namespace rondo::unicode {
"""


def ranges(points):
    """Returns consecutive code points as (first, last)."""
    result = []
    for point in points:
        if result and result[-1][1] == point - 1:
            result[-1][1] = point
        else:
            result.append([point, point])
    return result


def wrapped(items):
    """Returns the items, with commas, in lines of up to 116 columns."""
    lines, line = [], ""
    for item in items:
        if len(line) + len(item) > 114:
            lines.append(line)
            line = ""
        line += item + ","
    return "\n".join(lines + [line]) + "\n"


def array(kind, name, items):
    return f"\nstatic constexpr {kind} {name}_entries[] = {{\n{wrapped(items)}}};\nconst std::span<const {kind}> {name}{{{name}_entries}};\n"


def range_array(name, points):
    return array("Range", name, [f"{{0x{first:X},0x{last:X}}}" for first, last in ranges(points)])


def main():
    uncased = BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=None, lowercase=True)
    cased = BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    words = BertPreTokenizer()
    removed, spaces, accents, punctuation, single, several = [], [], [], [], {}, {}
    for point in range(0x110000):
        if point in SURROGATES:
            continue
        character = chr(point)
        kept = cased.normalize_str(character)
        if kept != character or kept == " ":
            (spaces if kept == " " else removed).append(point)
            continue
        lowered = uncased.normalize_str(character)
        if lowered == "":
            accents.append(point)
        elif lowered != character and point not in HANGUL:
            (single if len(lowered) == 1 else several)[point] = lowered
        if len(words.pre_tokenize_str("a" + character + "a")) == 3:
            punctuation.append(point)
    text = HEADER + range_array("removed", removed) + range_array("spaces", spaces) + range_array("accents", accents)
    text += range_array("punctuation", punctuation)
    text += array("Single", "lowered_to_one", [f"{{0x{p:X},0x{ord(t):X}}}" for p, t in single.items()])
    text += array("Several", "lowered_to_several",
                  [f"{{0x{p:X},{{{','.join(f'0x{ord(c):X}' for c in t)}}}}}" for p, t in several.items()])
    OUTPUT.write_text(text + "\n}  // namespace rondo::unicode\n")


if __name__ == "__main__":
    main()
