"""Lightning: the strategy takes the name of the backend.  with_lightning.py BACKEND"""
import json
import sys

import lightning
import rondo_torch  # noqa: F401
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

losses = []


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(32, 400), torch.nn.ReLU(), torch.nn.Linear(400, 4))

    def training_step(self, batch, _):
        loss = torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        losses.append(self.all_gather(loss.detach()).mean().item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


torch.manual_seed(1)
inputs = torch.randn(256, 32)
data = DataLoader(TensorDataset(inputs, inputs[:, :4].argmax(dim=1)), batch_size=16)
trainer = lightning.Trainer(accelerator="cpu", devices=2, max_epochs=1, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, strategy=DDPStrategy(process_group_backend=sys.argv[1]))
trainer.fit(Module(), data)
assert dist.get_backend() == sys.argv[1]
if dist.get_rank() == 0:
    print(json.dumps({"backend": dist.get_backend(), "losses": losses}), flush=True)
