#!/usr/bin/env python3
"""Writes the headers that `cmake --install` installs:  scripts/install_headers.py SOURCE OUTPUT

The public headers are rondo/*.h and rondo/extend/*.h, each a list of includes of the sources. An installed public
header contains the text of these headers instead of the list, and of the headers that they include, each once: in the
first public header that needs it, in the order below. Later public headers include that one. So users cannot depend on
other headers, and no path of the sources becomes part of the interface."""
import pathlib
import re
import sys

# Each header may include the previous ones.
ORDER = ["core", "extend/options", "extend/algorithm", "collectives", "nn", "memory", "precision", "data", "models", "checkpoint", "strategy", "parallel", "train", "plan",
         "extend/engine", "extend/codec", "extend/model", "extend/strategy", "rondo"]
INCLUDE = re.compile(r'^#include "(rondo/.*?)"\n', re.MULTILINE)


def installed_headers(source):
    """Returns the texts of the installed headers by path; raises ValueError for a public header that is not in
    ORDER."""
    public = [f"rondo/{name}.h" for name in ORDER]
    there = {str(path.relative_to(source)) for folder in ("rondo", "rondo/extend") for path in (source / folder).glob("*.h")}
    if there != set(public):
        raise ValueError(f"rondo/*.h and rondo/extend/*.h are {sorted(there)}, and ORDER in {__file__} names {sorted(public)}")
    listed = {name for header in public for name in INCLUDE.findall((source / header).read_text())}
    home, texts = {}, {}  # home: the public header that has a header's text

    for header in public:
        pieces, needed = [], []

        def take(name):
            if name in public:
                if public.index(name) >= public.index(header):
                    raise ValueError(f"{header} includes {name}, which comes later in ORDER")
                needed.append(name)
            elif name in home:
                needed.append(home[name])
            else:
                home[name] = header
                text = (source / name).read_text()
                for included in INCLUDE.findall(text):
                    take(included)
                mark = "" if name in listed else ": internal, may change in any version"
                code = INCLUDE.sub("", text).replace("#pragma once\n", "", 1)
                pieces.append(f"\n// {name}{mark}\n" + re.sub(r"\n{3,}", "\n\n", code).lstrip("\n"))

        text = (source / header).read_text()
        for included in INCLUDE.findall(text):
            take(included)
        others = sorted(set(needed) - {header}, key=public.index)
        head = INCLUDE.sub("", text).rstrip("\n")
        texts[header] = "\n".join([head, "", *(f'#include "{name}"' for name in others)]).rstrip("\n") + "\n" + "".join(pieces)
    return texts


def main():
    source, output = map(pathlib.Path, sys.argv[1:])
    for header, text in installed_headers(source).items():
        (output / header).parent.mkdir(parents=True, exist_ok=True)
        (output / header).write_text(text)


if __name__ == "__main__":
    main()
