#!/usr/bin/env python3
"""Writes rondo/data/category_tables.cpp: the letters, numbers and white space for byte-pair tokenizers.

    .venv/bin/python scripts/make_category_tables.py

Uses the `tokenizers` package, as make_unicode_tables.py does: its regular expressions split the texts of trained
models.
"""
import pathlib

from make_unicode_tables import SURROGATES, range_array
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

OUTPUT = pathlib.Path(__file__).resolve().parents[1] / "rondo" / "data" / "category_tables.cpp"
HEADER = """// Made by scripts/make_category_tables.py: change that, not this.
#include "rondo/data/unicode_tables.h"

// clang-format off
namespace rondo::unicode {
"""


def points_of(expression):
    """Returns the characters that match: between two that do not match, each is split off."""
    cut = Split(Regex(expression), behavior="isolated")
    return [point for point in range(0x110000)
            if point not in SURROGATES and len(cut.pre_tokenize_str("!" + chr(point) + "!")) == 3]


def main():
    text = HEADER
    for name, expression in [("letters", r"\p{L}"), ("numbers", r"\p{N}"), ("white_space", r"\s")]:
        text += range_array(name, points_of(expression))
    OUTPUT.write_text(text + "\n}  // namespace rondo::unicode\n")


if __name__ == "__main__":
    main()
