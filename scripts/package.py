#!/usr/bin/env python3
"""Makes packages of a configured build in build/package, and what they need of it:  scripts/package.py [--build FOLDER] [wheel] [tar] [deb]"""
import argparse
import pathlib

from package_deb import make_deb
from package_libraries import ROOT
from package_stage import build_programs, default_build
from package_tar import make_tar
from package_wheel import make_wheel

MAKERS = {"wheel": make_wheel, "tar": make_tar, "deb": make_deb}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(MAKERS)} (default: all)")
    parser.add_argument("--build", type=pathlib.Path, default=default_build(), help="build folder (default: build/portable)")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "package", help="default: build/package")
    given = parser.parse_args()
    unknown = [kind for kind in given.kinds if kind not in MAKERS]
    if unknown:
        parser.error(f"unknown kind {unknown[0]}; there are {', '.join(MAKERS)}")
    given.output.mkdir(parents=True, exist_ok=True)
    build_programs(given.build.resolve())
    for kind in given.kinds or MAKERS:
        package = MAKERS[kind](given.build.resolve(), given.output.resolve())
        print(f"{package}: {package.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
