#!/usr/bin/env python3
"""Installs what shells and `man` read: completion scripts and manual pages, made by a built rondo.

install_shell_files.py PROGRAM SHARE: PROGRAM is the built `rondo`, SHARE the folder share of the installation.
"""
import pathlib
import subprocess
import sys
import tempfile

import man_pages

SCRIPTS = {"bash": "bash-completion/completions/rondo", "zsh": "zsh/site-functions/_rondo",
           "fish": "fish/vendor_completions.d/rondo.fish"}


def main(program, share):
    share = pathlib.Path(share)
    with tempfile.TemporaryDirectory() as folder:
        # Every program is asked once.
        commands = pathlib.Path(folder) / "commands.json"
        commands.write_bytes(subprocess.run([program, "--help-json"], check=True, stdout=subprocess.PIPE).stdout)
        for shell, place in SCRIPTS.items():
            script = subprocess.run([program, "completion", shell, "--from", commands], check=True, stdout=subprocess.PIPE)
            (share / place).parent.mkdir(parents=True, exist_ok=True)
            (share / place).write_bytes(script.stdout)
        man_pages.main(commands, share / "man" / "man1")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
