"""PyTorch's distributed checkpoints of the state that `rondo bench checkpoint` saves, in one process.

    checkpoint.py SHAPES.json FOLDER RUNS ANSWER.json

SHAPES.json lists the shapes of the float32 tensors of the state. The answer has the seconds of each run by operation.
"""
import json
import os
import pathlib
import shutil
import sys
import time
import warnings

import torch
import torch.distributed.checkpoint as dcp
from leaving import leave

warnings.filterwarnings("ignore")


def timed(action):
    begin = time.perf_counter()
    result = action()
    return time.perf_counter() - begin, result


def sync(folder):
    """Syncs the folder: DCP leaves its data in the page cache, while rondo's save ends when it is on disk."""
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


def touch_page_cache(path, size):
    """Same as touch_page_cache() of apps/bench/checkpoint.cpp."""
    block = bytes(4 << 20)
    with open(path, "wb", buffering=0) as file:
        for _ in range(0, size, len(block)):
            file.write(block)
        os.unlink(path)


def main(shapes, folder, runs, answer):
    torch.set_num_threads(1)
    state = {f"tensor.{i}": torch.randn(shape) for i, shape in enumerate(json.loads(pathlib.Path(shapes).read_text()))}
    target = pathlib.Path(folder) / "dcp"
    size = sum(tensor.nbytes for tensor in state.values())
    into = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    result = {name: {"seconds": [], "stall": []} for name in ("save", "load", "async_save")}

    def save():
        dcp.save(state, checkpoint_id=target, no_dist=True)
        sync(target)

    for _ in range(int(runs)):
        shutil.rmtree(target, ignore_errors=True)
        touch_page_cache(target.with_name("touched"), size)
        result["save"]["seconds"].append(timed(save)[0])
        result["load"]["seconds"].append(timed(lambda: dcp.load(into, checkpoint_id=target, no_dist=True))[0])
        shutil.rmtree(target, ignore_errors=True)
        touch_page_cache(target.with_name("touched"), size)
        begin = time.perf_counter()
        try:
            stall, future = timed(lambda: dcp.async_save(state, checkpoint_id=target, no_dist=True))
        except (AssertionError, RuntimeError, ValueError, TypeError):
            result.pop("async_save", None)
            continue
        future.result()
        sync(target)
        result["async_save"]["seconds"].append(time.perf_counter() - begin)
        result["async_save"]["stall"].append(stall)
    pathlib.Path(answer).write_text(json.dumps(result))
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
