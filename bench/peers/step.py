"""PyTorch's side of `rondo bench step`: one rank of DistributedDataParallel, ZeroRedundancyOptimizer over it (zero1),
fully_shard per block (fsdp2) or parallelize_module (tensor), over Gloo.

Uses the workers' protocol (apps/bench/step/README.md): reads "run N" and "memory N" lines from standard input and
answers each with one JSON line on standard output. Batches and initial weights are the same as rondo's, so losses can
be compared step by step.
"""

import argparse
import contextlib
import datetime
import json
import resource
import struct
import sys
import time

import numpy
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks, powerSGD_hook
from torch.nn import functional
from gpt import Gpt
from leaving import leave

MASK = (1 << 64) - 1


def splitmix64(values):
    """The generator of apps/bench/harness/rank.cpp, element-wise on uint64."""
    with numpy.errstate(over="ignore"):
        z = values + numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return z ^ (z >> numpy.uint64(31))


def random_words(step, rank, stream, count):
    start = ((step << 40) | (rank << 32) | (stream << 28)) & MASK
    return splitmix64(numpy.uint64(start) + numpy.arange(count, dtype=numpy.uint64))


def token_batch(config, batch_size, step, rank):
    length = config["context"] + 1
    words = random_words(step, rank, 0, batch_size * length).reshape(batch_size, length)
    # A sequence that counts upwards: each token is the previous one plus one, with occasional jumps.
    tokens = numpy.zeros((batch_size, length), dtype=numpy.int64)
    vocabulary = config["vocabulary"]
    tokens[:, 0] = (words[:, 0] % numpy.uint64(vocabulary)).astype(numpy.int64)
    jump = (words >> numpy.uint64(32)) % numpy.uint64(8) == 0
    random = (words % numpy.uint64(vocabulary)).astype(numpy.int64)
    for i in range(1, length):
        tokens[:, i] = numpy.where(jump[:, i], random[:, i], (tokens[:, i - 1] + 1) % vocabulary)
    tokens = torch.from_numpy(tokens)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def image_batch(config, batch_size, step, rank):
    shape = config["input_shape"]
    count = batch_size * int(numpy.prod(shape))
    pixels = (random_words(step, rank, 0, count) >> numpy.uint64(40)).astype(numpy.float32) / numpy.float32(1 << 24)
    labels = random_words(step, rank, 1, batch_size) % numpy.uint64(config["classes"])
    return (torch.from_numpy(pixels.reshape([batch_size, *shape])), torch.from_numpy(labels.astype(numpy.int64)))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        sizes = [int(numpy.prod(config["input_shape"])), *config["hidden"], config["classes"]]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x):
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        return self.layers[-1](x)


def load_safetensors(path, module):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    state = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        assert entry["dtype"] == "F32", entry
        values = numpy.frombuffer(content[begin:end], dtype=numpy.float32).reshape(entry["shape"])
        state[name] = torch.from_numpy(values.copy())
    module.load_state_dict(state, strict=True)


