"""Trainings on a device against trainings on the CPU: strategies, precision, dropout, checkpoints, replicas, NCCL."""
import concurrent.futures
import os
import time

from report import KNOWN, OK, WRONG, SKIPPED, Check
from trainings import Failed, difference

EXACT = 1e-4  # relative, of every step's loss, in float32 without dropout
LONGEST = 45  # seconds that a training may take
LONGEST_COMPLETE = 600  # with --complete
TWO = ["--nproc-per-node", 2]
EXPERTS = ["--experts", 4, "--set", "capacity-factor=0"]

# Flags of each strategy on two ranks; the loss is that of one process.
AS_ONE_PROCESS = {
    "one_device": ["--strategy", "one_device"],
    "ddp": [*TWO, "--strategy", "ddp"],
    "ddp over gloo": [*TWO, "--strategy", "ddp", "--backend", "gloo"],
    "zero1": [*TWO, "--strategy", "zero1"],
    "zero2": [*TWO, "--strategy", "zero2"],
    "zero3": [*TWO, "--strategy", "zero3"],
    "zero3_keep": [*TWO, "--strategy", "zero3_keep"],
    "hsdp, a copy a rank": [*TWO, "--strategy", "hsdp", "--shard-ranks", 1],
    "hsdp, one copy": [*TWO, "--strategy", "hsdp", "--shard-ranks", 2],
    "random": [*TWO, "--strategy", "random", "--set", "strategy-seed=7"],
    "planned": [*TWO, "--strategy", "planned", "--memory-limit", "1GiB", "--plan-time-limit", "1s"],
    "multi_worker_mirrored": [*TWO, "--strategy", "multi_worker_mirrored"],
    "tpu": [*TWO, "--strategy", "tpu"],
    "pipeline 1f1b": [*TWO, "--strategy", "pipeline"],
    "pipeline gpipe": [*TWO, "--strategy", "pipeline", "--pipeline-schedule", "gpipe"],
    "pipeline zb_h1": [*TWO, "--strategy", "pipeline", "--pipeline-schedule", "zb_h1"],
    "pipeline interleaved": [*TWO, "--strategy", "pipeline", "--pipeline-schedule", "interleaved"],
    "pipeline zb_v": [*TWO, "--strategy", "pipeline", "--pipeline-schedule", "zb_v"],
    "tensor": [*TWO, "--strategy", "tensor"],
    "tensor, sequence": [*TWO, "--strategy", "tensor", "--set", "sequence-parallel=true"],
    "context": [*TWO, "--strategy", "context"],
    "accumulation": ["--gradient-accumulation-steps", 2],
    "checkpointed activations": ["--activation-checkpointing", "all"],
}
# Those whose losses are those of the same flags on the CPU.
AS_ON_THE_CPU = {
    "clipping, zero2": [*TWO, "--strategy", "zero2", "--max-grad-norm", 0.5],
    "expert": [*TWO, "--strategy", "expert", *EXPERTS],
    "local_sgd": [*TWO, "--strategy", "local_sgd", "--sync-period", 2],
    "grouped": [*TWO, "--strategy", "grouped", "--ps-groups", 1],
    "codec bfloat16": [*TWO, "--strategy", "ddp", "--codec", "bfloat16"],
}
# Relative bounds: each rounding of bfloat16 is 2^-8, of float16 2^-11, and means over tokens take most of it away.
PRECISION = {
    "bfloat16 O1": (["--precision", "O1"], 3e-3),
    "bfloat16 O2": (["--precision", "O2"], 3e-3),
    "bfloat16 O3": (["--precision", "O3"], 2e-2),
    "bfloat16 O2, zero2": ([*TWO, "--strategy", "zero2", "--precision", "O2"], 3e-3),
    "float16 O1": (["--precision", "O1", "--amp-dtype", "float16", "--loss-scale", "dynamic:1024"], 3e-3),
    "float16 O2": (["--precision", "O2", "--amp-dtype", "float16", "--loss-scale", "dynamic:1024"], 3e-3),
    "mixed precision of units, zero3": (
        [*TWO, "--strategy", "zero3", "--mixed-precision", "param=bfloat16,reduce=float32"], 3e-3),
}
# Checks that fail today, and why; each is removed with its mend.
KNOWN_FAULTS = {
    ("mirrored", "two replicas on one card"): "each replica needs a card of its own",
}


