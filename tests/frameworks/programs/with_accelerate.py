"""Hugging Face Accelerate: the group exists before Accelerator() looks for one.  with_accelerate.py BACKEND"""
import json
import sys

import rondo_torch  # noqa: F401
import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group(sys.argv[1])
accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 2

torch.manual_seed(1)
inputs = torch.randn(256, 32)
data = TensorDataset(inputs, inputs[:, :4].argmax(dim=1))
model = torch.nn.Sequential(torch.nn.Linear(32, 400), torch.nn.ReLU(), torch.nn.Linear(400, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=16))
assert dist.get_backend() == sys.argv[1]

losses = []
for batch, labels in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(batch), labels)
    accelerator.backward(loss)
    optimizer.step()
    losses.append(accelerator.gather(loss.detach()).mean().item())
if accelerator.is_main_process:
    print(json.dumps({"backend": dist.get_backend(), "losses": losses}), flush=True)
dist.destroy_process_group()
