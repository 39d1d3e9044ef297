#!/usr/bin/env python3
"""The cost of local SGD's averages over a shaped link, and their effect on the loss.

Speed: GPT of 25.5 M parameters between two emulated hosts, alternating between no communication at all (an infinite
period), DiLoCo with period 50, and ddp. The result is the mean time of a step after the first ten, over whole periods.
Needs root (network namespaces) and an otherwise idle machine.
Loss: gpt-tiny on the project's sources, 2,000 steps on two ranks: ddp, and local SGD after 200 synchronous steps.

  bench/local_sgd.py [--turns 2] [--docs] [--json FILE]
  bench/local_sgd.py --quick                               a small model, few steps: does it run?
"""
import dataclasses
import datetime
import json
import pathlib
import tempfile

from harness import (BIN, TRAIN_QUIETLY, finish, linked_hosts, on_both, parser_of, rondo, step_rows, steps_per_s, table,
                     write_training_text)

FIRST = 10


@dataclasses.dataclass
class Size:
    """The size of the measurement: the model and the period of averages for the speed; the number of steps for the
    loss, and how many of them are synchronous."""
    model: str = "gpt-25m"
    period: int = 50
    steps: int = 2000
    synchronous: int = 200

    def ways(self):
        diloco = ["--strategy", "local_sgd", "--outer-optimizer", "diloco", "--sync-period", self.period]
        return {"no communication": ["--strategy", "local_sgd", "--sync-period", 1000000],
                f"DiLoCo, period {self.period}": diloco,
                f"DiLoCo, period {self.period}, 2 fragments, delay 5": [*diloco, "--set", "sync-fragments=2", "--set", "sync-delay=5"],
                "ddp": ["--strategy", "ddp"]}

    def learning(self):
        local = ["--strategy", "local_sgd", "--sync-period", self.period, "--set", f"synchronous-steps={self.synchronous}"]
        return {"ddp": ["--strategy", "ddp"], f"local SGD, period {self.period}": local,
                f"DiLoCo, period {self.period}": [*local, "--outer-optimizer", "diloco"]}


def speeds(folder, text, size, turns):
    found = {way: [] for way in size.ways()}
    port = 29700
    with linked_hosts("1gbit") as hosts:
        for turn in range(turns):
            for way, flags in size.ways().items():
                port += 1
                run = folder / f"{turn}-{port}"
                steps = 30 if way == "ddp" else FIRST + size.period
                on_both(hosts, port, BIN / "rondo-train-worker", "--data", text, "--model", size.model, "--batch-size", 4, "--steps", steps,
                        "--run-dir", run, *TRAIN_QUIETLY, *flags)
                # Under every strategy a rank's step takes the same number of tokens.
                found[way].append(1e3 / steps_per_s(step_rows(run), FIRST))
                print(f"{way}: {found[way][-1]:.0f} ms a step", flush=True)
    return {way: min(values) for way, values in found.items()}


def losses(folder, text, size):
    found = {}
    for number, (way, flags) in enumerate(size.learning().items()):
        run = folder / f"loss-{number}"
        rondo("train", "--data", text, "--model", "gpt-tiny", "--nproc-per-node", 2, "--batch-size", 8, "--steps", size.steps, "--seed", 1,
              "--lr", 1e-3, "--trace-steps", 0, "--progress", "off", "--run-dir", run, *flags)
        rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        found[way] = [row["validation_loss"] for row in rows if "validation_loss" in row][-1]
        print(f"{way}: validation loss {found[way]:.4f}", flush=True)
    return found


def page(speed, loss, size):
    alone, synchronous = speed["no communication"], loss["ddp"]
    return [f"Measured by `bench/local_sgd.py`: two ranks, a core each. <!-- {datetime.date.today()} -->", "",
            *table([f"{size.model} over 1 Gbit/s", "ms a step", "tokens/s of no communication"],
                   [[way, f"{value:.0f}", f"{alone / value:.3f}"] for way, value in speed.items()]), "",
            *table([f"gpt-tiny, {size.steps:,} steps, the first {size.synchronous} synchronous", "validation loss", "against ddp"],
                   [[way, f"{value:.4f}", f"{value / synchronous - 1:+.2%}"] for way, value in loss.items()])]


def main():
    parser = parser_of(__doc__, docs="local_sgd.md")
    parser.add_argument("--turns", type=int, default=2, help="of the runs whose speed is compared")
    parser.add_argument("--quick", action="store_true", help="gpt-tiny, one turn, few steps")
    arguments = parser.parse_args()
    if arguments.quick and arguments.docs:
        parser.error("--docs writes what was measured; --quick measures nothing")
    size = Size(model="gpt-tiny", period=6, steps=30, synchronous=10) if arguments.quick else Size()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        text = folder / "text.txt"
        write_training_text(text)
        speed = speeds(folder, text, size, 1 if arguments.quick else arguments.turns)
        loss = losses(folder, text, size)
    finish(arguments, {"step_ms": speed, "validation_loss": loss}, page(speed, loss, size), "local_sgd.md", "local SGD")


if __name__ == "__main__":
    main()
