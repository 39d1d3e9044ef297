#!/usr/bin/env python3
"""Makes one file that rondo reads of a distributed checkpoint of PyTorch (torch.distributed.checkpoint), however many ranks wrote it.

    dcp_to_rondo.py CHECKPOINT weights.safetensors [--key model]     for rondo train --init-from, rondo checkpoint convert
    dcp_to_rondo.py CHECKPOINT weights.pt [--key model]              the same as torch.save writes it

--key is where the model's state dict is in what was saved ({"model": ..., "optimizer": ...}); without it what was saved is the state
dict itself. Needs torch, one process and room for the weights; optimizer state is not taken.
"""
import argparse
import pathlib
import tempfile

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save


def tensors_of(value, prefix=""):
    """Nested dictionaries as dotted names."""
    for name, part in value.items():
        if isinstance(part, dict):
            yield from tensors_of(part, f"{prefix}{name}.")
        elif isinstance(part, torch.Tensor):
            # Wrappers that are not part of the model: DistributedDataParallel's, torch.compile's.
            yield f"{prefix}{name}".removeprefix("module.").replace("_orig_mod.", ""), part.detach().cpu().contiguous()


def weights_of(checkpoint, key):
    with tempfile.TemporaryDirectory() as folder:
        whole = pathlib.Path(folder) / "whole.pt"
        dcp_to_torch_save(checkpoint, whole)
        saved = torch.load(whole, map_location="cpu", weights_only=True)
    for part in key.split(".") if key else []:
        if part not in saved:
            raise SystemExit(f"--key {key}: the checkpoint has no {part!r}; it has {', '.join(sorted(map(str, saved)))}")
        saved = saved[part]
    weights = dict(tensors_of(saved))
    if not weights:
        raise SystemExit(f"{checkpoint}: no tensors{f' in {key}' if key else ''}")
    return weights


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("output")
    parser.add_argument("--key", default="")
    options = parser.parse_args()
    if not (pathlib.Path(options.checkpoint) / ".metadata").exists():
        raise SystemExit(f"{options.checkpoint}: not a distributed checkpoint of PyTorch: it has no .metadata")
    weights = weights_of(options.checkpoint, options.key)
    if options.output.endswith(".safetensors"):
        from safetensors.torch import save_file

        # The format stores each tensor once.
        save_file({name: tensor.clone() for name, tensor in weights.items()}, options.output)
    else:
        torch.save(weights, options.output)


if __name__ == "__main__":
    main()
