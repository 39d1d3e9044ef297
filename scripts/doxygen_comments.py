#!/usr/bin/env python3
"""Doxygen's input filter: converts the plain `//` comments of a header to Doxygen's, line for line.

A block directly above a declaration documents it (`///`), a comment after a declaration documents that declaration
(`///<`), a block above a namespace documents the file. A block followed by an empty line is about a section, and stays
a comment.
"""
import re
import sys

COMMENT = re.compile(r"^(\s*)//(?!/)\s?(.*)$")
# A comment after code, outside string literals: `int a = 1;  // description`. Comments that close a namespace or
# address a tool are excluded.
BEHIND = re.compile(r'^([^"]*?(?:"(?:[^"\\]|\\.)*"[^"]*?)*?[;,{}\w)])(\s+)// (?!NOLINT|namespace\b)(.*)$')


def documented(lines):
    out, number = [], 0
    while number < len(lines):
        end = number
        while end < len(lines) and COMMENT.match(lines[end]):
            end += 1
        if end > number:
            following = lines[end].strip() if end < len(lines) else ""
            out += block(lines[number:end], following)
            number = end
            continue
        behind = None if lines[number].lstrip().startswith("}  //") else BEHIND.match(lines[number])
        if not behind:
            out.append(lines[number])
            number += 1
            continue
        column = len(behind[1]) + len(behind[2])
        out.append(f"{behind[1]}{behind[2]}///< {behind[3]}")
        number += 1
        while number < len(lines) and (more := COMMENT.match(lines[number])) and len(more[1]) == column:
            out.append(f"{more[1]}///< {more[2]}")
            number += 1
    return out


def block(lines, following):
    if not following or following.startswith(("}", "#", "private:")):
        return lines
    texts = [COMMENT.match(line).groups() for line in lines]
    if following.startswith("namespace"):
        return [f"/// @file\n/// {texts[0][1]}"] + [f"/// {text}" for _, text in texts[1:]]
    return [f"{indent}/// {text}" for indent, text in texts]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(documented(file.read().splitlines())))


if __name__ == "__main__":
    main()
