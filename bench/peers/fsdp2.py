#!/usr/bin/env python3
"""PyTorch's own strategies over rondo's engine and over Gloo, in alternating short bursts:

    bench/peers/fsdp2.py [--strategies fsdp2,ddp] [--json FILE]
    bench/peers/fsdp2.py --emulate-hosts 2 --rate 1gbit --ranks 4 --strategies independent,ddp,fsdp2

With --emulate-hosts 2 half of the ranks runs on each of two network namespaces, joined by a link of --rate in each direction
(needs root). Then the strategy "independent", ranks that do not communicate, measures the computation of a step, and DDP's step
is compared with the longer of that and the time in which the line carries the gradients once.

All systems train the same model on the same batches. Every rank is one process with one thread, pinned to its own core
if there are enough. Prints a table, and with --json (FILE or -) the rows of `rondo bench step` and the ratios.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from leaving import leave
from peer_ratio import peer_ratio

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from harness import linked_hosts  # noqa: E402

REPOSITORY = HERE.parents[1]
PACKAGE = REPOSITORY / "build" / "release" / "python"
MODELS = {
    "gpt-25m": {"layers": 8, "width": 512, "heads": 8, "context": 128, "vocabulary": 256},
    "gpt-tiny": {"layers": 4, "width": 128, "heads": 4, "context": 64, "vocabulary": 256},
}
# Goals by (strategy, model, hosts): speed over rondo as a multiple of the speed over Gloo.
GOALS = {("fsdp2", "gpt-25m", 1): 1.2, ("fsdp2", "gpt-25m", 2): 1.5}
PORT = 29660  # of the first contestant on emulated hosts


def worker(arguments):
    """One rank: answers each line "run N" or "profile N" with a line of N losses and N step times."""
    import torch
    import torch.distributed as dist
    from gpt import Gpt
    from step import answer_of, token_batch
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn import functional

    if arguments.engine == "rondo":
        import rondo_torch  # noqa: F401

    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= arguments.ranks:
        os.sched_setaffinity(0, {cores[arguments.rank]})
    dist.init_process_group(arguments.engine, init_method=arguments.rendezvous, rank=arguments.rank,
                            world_size=arguments.ranks)
    torch.manual_seed(1)
    config = MODELS[arguments.model]
    model = Gpt(config)
    if arguments.strategy == "fsdp2":
        for block in model.transformer.h:
            fully_shard(block)
        fully_shard(model)
    elif arguments.strategy != "independent":
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    settings = {"lr": 3e-4, "fused": True}
    if arguments.strategy == "zero1":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **settings)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), **settings)

    def step(number):
        tokens, targets = token_batch(config, arguments.batch_size, number, arguments.rank)
        begin = time.perf_counter()
        optimizer.zero_grad()
        logits = model(tokens)
        loss = functional.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item(), (time.perf_counter() - begin) * 1e3

    print(json.dumps({"ready": True}), flush=True)
    first = 0
    for line in sys.stdin:
        count = int(line.split()[1])
        profiled = line.startswith("profile")
        profiling = torch.profiler.profile() if profiled else contextlib.nullcontext()
        with profiling:
            steps = [step(first + i) for i in range(count)]
        first += count
        answer = answer_of(steps)
        if profiled:
            answer["profile"] = profiling.key_averages().table(sort_by="self_cpu_time_total", row_limit=25)
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()
    leave()


class Contestant:
    """The ranks of one strategy over one engine."""

    def __init__(self, strategy, engine, arguments, hosts, rendezvous):
        self.strategy, self.engine = strategy, engine
        self.losses, self.times, self.peak = [], [[] for _ in range(arguments.ranks)], 0
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        environment["PYTHONPATH"] = os.pathsep.join([environment.get("PYTHONPATH", ""), str(PACKAGE)])

        def on_host(rank, words):
            return hosts[rank * len(hosts) // arguments.ranks].command(*words) if hosts else words

        def interface(rank):
            return {"GLOO_SOCKET_IFNAME": hosts[rank * len(hosts) // arguments.ranks].interface} if hosts else {}

        self.ranks = [
            subprocess.Popen(
                on_host(rank, [sys.executable, __file__, "--worker", "--strategy", strategy, "--engine",
                               engine, "--rank", str(rank), "--ranks", str(arguments.ranks), "--batch-size",
                               str(arguments.batch_size), "--model", arguments.model, "--rendezvous", rendezvous]),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment | interface(rank))
            for rank in range(arguments.ranks)
        ]
        self.answers()

    def answers(self):
        lines = [process.stdout.readline() for process in self.ranks]
        if not all(lines):
            sys.exit(f"a rank of {self.strategy} over {self.engine} has ended")
        return [json.loads(line) for line in lines]

    def ask(self, word, count):
        for process in self.ranks:
            process.stdin.write(f"{word} {count}\n")
            process.stdin.flush()
        return self.answers()

    def burst(self, count, counted):
        answers = self.ask("run", count)
        self.losses += [statistics.mean(of_ranks) for of_ranks in zip(*(answer["losses"] for answer in answers))]
        self.peak = max(answer["peak_rss_bytes"] for answer in answers)
        if counted:
            for times, answer in zip(self.times, answers):
                times += answer["step_ms"]

    def end(self):
        for process in self.ranks:
            process.stdin.close()
        for process in self.ranks:
            process.wait()

    def row(self, arguments):
        times = [milliseconds for of_rank in self.times for milliseconds in of_rank]
        tokens = arguments.batch_size * MODELS[arguments.model]["context"]
        return {
            "system": "pytorch",
            "strategy": self.strategy,
            "setting": f"over {self.engine}",
            "model": arguments.model,
            "ranks": arguments.ranks,
            "hosts": arguments.emulate_hosts,
            "rate": arguments.rate if arguments.emulate_hosts > 1 else None,
            "dtype": "float32",
            "step_ms_p50": round(statistics.median(times), 3),
            "step_ms_min": round(min(times), 3),
            "tokens_per_s": round(sum(tokens / statistics.median(of_rank) * 1e3 for of_rank in self.times), 1),
            "peak_rss_bytes": self.peak,
            "final_loss": self.losses[-1],
        }


def line_seconds(config, rate):
    """The time in which the line carries the model's gradients once, which is what each of two hosts sends."""
    from gpt import Gpt

    amount, unit = re.fullmatch(r"([0-9.]+)([kmg]bit)", rate).groups()
    bits = 32 * sum(parameter.numel() for parameter in Gpt(config).parameters())
    return bits / (float(amount) * {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}[unit])


