"""Checks rondo on a card: what the card and its driver can do, whether trainings on it give the CPU's losses, and how fast they are
beside PyTorch. Without a card the trainings run on the simulated accelerator of rondo's tests (else on the CPU), and what needs a card
is skipped with the reason.

    python3 scripts/gpu_check [--only PART] [--json FILE]      of the tree (make gpu-check)
    gpu-check.sh [--only PART] [--json FILE]                   of a bundle (make gpu-bundle)

Exit code 0: nothing is wrong (faults that are known are counted apart); 1: something is; 2: wrong usage.
"""
import argparse
import json
import os
import pathlib
import platform
import sys
import tempfile
import time

import correctness
import loading
import speed
from report import OK, SKIPPED, WRONG, Check, Report
from trainings import Deadline, Failed, Runner, Trainings

HERE = pathlib.Path(__file__).resolve().parent
# Parts in their order, and the most seconds of each.
PARTS = {"probes": 40, "loading": 40, "nccl": 40, "equality": 90, "precision": 40, "dropout": 30, "resume": 40, "mirrored": 20, "speed": 240}


class Context:
    """State that the parts share."""

    def __init__(self, arguments, report, scratch):
        environment = dict(os.environ)
        libtorch = environment.get("LIBTORCH") or sys.prefix
        environment["LIBTORCH"] = libtorch
        self.report = report
        self.python = arguments.python
        self.peers = arguments.peers
        self.programs = arguments.programs
        self.runner = Runner(environment)
        self.trainings = Trainings(arguments.programs / "rondo", self.runner, scratch)
        self.whole = Deadline(arguments.limit)
        self.complete = arguments.complete
        self.match = arguments.match
        self.device = arguments.device
        self.no_device = ""
        self.cards = 0

    def deadline_of(self, part):
        return Deadline(self.whole.left() if self.complete else self.whole.left(PARTS[part]))

    @property
    def without_time(self):
        """The status of a check for which no time is left."""
        return WRONG if self.complete else SKIPPED

    def selects(self, name):
        """Whether --match has the check of this name."""
        return not self.match or any(text in name for text in self.match)

    @property
    def is_card(self):
        return self.device.startswith("cuda")

    @property
    def is_simulated(self):
        return self.device.startswith("sim")

    def choose_device(self):
        """cuda where PyTorch sees a card, else sim where the programs have it, else cpu."""
        if self.device != "auto":
            self.no_device = f"--device {self.device}"
            return
        try:
            self.cards = int(self.runner.run([self.python, "-c", "import torch; print(torch.cuda.device_count())"], 60))
        except (Failed, ValueError) as failure:
            self.no_device = f"PyTorch cannot detect a GPU: {failure}"
        without_card = "sim" if (self.programs.parent / "lib" / "rondo_sim.so").exists() else "cpu"
        self.device = "cuda" if self.cards > 0 else without_card
        self.no_device = self.no_device or "PyTorch sees no CUDA device"


def probes(context):
    deadline = context.deadline_of("probes")
    begin = time.monotonic()
    try:
        version = context.runner.run([context.trainings.program, "--version"], deadline.left(20)).strip()
        context.report.facts["rondo"] = version
        context.report.add(Check("probes", "program", OK, version, time.monotonic() - begin))
    except (Failed, OSError) as failure:
        context.report.add(Check("probes", "program", WRONG, str(failure)))
    try:
        context.report.facts["doctor"] = context.runner.run([context.trainings.program, "doctor"], deadline.left(20)).splitlines()
    except Failed as failure:
        context.report.facts["doctor"] = [str(failure)]
    try:
        out = context.runner.run([context.python, HERE / "probes.py"], deadline.left())
    except Failed as failure:
        context.report.add(Check("probes", "card and driver", WRONG, str(failure)))
        return
    for line in out.splitlines():
        answer = json.loads(line)
        context.report.add(Check("probes", answer["name"], answer["status"], answer["text"], answer["seconds"], answer["figures"]))
        if answer["name"] == "card":
            context.report.facts["card"] = answer["figures"].get("name", "none")


RUN = {"probes": probes, "loading": loading.loading, "nccl": correctness.nccl, "equality": correctness.equality, "precision": correctness.precision,
       "dropout": correctness.dropout, "resume": correctness.resume, "mirrored": correctness.mirrored, "speed": speed.speed}


def parse_arguments():
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(PARTS), metavar="PART",
                        help=f"run this part; may be repeated. Parts: {', '.join(PARTS)}")
    parser.add_argument("--match", action="append", metavar="TEXT",
                        help="of the checks that compare or time trainings, run those with TEXT in their name; may be repeated")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON to this file")
    parser.add_argument("--device", default="auto", help="auto (default: cuda if there is a GPU, else sim), cuda, sim, sim:0 (all ranks on one device) or cpu")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="time limit of all parts together, in seconds (default 300, with --complete 7200)")
    parser.add_argument("--complete", action="store_true",
                        help="skip no check for lack of time: parts have no time limit, and a check that runs out of time is WRONG")
    parser.add_argument("--scratch", type=pathlib.Path, metavar="DIR", help="folder for run directories, up to 5 GB (default: $TMPDIR)")
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parent / "bin", metavar="DIR", help="folder of rondo's programs")
    parser.add_argument("--peers", type=pathlib.Path, default=HERE.parent / "peers", metavar="DIR", help="where gpu_step.py lies")
    parser.add_argument("--python", default=sys.executable, help="a Python with PyTorch (default: this one)")
    arguments = parser.parse_args()
    arguments.limit = arguments.limit or (7200 if arguments.complete else 300)
    if not (arguments.programs / "rondo").exists():
        parser.error(f"--programs {arguments.programs}: no rondo there")
    return arguments


def main():
    arguments = parse_arguments()
    arguments.programs = arguments.programs.resolve()
    report = Report({"python": platform.python_version(), "system": platform.platform(), "cores": len(os.sched_getaffinity(0)),
                     "libtorch": os.environ.get("LIBTORCH", "")})
    about = HERE.parent / "bundle.json"
    if about.exists():
        report.facts["bundle"] = json.loads(about.read_text())
    with tempfile.TemporaryDirectory(prefix="gpu-check-", dir=arguments.scratch, ignore_cleanup_errors=True) as scratch:
        context = Context(arguments, report, scratch)
        context.choose_device()
        report.facts["device"] = context.device
        for part in arguments.only or PARTS:
            begin = time.monotonic()
            if context.whole.left() <= 0:
                report.add(Check(part, "all", context.without_time, f"the {arguments.limit:.0f} s of all parts are over"))
                continue
            try:
                RUN[part](context)
            except Exception as error:  # any: the other parts still run, and what was found is written
                report.add(Check(part, "all", WRONG, f"{type(error).__name__}: {error}"))
            report.seconds[part] = time.monotonic() - begin
            if arguments.json:
                report.write(arguments.json)
    report.print_table()
    if arguments.json:
        report.write(arguments.json)
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
