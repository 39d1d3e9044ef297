"""PyTorch's side of `rondo bench-dev pipeline`: one rank of torch.distributed.pipelining over Gloo.

Uses the workers' protocol, as step.py does: reads "run N" lines from standard input and answers each with one JSON line
on standard output. Batches, initial weights and stages are the same as rondo's.
"""
import argparse
import datetime
import json
import sys
import time

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules
from torch.nn import functional

from leaving import leave
from gpt import Gpt
from step import answer_of, load_safetensors, make_optimizer, token_batch

# By rondo's name: PyTorch's class, stages per rank, whether the class takes a list of stages.
SCHEDULES = {
    "gpipe": ("ScheduleGPipe", 1, False),
    "1f1b": ("Schedule1F1B", 1, False),
    "interleaved": ("ScheduleInterleaved1F1B", 2, True),
    "zb_h1": ("ScheduleInterleavedZeroBubble", 1, True),
    "zb_v": ("ScheduleZBVZeroBubble", 2, True),
}


class Stage(nn.Module):
    """A part of the blocks; the first stage also has the embeddings, the last one everything after the blocks."""

    def __init__(self, gpt, number, count):
        super().__init__()
        blocks = list(gpt.transformer.h)
        size = len(blocks) // count
        self.h = nn.ModuleList(blocks[number * size: (number + 1) * size])
        self.wte, self.wpe = (gpt.transformer.wte, gpt.transformer.wpe) if number == 0 else (None, None)
        self.ln_f, self.lm_head = (gpt.transformer.ln_f, gpt.lm_head) if number + 1 == count else (None, None)

    def forward(self, x):
        if self.wte is not None:
            x = self.wte(x) + self.wpe.weight[: x.size(1)]
        for block in self.h:
            x = block(x)
        return x if self.lm_head is None else self.lm_head(self.ln_f(x))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline-schedule", choices=SCHEDULES, required=True)
    parser.add_argument("--micro-batches", type=int, required=True)
    parser.add_argument("--config", type=json.loads, required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--batch-size", type=int, required=True, help="samples per step")
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--optimizer", choices=["adamw", "sgd"], required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--rendezvous", required=True)
    # Arguments that only other systems use.
    for name in ["model", "dtype", "max-grad-norm", "codec"]:
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.setting, arguments.strategy = "fastest", "pipeline"  # for make_optimizer
    return arguments


def loss_of(logits, targets):
    return functional.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))


def make_step(arguments):
    """Returns step(number) -> loss (0 except on the rank of the last stage), milliseconds."""
    rank, ranks = arguments.rank, arguments.world_size
    torch.distributed.init_process_group("gloo", init_method=arguments.rendezvous, rank=rank, world_size=ranks,
                                         timeout=datetime.timedelta(seconds=120))
    gpt = Gpt(arguments.config)
    load_safetensors(arguments.weights, gpt)
    name, per_rank, takes_list = SCHEDULES[arguments.pipeline_schedule]
    count = ranks * per_rank
    numbers = [rank] if per_rank == 1 else [rank, count - 1 - rank if arguments.pipeline_schedule == "zb_v" else rank + ranks]
    stages = [PipelineStage(Stage(gpt, number, count), number, count, torch.device("cpu")) for number in numbers]
    schedule = getattr(schedules, name)(stages if takes_list else stages[0], arguments.micro_batches, loss_fn=loss_of)
    parameters = [parameter for stage in stages for parameter in stage.submod.parameters()]
    optimizer = make_optimizer(parameters, arguments)
    first, last = 0 in numbers, count - 1 in numbers

    def step(number):
        inputs, targets = token_batch(arguments.config, arguments.batch_size, number, 0)
        losses = []
        begin = time.perf_counter()
        optimizer.zero_grad()
        schedule.step(*([inputs] if first else []), target=targets if last else None, losses=losses if last else None,
                      return_outputs=False)
        optimizer.step()
        loss = sum(loss.item() for loss in losses) / len(losses) if losses else 0.0
        return loss, (time.perf_counter() - begin) * 1e3

    return step


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    step = make_step(arguments)
    print(json.dumps({"ready": True}), flush=True)
    number = 0
    for line in sys.stdin:
        command, count = line.split()
        assert command == "run", line
        steps = []
        for _ in range(int(count)):
            steps.append(step(number))
            number += 1
        print(json.dumps(answer_of(steps)), flush=True)
    torch.distributed.destroy_process_group()
    leave()


if __name__ == "__main__":
    main()
