#!/usr/bin/env python3
"""Predictions of `rondo simulate` for published training runs and for meshes of 8 to 16,384 ranks, with the published
results.

    bench/scale.py [--docs]        prints the tables; --docs writes them into docs/scale.md

All rows of a table have one rate of matrix products and one network: tests/integration/scale_test.py checks the shape
over models and ranks, not the time of a machine.
"""
from harness import parser_of, rondo_json, table, write_section

# Megatron-LM (arXiv 2104.04473), table 1: billions of parameters, layers, width, heads, tensor, pipeline, ranks, batch, TFLOP/s.
MEGATRON = [
    (1.7, 24, 2304, 24, 1, 1, 32, 512, 137),
    (18.4, 40, 6144, 48, 8, 1, 256, 1024, 135),
    (76.1, 60, 10240, 80, 8, 4, 1024, 1792, 140),
    (145.6, 80, 12288, 96, 8, 8, 1536, 2304, 148),
    (529.6, 105, 20480, 128, 8, 35, 2520, 2520, 163),
    (1008.0, 128, 25600, 160, 8, 64, 3072, 3072, 163),
]
VOCABULARY, CONTEXT = 51200, 2048
A100 = "flops=205e12,memory=2e12"  # rate of products, of 312e12 FLOP/s; bytes per second of memory
A100_HOSTS = "fat_tree:local=8,inside=240e9,between=25e9"


def simulate(*words):
    return rondo_json("simulate", *words)


def mesh_words(pipeline, data, tensor):
    return ["--ranks", pipeline * data * tensor, "--mesh", f"pipeline={pipeline},data={data},tensor={tensor}"]


def chunks_of(layers, pipeline):
    """Returns the smallest number of stages per rank that cuts the layers evenly; 1 if there is none."""
    return next((chunks for chunks in (2, 3, 4, 5) if layers % (pipeline * chunks) == 0), 1)


def megatron_run(row):
    """Returns the simulation of a row: micro-batches of one sequence, interleaved stages, everything recomputed."""
    billions, layers, width, heads, tensor, pipeline, ranks, batch, published = row
    data = ranks // (tensor * pipeline)
    replica = batch // data
    model = f"gpt:layers={layers},dim={width},heads={heads},seq={CONTEXT},vocab={VOCABULARY},batch={replica},{A100}"
    words = ["--synthetic", model, *mesh_words(pipeline, data, tensor), "--topology", A100_HOSTS, "--strategy",
             "zero1" if pipeline > 1 else "ddp", "--activation-checkpointing"]
    chunks = chunks_of(layers, pipeline)
    if pipeline > 1:
        words += ["--micro-batches", replica, "--pipeline-schedule", "interleaved" if chunks > 1 else "1f1b",
                  *(["--pipeline-chunks", chunks] if chunks > 1 else [])]
    step = simulate(*words)
    # The paper counts a forward, a backward and a second forward pass.
    operations = 96 * batch * CONTEXT * layers * width**2 * (1 + CONTEXT / (6 * width) + VOCABULARY / (16 * layers * width))
    return {"billions": billions, "ranks": ranks, "mesh": step["mesh"], "step_s": step["step_ms"] / 1e3,
            "tflops": operations / ranks / (step["step_ms"] / 1e3) / 1e12, "published": published,
            "bubble": step.get("bubble", 0), "peak_gib": step["peak_bytes"] / 2**30}


def megatron_runs():
    return [megatron_run(row) for row in MEGATRON]


ZERO_RANKS = [64, 128, 256, 400]
ZERO_LIMIT = 32e9  # bytes of a V100


