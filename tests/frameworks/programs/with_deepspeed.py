"""DeepSpeed: init_distributed() takes the name of the backend.  with_deepspeed.py BACKEND"""
import json
import sys

import deepspeed
import rondo_torch  # noqa: F401
import torch
import torch.distributed as dist

deepspeed.init_distributed(dist_backend=sys.argv[1])

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 400), torch.nn.ReLU(), torch.nn.Linear(400, 4))
config = {"train_micro_batch_size_per_gpu": 16, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True}
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3), config=config)

generator = torch.Generator().manual_seed(100 + dist.get_rank())
losses = []
for _ in range(8):
    inputs = torch.randn(16, 32, generator=generator)
    loss = torch.nn.functional.cross_entropy(engine(inputs), inputs[:, :4].argmax(dim=1))
    engine.backward(loss)
    engine.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    losses.append(mean.item() / dist.get_world_size())
if dist.get_rank() == 0:
    print(json.dumps({"backend": dist.get_backend(), "losses": losses}), flush=True)
dist.destroy_process_group()