def mixed_precision_policy(text):
    """Returns the fields of MixedPrecisionPolicy from "param=bfloat16,reduce=float32"."""
    fields = dict(part.split("=") for part in text.split(","))
    return {
        name if name == "cast_forward_inputs" else f"{name}_dtype": value == "true"
        if name == "cast_forward_inputs"
        else getattr(torch, value)
        for name, value in fields.items()
    }


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", choices=["ddp", "zero1", "fsdp2", "tensor", "one_device"], required=True)
    parser.add_argument("--setting", choices=["usual", "fastest"], required=True)
    parser.add_argument("--kind", choices=["gpt", "mlp"], required=True)
    parser.add_argument("--config", type=json.loads, required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--max-grad-norm", type=float, default=0)
    parser.add_argument("--optimizer", choices=["adamw", "sgd"], required=True)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--mixed-precision", type=mixed_precision_policy, default={})
    parser.add_argument("--track-memory", action="store_true")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--rendezvous", required=True)
    return parser.parse_args()


def register_hook(model, codec):
    """Registers the communication hook of rondo's --codec, if PyTorch has it."""
    name, _, settings = codec.partition(":")
    settings = dict(setting.split("=") for setting in settings.split(",") if setting)
    simple = {
        "allreduce": default_hooks.allreduce_hook,
        "fp16_compress": default_hooks.fp16_compress_hook,
        "bf16_compress": default_hooks.bf16_compress_hook,
        "noop": debugging_hooks.noop_hook,
    }
    if name in simple:
        # A custom function: PyTorch rejects its bf16 hook by name without NCCL, though Gloo supports bfloat16, too.
        model.register_comm_hook(None, lambda state, bucket: simple[name](state, bucket))
    elif name == "power_sgd":
        state = powerSGD_hook.PowerSGDState(
            None,
            matrix_approximation_rank=int(settings.get("rank", 1)),
            start_powerSGD_iter=int(settings.get("start", 1000)),
            min_compression_rate=float(settings.get("min_compression_rate", 2)),
            orthogonalization_epsilon=float(settings.get("epsilon", 0)),
            random_seed=int(settings.get("seed", 0)),
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def blocks_of(module):
    return module.transformer.h if isinstance(module, Gpt) else module.layers


def divide(module, arguments):
    """Divides a GPT as Megatron does, by torch.distributed.tensor.parallel; the loss takes divided logits, too."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    ranks = arguments.world_size
    for block in module.transformer.h:
        # Places the rows of query, key and value of the same heads next to each other, as in a rank's part.
        for parameter in block.attn.c_attn.parameters():
            parts = parameter.detach().reshape(3, ranks, -1, *parameter.shape[1:])
            parameter.data = parts.transpose(0, 1).reshape(parameter.shape).contiguous()
    plan = {
        "transformer.wte": RowwiseParallel(input_layouts=Replicate()),
        "transformer.h.*.attn.c_attn": ColwiseParallel(),
        "transformer.h.*.attn.c_proj": RowwiseParallel(),
        "transformer.h.*.mlp.c_fc": ColwiseParallel(),
        "transformer.h.*.mlp.c_proj": RowwiseParallel(),
        "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    return parallelize_module(module, init_device_mesh("cpu", (ranks,)), plan)


def distribute(module, arguments):
    """Returns the module wrapped by the strategy; joins the group of ranks."""
    if arguments.strategy == "one_device":
        return module
    torch.distributed.init_process_group(
        "gloo",
        init_method=arguments.rendezvous,
        rank=arguments.rank,
        world_size=arguments.world_size,
        timeout=datetime.timedelta(seconds=120),
    )
    if arguments.strategy == "tensor":
        return divide(module, arguments)
    if arguments.strategy == "fsdp2":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        fields = arguments.mixed_precision
        inner = MixedPrecisionPolicy(**{name: value for name, value in fields.items() if name != "output_dtype"})
        for block in blocks_of(module):
            fully_shard(block, mp_policy=inner)
        return fully_shard(module, mp_policy=MixedPrecisionPolicy(**fields))
    model = nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=arguments.setting == "fastest")
    if arguments.strategy == "ddp":
        register_hook(model, arguments.codec)
    return model


def make_optimizer(parameters, arguments):
    kind, settings = torch.optim.SGD, {"lr": arguments.lr}
    if arguments.optimizer == "adamw":
        kind = torch.optim.AdamW
        settings["fused"] = True if arguments.setting == "fastest" else None
    if arguments.strategy == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(parameters, kind, **settings)
    if arguments.strategy == "tensor":
        from torch.distributed.tensor import DTensor

        # The fused step does not support a mixture of divided and full parameters.
        parameters = list(parameters)
        groups = [[p for p in parameters if isinstance(p, DTensor) == divided] for divided in (True, False)]
        return kind([{"params": group} for group in groups], **settings)
    return kind(parameters, **settings)


def make_step(arguments):
    """Returns batch_of(number); step(batch) -> loss, milliseconds; the model; and the optimizer."""
    gpt = arguments.kind == "gpt"
    module = (Gpt if gpt else Mlp)(arguments.config)
    load_safetensors(arguments.weights, module)
    model = distribute(module, arguments)
    optimizer = make_optimizer(model.parameters(), arguments)
    make_batch = token_batch if gpt else image_batch

    def batch_of(number):
        if arguments.strategy != "tensor":
            return make_batch(arguments.config, arguments.batch_size, number, arguments.rank)
        # The ranks compute all their batches together.
        parts = [make_batch(arguments.config, arguments.batch_size, number, r) for r in range(arguments.world_size)]
        return tuple(torch.cat(part) for part in zip(*parts))

    def loss_region():
        if arguments.strategy != "tensor":
            return contextlib.nullcontext()
        from torch.distributed.tensor.parallel import loss_parallel

        return loss_parallel()

    def autocast():
        if arguments.dtype == "bfloat16":
            return torch.autocast("cpu", torch.bfloat16)
        return contextlib.nullcontext()

    def step(batch):
        inputs, targets = batch
        begin = time.perf_counter()
        optimizer.zero_grad()
        with loss_region():
            with autocast():
                logits = model(inputs)
                loss = functional.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))
            loss.backward()
        if arguments.max_grad_norm > 0:
            nn.utils.clip_grad_norm_(model.parameters(), arguments.max_grad_norm)
        optimizer.step()
        if arguments.strategy == "tensor":
            loss = loss.full_tensor()
        return loss.item(), (time.perf_counter() - begin) * 1e3

    return batch_of, step, model, optimizer


def memory_tracker(arguments, model, optimizer):
    """Returns a context manager that tracks FSDP2's tensors; None for other strategies or if not requested."""
    if not arguments.track_memory or arguments.strategy != "fsdp2":
        return None
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    return tracker


def answer_of(steps):
    """Returns a worker's answer for its steps: (loss, milliseconds) of each, and the process's peak."""
    return {"losses": [loss for loss, _ in steps], "step_ms": [milliseconds for _, milliseconds in steps],
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    batch_of, step, model, optimizer = make_step(arguments)
    print(json.dumps({"ready": True}), flush=True)
    number = 0
    for line in sys.stdin:
        command, count = line.split()
        assert command in ("run", "memory"), line
        steps = []
        # Created before the steps: a rank with a slower batch would delay the others.
        batches = [batch_of(number + i) for i in range(int(count))]
        number += len(batches)
        tracker = memory_tracker(arguments, model, optimizer) if command == "memory" else None
        with tracker or contextlib.nullcontext():
            for batch in batches:
                if tracker:
                    tracker.reset_mod_stats()  # it follows one pass at a time; its totals accumulate
                steps.append(step(batch))
        answer = answer_of(steps)
        if tracker:
            answer["peak_tensor_bytes"] = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
        print(json.dumps(answer), flush=True)
    if arguments.strategy != "one_device":
        torch.distributed.destroy_process_group()
    leave()


if __name__ == "__main__":
    main()