def floor_ratio(rows, arguments):
    """The step of DDP over rondo as a multiple of the longer of computation and line."""
    line_ms = line_seconds(MODELS[arguments.model], arguments.rate) * 1e3
    computation = next(row for row in rows if row["strategy"] == "independent")
    ddp = next(row for row in rows if row["strategy"] == "ddp" and row["setting"] == "over rondo")
    return {"ratio": "step_over_floor", "model": arguments.model, "dtype": "float32", "of": "pytorch ddp over rondo",
            "to": f"the longer of computation ({computation['step_ms_p50']} ms) and line ({line_ms:.0f} ms)",
            "value": round(ddp["step_ms_p50"] / max(computation["step_ms_p50"], line_ms), 3),
            "of_minima": round(ddp["step_ms_min"] / max(computation["step_ms_min"], line_ms), 3), "goal": 1.3}


def ratio_of(rondo, gloo):
    value, of_minima = peer_ratio(rondo["step_ms_p50"], rondo["step_ms_min"], gloo["step_ms_p50"], gloo["step_ms_min"])
    return {
        "ratio": "tokens_per_s",
        "model": rondo["model"],
        "dtype": rondo["dtype"],
        "of": f"pytorch {rondo['strategy']} over rondo",
        "to": f"pytorch {gloo['strategy']} over gloo",
        "value": round(value, 3),
        "by": "min" if of_minima else "p50",
        "goal": GOALS.get((rondo["strategy"], rondo["model"], rondo["hosts"])),
    }


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", default="fsdp2,ddp", help="of fsdp2, ddp, zero1; independent: ranks that do not communicate")
    parser.add_argument("--engines", default="gloo,rondo")
    parser.add_argument("--model", default="gpt-25m", choices=MODELS)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--emulate-hosts", type=int, default=1, choices=[1, 2])
    parser.add_argument("--rate", default="1gbit", help="of the link between emulated hosts, as tc names it")
    parser.add_argument("--batch-size", type=int, default=4, help="samples per rank")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3, help="steps of one turn")
    parser.add_argument("--profile", action="store_true", help="print where rank 0's time goes, and end")
    parser.add_argument("--json", metavar="FILE", help="'-' for standard output")
    for name in ["strategy", "engine", "rendezvous"]:
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.worker:
        worker(arguments)
        return
    pairs = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        hosts = stack.enter_context(linked_hosts(arguments.rate)) if arguments.emulate_hosts > 1 else []
        for number, strategy in enumerate(arguments.strategies.split(",")):
            # Ranks that do not communicate compute the same over every engine.
            engines = arguments.engines.split(",")[:1 if strategy == "independent" else None]
            pairs.append([Contestant(strategy, engine, arguments, hosts,
                                     f"tcp://{hosts[0].address}:{PORT + 2 * number + i}" if hosts
                                     else f"file://{folder}/{strategy}-{engine}") for i, engine in enumerate(engines)])
        everybody = [contestant for pair in pairs for contestant in pair]
        for turn in range(arguments.turns + 1):
            # The order changes, so that no contestant always follows the same other one.
            for contestant in everybody if turn % 2 else reversed(everybody):
                contestant.burst(arguments.steps, counted=turn > 0)
        if arguments.profile:
            for contestant in everybody:
                print(f"{contestant.strategy} over {contestant.engine}\n{contestant.ask('profile', 5)[0]['profile']}")
        for contestant in everybody:
            contestant.end()
    result = [contestant.row(arguments) for contestant in everybody]
    for row in result:
        print(f"{row['strategy']:11} {row['setting']:10}  p50 {row['step_ms_p50']:8.2f} ms  min {row['step_ms_min']:8.2f} ms  "
              f"{row['tokens_per_s']:8.1f} tokens/s  loss {row['final_loss']:.6f}", file=sys.stderr)
    for pair in pairs:
        rows = {contestant.engine: contestant.row(arguments) for contestant in pair}
        if {"gloo", "rondo"} <= set(rows):
            result.append(ratio_of(rows["rondo"], rows["gloo"]))
    if arguments.emulate_hosts > 1 and {"independent", "ddp"} <= set(arguments.strategies.split(",")):
        result.append(floor_ratio([row for row in result if "strategy" in row], arguments))
    for ratio in result:
        if "ratio" in ratio:
            print(f"{ratio['of']} / {ratio['to']}: {ratio['value']} (goal {ratio['goal']})", file=sys.stderr)
    if arguments.json == "-":
        print(json.dumps(result, indent=1))
    elif arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
