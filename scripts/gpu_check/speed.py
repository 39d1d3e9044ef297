"""Steps of a GPT of 163 million parameters by rondo, and by PyTorch beside it."""
import array
import json
import random
import statistics
import time

from report import OK, SKIPPED, WRONG, Check
from trainings import Failed, remove, rows_of

WARM_UP = 5  # steps that are not counted
PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # bfloat16, dense, by a part of the card's name
LARGE = {"layers": 12, "heads": 12, "width": 768, "vocabulary": 50304, "context": 1024}
SMALL = {"layers": 2, "heads": 2, "width": 32, "vocabulary": 512, "context": 64}  # without a card: that all of it runs

# (name, samples a rank, ranks, steps, flags of rondo)
RONDO = [
    ("rondo, batch 16, O1", 16, 1, 40, ["--precision", "O1"]),
    ("rondo, batch 16, O2", 16, 1, 40, ["--precision", "O2"]),
    ("rondo, batch 4, O1", 4, 1, 60, ["--precision", "O1"]),
    ("rondo, batch 32, O1", 32, 1, 25, ["--precision", "O1"]),
    ("rondo, batch 16, checkpointed", 16, 1, 25, ["--precision", "O1", "--activation-checkpointing", "all"]),
    ("rondo, 2 ranks of batch 8, ddp", 8, 2, 12, ["--precision", "O1", "--strategy", "ddp"]),
    ("rondo, one rank, zero1", 16, 1, 20, ["--precision", "O1", "--strategy", "zero1"]),
    ("rondo, one rank, ddp over nccl", 16, 1, 20, ["--precision", "O1", "--strategy", "ddp", "--backend", "nccl"]),
    ("rondo, one rank, zero1 over nccl", 16, 1, 20, ["--precision", "O1", "--strategy", "zero1", "--backend", "nccl"]),
    ("rondo, 2 ranks of batch 8, zero3", 8, 2, 8, ["--precision", "O1", "--strategy", "zero3"]),
]
# (name, samples, steps, way)
PEERS = [
    ("PyTorch eager, batch 16", 16, 40, "eager"),
    ("PyTorch torch.compile, batch 16", 16, 40, "compile"),
    ("PyTorch DDP of one rank, batch 16", 16, 40, "ddp"),
    ("PyTorch eager, batch 4", 4, 60, "eager"),
    ("PyTorch eager, batch 32", 32, 25, "eager"),
]
# In this order while there is time: each comparison's two sides beside each other.
ORDER = ["rondo, batch 16, O1", "PyTorch eager, batch 16", "PyTorch torch.compile, batch 16", "rondo, batch 16, O2",
         "PyTorch DDP of one rank, batch 16", "rondo, batch 4, O1", "PyTorch eager, batch 4", "rondo, 2 ranks of batch 8, ddp",
         "rondo, batch 32, O1", "PyTorch eager, batch 32", "rondo, batch 16, checkpointed", "rondo, one rank, zero1",
         "rondo, one rank, ddp over nccl", "rondo, one rank, zero1 over nccl", "rondo, 2 ranks of batch 8, zero3"]


def parameters_of(config):
    width, layers, vocabulary = config["width"], config["layers"], config["vocabulary"]
    return layers * (12 * width**2 + 13 * width) + 2 * width + (2 * vocabulary + config["context"]) * width


def flops_of_token(config):
    """Forward and backward: six for each weight of a product, and attention's, whose half is masked away but counted."""
    embeddings = (config["vocabulary"] + config["context"]) * config["width"]
    return 6 * (parameters_of(config) - embeddings) + 12 * config["layers"] * config["width"] * config["context"]


def write_tokens(path, config):
    generator = random.Random(7)
    vocabulary = config["vocabulary"]
    count = 400 * (config["context"] + 1) * 4
    words = array.array("H", (min(int(generator.paretovariate(0.5)), vocabulary) - 1 for _ in range(count)))
    path.write_bytes(words.tobytes())


class Speed:
    def __init__(self, context):
        self.context = context
        self.config = LARGE if context.is_card else SMALL
        self.deadline = context.deadline_of("speed")
        card = context.report.facts.get("card", "")
        self.peak = next((flops for name, flops in PEAK_FLOPS.items() if name in card), None)
        self.tokens = context.trainings.scratch / "tokens.bin"
        write_tokens(self.tokens, self.config)

    def figures(self, milliseconds, samples, more):
        counted = milliseconds[WARM_UP:] or milliseconds[-1:]
        median = statistics.median(counted)
        rate = samples * self.config["context"] / median * 1000
        share = rate * flops_of_token(self.config) / self.peak if self.peak else None
        return {"median_ms": median, "least_ms": min(counted), "steps": len(counted), "tokens_per_s": rate, "mfu": share, **more}

    def rondo(self, samples, ranks, steps, flags):
        config = self.config
        data = ["--data", self.tokens, "--data-kind", "tokens", "--set", "token-type=uint16", "--set",
                f"vocabulary-size={config['vocabulary']}"]
        shape = ["--model", "gpt", "--layers", config["layers"], "--heads", config["heads"], "--width", config["width"], "--seq-len",
                 config["context"]]
        run_dir = self.context.trainings.new_run()
        try:
            self.context.trainings.train(self.context.device, [*shape, "--batch-size", samples, "--eval-batch-size", 1, "--steps", steps,
                                                               "--nproc-per-node", ranks, *flags], self.deadline.left(60), run_dir, data, "60s")
            rows = rows_of(run_dir)
        finally:
            remove(run_dir)
        return self.figures([row["step_ms"] for row in rows], samples * ranks,
                            {"losses": [row["loss"] for row in rows], "peak_bytes": rows[-1].get("peak_bytes")})

    def peer(self, samples, steps, way):
        out = self.context.runner.run(
            [self.context.python, self.context.peers / "gpu_step.py", "--way", way, "--device", self.context.device, "--batch-size",
             samples, "--steps", steps, "--config", json.dumps(self.config)], self.deadline.left(120 if way == "compile" else 60))
        answer = json.loads(out.splitlines()[-1])
        return self.figures(answer["step_ms"], samples, {"losses": answer["losses"], "peak_bytes": answer["peak_bytes"]})

    def no_sense(self, name):
        """Why a step is not timed without a card."""
        if self.context.is_simulated:
            return f"{self.context.no_device}: a simulated device has no times of its own"
        if not self.context.is_card and "nccl" in name:
            return self.context.no_device
        return ""

    def one(self, name, measure):
        begin = time.monotonic()
        reason = self.no_sense(name)
        if reason:
            self.context.report.add(Check("speed", name, SKIPPED, reason))
            return
        if self.deadline.left() < 5:
            self.context.report.add(Check("speed", name, self.context.without_time, "no time is left"))
            return
        figures = {}
        try:
            figures = measure()
            status, text = OK, f"{figures['median_ms']:.1f} ms, least {figures['least_ms']:.1f}, of {figures['steps']} steps"
        except Failed as failure:
            status, text = WRONG, str(failure)
        self.context.report.add(Check("speed", name, status, text, time.monotonic() - begin, figures))


def speed(context):
    side = Speed(context)
    measures = {name: (lambda s=samples, r=ranks, n=steps, f=flags: side.rondo(s, r, n, f)) for name, samples, ranks, steps, flags in RONDO}
    measures |= {name: (lambda s=samples, n=steps, w=way: side.peer(s, n, w)) for name, samples, steps, way in PEERS}
    for name in filter(context.selects, ORDER):
        side.one(name, measures[name])
