"""Writes the indices of PyTorch's DistributedSampler for many settings; the C++ test compares with them.

Usage: python tests/data/make_distributed_sampler_reference.py > tests/data/distributed_sampler_reference.json
tests/integration/data_test.py checks that the stored file matches the installed PyTorch.
"""
import itertools
import json
import sys

from torch.utils.data import DistributedSampler


def checksum(indices):
    value = 0
    for index in indices:
        value = (value * 1000003 + index + 1) % (1 << 32)
    return value


def cases():
    sizes = [1, 2, 3, 5, 7, 10, 33, 1000, 20011]
    worlds = [1, 2, 3, 4, 8]
    orders = [(False, 0, 0)] + [(True, seed, epoch) for seed in (0, 1, 42, 2**40) for epoch in (0, 1, 17)]
    for size, world, drop_last, (shuffle, seed, epoch) in itertools.product(sizes, worlds, (False, True), orders):
        ranks = []
        for rank in range(world):
            sampler = DistributedSampler(range(size), world, rank, shuffle, seed, drop_last)
            sampler.set_epoch(epoch)
            indices = list(sampler)
            assert len(indices) == len(sampler)
            ranks.append(indices if size <= 3 else [len(indices), checksum(indices)])
        yield [size, world, drop_last, shuffle, seed, epoch, ranks]


def reference():
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases())
    return f"[\n{lines}\n]\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
