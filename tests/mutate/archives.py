"""TorchScript archives. In a separate file, because torch.jit.script reads the source of the code that it compiles."""
import warnings

import torch


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 2)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x):
        return self.inner(x)


class Hostile(torch.nn.Module):
    """A module that prints judge.RAN when code of the archive runs during loading."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.ones(2))

    def forward(self, x):
        return x + self.weight

    @torch.jit.export
    def __getstate__(self):
        return (self.weight, self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):
        print("the file's own code ran")
        self.weight = state[0]
        self.training = state[1]


def _save(module, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit announces its deprecation
        torch.jit.save(torch.jit.script(module), str(path))


def save_script(path):
    _save(Plain(), path)


def save_hostile(path):
    _save(Hostile(), path)