def zero_run(ranks):
    """Returns the largest batch of a replica that fits: 60 billion parameters, 16 ranks per replica, gradients and
    optimizer sharded."""
    largest = None
    for batch in range(2, 65):
        step = simulate("--synthetic", f"gpt:layers=75,dim=8192,heads=64,seq=1024,batch={batch},flops=60e12",
                        *mesh_words(1, ranks // 16, 16), "--topology", "fat_tree:local=16,inside=120e9,between=2e9",
                        "--strategy", "zero2", "--activation-checkpointing")
        if step["peak_bytes"] > ZERO_LIMIT:
            break
        largest = {"ranks": ranks, "batch": batch, "samples_per_s_rank": step["samples_per_s"] / ranks,
                   "peak_gb": step["peak_bytes"] / 1e9}
    return largest


def zero_runs():
    return [zero_run(ranks) for ranks in ZERO_RANKS]


MESHES = [(8, 1, 1, 8), (64, 8, 1, 8), (64, 1, 8, 8), (1024, 8, 16, 8), (1024, 32, 4, 8), (16384, 16, 128, 8), (16384, 64, 32, 8)]


def mesh_run(ranks, pipeline, data, tensor):
    """Returns the simulation of a GPT of 64 layers of width 8192 with 64 sequences per replica."""
    words = ["--synthetic", f"gpt:layers=64,dim=8192,heads=64,seq=2048,batch=64,{A100}", *mesh_words(pipeline, data, tensor),
             "--topology", A100_HOSTS, "--strategy", "zero1", "--activation-checkpointing"]
    step = simulate(*words, *(["--micro-batches", 64] if pipeline > 1 else []))
    return {"ranks": ranks, "mesh": step["mesh"], "step_s": step["step_ms"] / 1e3, "bubble": step.get("bubble", 0),
            "computing": step["compute_ms"] / step["step_ms"], "peak_gib": step["peak_bytes"] / 2**30}


def mesh_runs():
    return [mesh_run(*mesh) for mesh in MESHES]


def tables():
    megatron, zero, meshes = megatron_runs(), zero_runs(), mesh_runs()
    return [
        "### Megatron-LM on A100", "",
        "[arXiv 2104.04473](https://arxiv.org/abs/2104.04473), table 1. Simulated: 205 TFLOP/s and 2 TB/s of memory a rank,",
        "240 GB/s inside a host of 8, 25 GB/s a rank between hosts, micro-batches of one sequence, interleaved stages, all",
        "activations recomputed.", "",
        *table(["parameters, B", "mesh", "step, s", "bubble, %", "TFLOP/s a rank", "published", "ratio"],
               [[f"{r['billions']}", f"`{r['mesh']}`", f"{r['step_s']:.1f}", f"{100 * r['bubble']:.1f}", f"{r['tflops']:.0f}",
                 str(r["published"]), f"{r['tflops'] / r['published']:.2f}"] for r in megatron]), "",
        "### Superlinear speedup of ZeRO", "",
        "[arXiv 1910.02054](https://arxiv.org/abs/1910.02054): a 60 B model speeds up superlinearly, because sharded states leave",
        "memory for a larger batch. Simulated: 16 ranks a replica, `zero2` along data, 32 GB a rank, 2 GB/s a rank between hosts.",
        "Matrix products of the simulator do not get faster with the batch, so a link that hides all communication (6.25 GB/s)",
        "shows no speedup.", "",
        *table(["ranks", "largest batch of a replica", "peak, GB", "samples/s a rank", "to 64 ranks"],
               [[str(r["ranks"]), str(r["batch"]), f"{r['peak_gb']:.1f}", f"{r['samples_per_s_rank']:.4f}",
                 f"{r['samples_per_s_rank'] / zero[0]['samples_per_s_rank']:.2f}"] for r in zero]), "",
        "### Meshes of 8 to 16,384 ranks", "",
        "A GPT of 64 layers and width 8192 with 64 sequences a replica, on the A100 hosts above: `zero1` along data, 1f1b with 64",
        "micro-batches.", "",
        *table(["ranks", "mesh", "step, s", "bubble, %", "computing, %", "peak, GiB"],
               [[f"{r['ranks']:,}", f"`{r['mesh']}`", f"{r['step_s']:.1f}", f"{100 * r['bubble']:.1f}",
                 f"{100 * r['computing']:.1f}", f"{r['peak_gib']:.1f}"] for r in meshes]),
    ]


def main():
    arguments = parser_of(__doc__, docs="scale.md", json_file=False).parse_args()
    lines = tables()
    print("\n".join(lines))
    if arguments.docs:
        write_section("scale.md", "scale", lines)


if __name__ == "__main__":
    main()
