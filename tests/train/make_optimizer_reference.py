"""Writes optimizer_reference.json: weights after some steps of Python's torch.optim with given gradients.

    python tests/train/make_optimizer_reference.py

optimizer_reference_test.cpp runs the same steps with rondo's optimizers. Initial values and gradients are multiples of
1/64, which both programs represent exactly.
"""
import json
import pathlib

import torch

SHAPES = [(3, 4), (5,)]
STEPS = 20
CASES = [
    ("sgd", {"learning_rate": 0.1}),
    ("sgd", {"learning_rate": 0.1, "momentum": 0.9}),
    ("sgd", {"learning_rate": 0.05, "momentum": 0.5, "weight_decay": 0.1}),
    ("adam", {"learning_rate": 0.01}),
    ("adam", {"learning_rate": 0.02, "beta1": 0.8, "beta2": 0.95, "weight_decay": 0.1, "epsilon": 1e-6}),
    ("adamw", {"learning_rate": 0.01}),
    ("adamw", {"learning_rate": 0.02, "beta1": 0.8, "beta2": 0.95, "weight_decay": 0.1, "epsilon": 1e-6}),
    ("adagrad", {"learning_rate": 0.1, "epsilon": 1e-10}),
    ("adagrad", {"learning_rate": 0.05, "weight_decay": 0.1, "epsilon": 1e-6}),
]


def values(shape, factor, shift):
    """Returns multiples of 1/64 in [-1/2, 1/2), some of them 0, by the formula of optimizer_reference_test.cpp."""
    count = torch.Size(shape).numel()
    return torch.tensor([((i * factor + shift) % 64 - 32) / 64 for i in range(count)]).reshape(shape)


def make(name, o, parameters):
    rest = {"lr": o["learning_rate"], "weight_decay": o.get("weight_decay", 0)}
    if name == "sgd":
        return torch.optim.SGD(parameters, momentum=o.get("momentum", 0), **rest)
    rest["eps"] = o.get("epsilon", 1e-8)
    if name == "adagrad":
        return torch.optim.Adagrad(parameters, **rest)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return kind(parameters, betas=(o.get("beta1", 0.9), o.get("beta2", 0.999)), **rest)


def weights_after(name, options):
    parameters = [torch.nn.Parameter(values(shape, 29, 7 + i)) for i, shape in enumerate(SHAPES)]
    optimizer = make(name, options, parameters)
    taken = {}
    for step in range(1, STEPS + 1):
        for i, parameter in enumerate(parameters):
            parameter.grad = values(parameter.shape, 37, 11 * step + i)
        optimizer.step()
        if step in (1, 2, STEPS):
            taken[str(step)] = [parameter.detach().flatten().tolist() for parameter in parameters]
    return taken


if __name__ == "__main__":
    cases = [{"optimizer": name, "options": options, "weights": weights_after(name, options)} for name, options in CASES]
    path = pathlib.Path(__file__).with_name("optimizer_reference.json")
    path.write_text(json.dumps({"torch": torch.__version__, "shapes": SHAPES, "cases": cases}, indent=1) + "\n")