class Checker:
    """Runs comparisons of one part, several at once, and adds them to the report."""

    def __init__(self, part, context):
        self.part, self.context = part, context
        self.deadline = context.deadline_of(part)

    def all(self, comparisons):
        """`comparisons`: (name, function that returns (difference, bound, text))."""
        at_once = max(1, min(6, len(os.sched_getaffinity(0)) // 2))
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            selected = [comparison for comparison in comparisons if self.context.selects(comparison[0])]
            list(pool.map(lambda comparison: self.one(*comparison), selected))

    def one(self, name, compare):
        begin = time.monotonic()
        if self.deadline.left() <= 0:
            self.context.report.add(Check(self.part, name, self.context.without_time, "the part's time is over"))
            return
        figures = {}
        try:
            status, text, figures = compare()
        except Failed as failure:
            status, text = WRONG, str(failure)
            if self.deadline.left() <= 0 and time.monotonic() - begin < LONGEST:
                status, text = self.context.without_time, "the part's time was over before it ended"
        known = KNOWN_FAULTS.get((self.part, name))
        if status == WRONG and known and self.context.is_card:
            status, text = KNOWN, f"{text} [{known}]"
        self.context.report.add(Check(self.part, name, status, text, time.monotonic() - begin, figures))

    def losses(self, device, flags, run_dir=None):
        longest = LONGEST_COMPLETE if self.context.complete else LONGEST
        return self.context.trainings.losses(device, flags, self.deadline.left(longest), run_dir)


def compared(losses, wanted, bound):
    found = difference(losses, wanted)
    last = ", ".join(f"{values[-1]:.6g}" if values and values[-1] is not None else "none" for values in (losses, wanted))
    figures = {"losses": losses, "wanted": wanted, "difference": found if found != float("inf") else None, "bound": bound}
    return (OK if found <= bound else WRONG), f"last loss {last}; difference {found:.1e}, bound {bound:.0e}", figures


def equality(context):
    checker = Checker("equality", context)
    try:
        one_process = checker.losses("cpu", [])
    except Failed as failure:
        context.report.add(Check("equality", "one process on the CPU", WRONG, str(failure)))
        return

    def comparison(name, flags):
        def compare():
            wanted = checker.losses("cpu", flags) if name in AS_ON_THE_CPU else one_process
            return compared(checker.losses(context.device, flags), wanted, EXACT)

        return name, compare

    checker.all([comparison(name, flags) for name, flags in {**AS_ONE_PROCESS, **AS_ON_THE_CPU}.items()])


def precision(context):
    checker = Checker("precision", context)

    def comparison(name, flags, bound):
        return name, lambda: compared(checker.losses(context.device, flags), checker.losses("cpu", flags), bound)

    checker.all([comparison(name, *setting) for name, setting in PRECISION.items()])


def dropout(context):
    """The same seed gives the same masks with and without activations that are computed again."""
    checker = Checker("dropout", context)
    flags = ["--dropout", 0.2]
    again = [*flags, "--activation-checkpointing", "all"]
    checker.all([
        ("device as CPU", lambda: compared(checker.losses(context.device, flags), checker.losses("cpu", flags), EXACT)),
        ("checkpointed activations",
         lambda: compared(checker.losses(context.device, again), checker.losses(context.device, flags), EXACT)),
    ])


def resume(context):
    """Six steps on one device, six more on another, against twelve at once."""
    checker = Checker("resume", context)
    try:
        whole = checker.losses("cpu", [])
    except Failed as failure:
        context.report.add(Check("resume", "twelve steps on the CPU", WRONG, str(failure)))
        return

    def comparison(name, first, second, flags=()):
        def compare():
            run = context.trainings.new_run()
            checker.losses(first, ["--steps", 6, *flags], run)
            losses = checker.losses(second, ["--resume", *flags], run)
            return compared(losses, whole, EXACT)

        return name, compare

    device = context.device
    checker.all([
        comparison("saved and resumed on the device", device, device),
        comparison("saved on the device, resumed on the CPU", device, "cpu"),
        comparison("saved on the CPU, resumed on the device", "cpu", device),
        comparison("in parts, two ranks, on the device", device, device,
                   [*TWO, "--strategy", "zero2", "--checkpoint-sharded"]),
    ])


def mirrored(context):
    checker = Checker("mirrored", context)
    flags = ["--strategy", "mirrored", "--replicas", 2]
    checker.all([("two replicas on one card",
                  lambda: compared(checker.losses(context.device, flags), checker.losses("cpu", flags), EXACT))])


def nccl(context):
    checker = Checker("nccl", context)
    if context.device == "cpu":
        context.report.add(Check("nccl", "all", SKIPPED, context.no_device))
        return
    wanted = checker.losses("cpu", [])
    one_card = "sim:0" if context.is_simulated else context.device

    def one_rank(strategy):
        flags = ["--nproc-per-node", 1, "--strategy", strategy, "--backend", "nccl"]
        return f"one rank, {strategy}", lambda: compared(checker.losses(context.device, flags), wanted, EXACT)

    def refused():
        try:
            checker.losses(one_card, [*TWO, "--strategy", "ddp", "--backend", "nccl"])
        except Failed as failure:
            return (OK if "2 ranks of host" in str(failure) and "share 1 card" in str(failure) else WRONG), str(failure), {}
        return WRONG, "two ranks on one card were not refused", {}

    comparisons = [one_rank("ddp"), one_rank("zero1"), one_rank("zero3")]
    if context.cards == 1 or context.is_simulated:
        comparisons.append(("two ranks on one card", refused))
    checker.all(comparisons)
