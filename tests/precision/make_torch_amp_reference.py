"""Writes reference results of torch.amp on a CPU, with which the C++ tests compare.

Usage: python tests/precision/make_torch_amp_reference.py > tests/precision/torch_amp_reference.json
tests/integration/precision_test.py checks that the stored file equals the output with the installed PyTorch.

"grad_scaler" holds several trainings of one small weight with SGD. Each step has the gradient at scale 1
(null: NaN, "inf": infinity), and the scaler's state and the weight after the step. "autocast" has the dtype of the
result for each autocast dtype and operation.
"""
import json
import math
import sys

import torch


def gradient_value(word):
    return math.nan if word is None else math.inf if word == "inf" else word


def train(options, gradients):
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler("cpu", **options)
    steps = []
    for number, word in enumerate(gradients):
        optimizer.zero_grad()
        loss = (weight * torch.tensor([gradient_value(word), 0.25])).sum()
        scaler.scale(loss).backward()
        if number % 2:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update(16.0 if word == 7.0 else None)
        steps.append({"gradient": word, "state": scaler.state_dict(), "weight": weight.tolist()})
    return {"options": options, "steps": steps}


def scaler_trainings():
    good = [1.0] * 3
    return [
        train({"init_scale": 65536.0, "growth_interval": 3}, good + [None] + good * 3 + ["inf", "inf"] + good * 2),
        train({"init_scale": 8.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 1},
              [1.0, None, 7.0, 0.5, "inf"]),
        # The scale never grows to infinity, and a gradient that becomes infinite by scaling is detected.
        train({"init_scale": 2.0**126, "growth_interval": 1}, [0.5, 0.5, 0.5, 1e-30]),
    ]


def autocast_dtypes():
    x = torch.rand(4, 4)
    image = torch.rand(1, 2, 4, 4)
    target = torch.tensor([0, 1, 2, 3])
    operations = {
        "mm": lambda: x.mm(x),
        "linear": lambda: torch.nn.functional.linear(x, x),
        "bmm": lambda: x[None].bmm(x[None]),
        "conv2d": lambda: torch.nn.functional.conv2d(image, torch.rand(2, 2, 3, 3)),
        "softmax": lambda: x.mm(x).softmax(1),
        "layer_norm": lambda: torch.nn.functional.layer_norm(x.mm(x), [4]),
        "sum": lambda: x.mm(x).sum(),
        "exp": lambda: x.mm(x).exp(),
        "mse_loss": lambda: torch.nn.functional.mse_loss(x.mm(x), x),
        "cross_entropy_loss": lambda: torch.nn.functional.cross_entropy(x.mm(x), target),
        "add": lambda: x.mm(x) + x,
        "gelu": lambda: torch.nn.functional.gelu(x.mm(x)),
    }
    table = {}
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            table[str(dtype).removeprefix("torch.")] = {
                name: str(operation().dtype).removeprefix("torch.") for name, operation in operations.items()}
    return table


def reference():
    trainings = ",\n".join(
        '{"options": ' + json.dumps(training["options"]) + ', "steps": [\n'
        + ",\n".join(json.dumps(step) for step in training["steps"]) + "]}" for training in scaler_trainings())
    return f'{{"autocast": {json.dumps(autocast_dtypes())},\n"grad_scaler": [\n{trainings}]}}\n'


if __name__ == "__main__":
    sys.stdout.write(reference())
