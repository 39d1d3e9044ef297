#!/usr/bin/env python3
"""Writes rondo/data/decomposition_tables.cpp and composition_tables.cpp, with the combining classes, for NFC.

    .venv/bin/python scripts/make_normalization_tables.py

Uses the `tokenizers` package, as make_unicode_tables.py does: models were trained with its version of Unicode. The
package does not provide combining classes; they follow from the order in which it puts two marks.
"""
import pathlib
import unicodedata

from make_unicode_tables import HANGUL, SURROGATES, array
from tokenizers.normalizers import NFC, NFD

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "rondo" / "data"
HEADER = """// Made by scripts/make_normalization_tables.py: change that, not this.
#include "rondo/data/unicode_tables.h"

// clang-format off
namespace rondo::unicode {
"""
compose, decompose = NFC().normalize_str, NFD().normalize_str
POINTS = [point for point in range(0x110000) if point not in SURROGATES and point not in HANGUL]


def is_swapped(first, second):
    """Returns true if normalization swaps two marks, so that the class of the first is above that of the second."""
    return decompose("a" + first + second) == "a" + second + first


def combining_classes(decomposed):
    """Returns the class of every mark that is not a starter, in the package's order; skips decomposable marks."""
    known = {}  # one mark of each class, for the package and for Python
    for point in POINTS:
        value = unicodedata.combining(chr(point))
        # 0345 has the highest class and 0334 the lowest: one of them distinguishes a mark from a starter.
        if value and point not in decomposed and value not in known and \
                (is_swapped(chr(point), "\u0334") or is_swapped("\u0345", chr(point))):
            known[value] = chr(point)
    ordered = sorted(known)
    classes = {}
    for point in POINTS:
        mark = chr(point)
        if point in decomposed or not (is_swapped(mark, "\u0334") or is_swapped("\u0345", mark)):
            continue
        below = [value for value in ordered if known[value] != mark and is_swapped(mark, known[value])]
        rest = ordered[ordered.index(below[-1]) + 1:] if below else ordered
        classes[point] = rest[0] if rest else ordered[-1]
    return classes


def class_ranges(classes):
    result = []
    for point, value in sorted(classes.items()):
        if result and result[-1][1] == point - 1 and result[-1][2] == value:
            result[-1][1] = point
        else:
            result.append([point, point, value])
    return result


def main():
    decomposed = {point: decompose(chr(point)) for point in POINTS if decompose(chr(point)) != chr(point)}
    composed = []
    for point, parts in decomposed.items():
        if len(parts) > 1 and compose(parts) == chr(point):
            first = compose(parts[:-1])
            assert len(first) == 1 and compose(first + parts[-1]) == chr(point), hex(point)
            composed.append((ord(first), ord(parts[-1]), point))
    classes = combining_classes(decomposed)
    write("decomposition_tables.cpp", array("Decomposition", "decompositions", [
        f"{{0x{point:X},{{{','.join(f'0x{ord(part):X}' for part in parts)}}}}}" for point, parts in decomposed.items()]))
    write("composition_tables.cpp",
          array("Composition", "compositions", [f"{{0x{a:X},0x{b:X},0x{c:X}}}" for a, b, c in sorted(composed)]) +
          array("ClassRange", "combining_classes", [f"{{0x{a:X},0x{b:X},{c}}}" for a, b, c in class_ranges(classes)]))


def write(name, tables):
    (FOLDER / name).write_text(HEADER + tables + "\n}  // namespace rondo::unicode\n")


if __name__ == "__main__":
    main()
