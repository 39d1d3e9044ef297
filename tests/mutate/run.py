#!/usr/bin/env python3
"""Damages valid inputs of every kind randomly and runs the programs on them; see README.md."""
import argparse
import os
import pathlib
import random
import secrets
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import corpus  # noqa: E402
import crafted  # noqa: E402
import judge  # noqa: E402
import mutations  # noqa: E402

MOST_BYTES = 2 << 30
# For programs with a limited address space; libtorch and the sanitizers reserve more than they use.
ADDRESS_BYTES = 4 << 30


def environment(folder):
    dropped = ("PET_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "RONDO_", "TF_CONFIG", "WORLD_SIZE", "RANK", "LOCAL_RANK")
    env = {key: text for key, text in os.environ.items() if not key.startswith(dropped)}
    return env | {"TMPDIR": str(folder), "HOME": str(folder), "OMP_NUM_THREADS": "1", "RONDO_MATMUL": "libtorch"}


def mutate(case, target, dice):
    """Damages the copy; returns a description, the required environment variables, and the command."""
    if not case.is_file:
        way = dice.choice(case.ways)
        # A word may be a path to write: never one outside the folder.
        text = way(case.target.encode(), dice).replace(b"\0", b"?").replace(b"/" if case.word else b"\0", b"_")[:100_000]
        damaged = os.fsdecode(text)
        if case.variable:
            return way.__name__, {case.variable: damaged}, case.command
        return way.__name__, {}, [damaged if word == case.target else word for word in case.command]
    if dice.random() < 0.06:
        return mutations.replace_file(target, dice), {}, case.command
    data = target.read_bytes()
    done = []
    for _ in range(dice.choice([1, 1, 1, 2, 4])):
        way = dice.choice(case.ways)
        data = way(data, dice)
        done.append(way.__name__)
    target.write_bytes(mutations.seal(data) if case.sealed and target.name == "manifest.json" else data)
    if case.sealed and target.name != "manifest.json":
        mutations.reseal(target.parent)
    return " ".join(done), {}, case.command


def attempt(root, binaries, case, seed, number, keep=False):
    """Runs one program on one damaged input; returns None, or a text with the failures."""
    dice = random.Random(f"{seed}:{number}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="rondo-mutate-"))
    try:
        target = corpus.copy(root, case, folder / "home")
        done, variables, command = mutate(case, target, dice)
        sanitized = "ASAN_OPTIONS" in os.environ
        end = judge.run([binaries / command[0], *command[1:]], folder / "home", environment(folder) | case.environment | variables,
                        case.seconds * float(os.environ.get("RONDO_MUTATE_PATIENCE", 3)),
                        0 if case.torch or sanitized else ADDRESS_BYTES)
        names = (target.name, target.parent.name) if target else (case.variable or case.command[0],)
        found = judge.complaints(end, (*names, *case.names), 2 * MOST_BYTES if case.torch else MOST_BYTES)
        if not found:
            return None
        return f"{seed}:{number} {case.name} ({done}): {'; '.join(found)}\n    {end.err[-400:].strip()}"
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def run_many(root, binaries, cases, seed, numbers, workers, seconds=None):
    """Returns the failures and the number of runs. Stops early after `seconds`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    ran, found = 0, []

    def one(number):
        if deadline is not None and time.monotonic() > deadline:
            return None
        return number, attempt(root, binaries, cases[number % len(cases)], seed, number)

    with ThreadPoolExecutor(workers) as pool:
        for result in pool.map(one, numbers):
            if result is not None:
                ran += 1
                if result[1] is not None:
                    found.append(result[1])
                    print(result[1], flush=True)
    return found, ran


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of all numbers; one by chance when not given")
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--only", help="SEED:NUMBER, one again")
    parser.add_argument("--program", help="only cases whose name begins so")
    parser.add_argument("--crafted", action="store_true", help="the attacks written by hand alone")
    arguments = parser.parse_args()
    binaries = judge.programs()
    with tempfile.TemporaryDirectory(prefix="rondo-corpus-") as place:
        root = pathlib.Path(place) / "corpus"
        cases = corpus.make(root, binaries)
        if arguments.program:
            cases = [case for case in cases if case.name.startswith(arguments.program)]
        if arguments.only:
            seed, number = map(int, arguments.only.split(":"))
            wrong = attempt(root, binaries, cases[number % len(cases)], seed, number)
            print(wrong or "nothing wrong")
            return 1 if wrong else 0
        wrong = 0
        attacks = crafted.all_attacks() if not arguments.program else {}
        for name, attack in attacks.items():
            folder = pathlib.Path(place) / "attacks" / name.replace(" ", "-").replace("/", "-")
            folder.mkdir(parents=True)
            found = attack(crafted.Workplace(binaries, root, folder, environment(folder)))
            wrong += bool(found)
            for what in found:
                print(f"{name}: {what}", flush=True)
        print(f"{len(attacks)} attacks, {wrong} with something wrong", flush=True)
        if arguments.crafted:
            return 1 if wrong else 0
        seed = arguments.seed if arguments.seed is not None else secrets.randbelow(1 << 31)
        print(f"seed {seed}, {arguments.count} damaged inputs of {len(cases)} kinds", flush=True)
        found, ran = run_many(root, binaries, cases, seed, range(arguments.count), os.cpu_count() or 1)
        print(f"{ran} damaged inputs, {len(found)} with something wrong (seed {seed})")
        return 1 if wrong or found else 0


if __name__ == "__main__":
    sys.exit(main())
