"""torchtitan: it asks torch.distributed for the default backend of its device.  with_torchtitan.py BACKEND"""
import json
import sys
import tempfile
from types import SimpleNamespace

import rondo_torch
import torch
import torch.distributed as dist
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.distributed.fsdp import FSDPModule
from torchtitan.tools import utils

# Without an accelerator torchtitan takes CUDA. Its other modules copy these names on import.
utils.device_type = "cpu"
utils.device_module = SimpleNamespace(
    device_count=torch.cpu.device_count, set_device=torch.cpu.set_device, synchronize=torch.cpu.synchronize, current_device=lambda: 0,
    get_device_name=lambda _: "CPU", get_device_properties=lambda _: SimpleNamespace(total_memory=1), memory_stats=lambda _: {},
    reset_peak_memory_stats=lambda: None, empty_cache=lambda: None)

from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.components.metrics import BaseLogger, MetricsProcessor  # noqa: E402
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw  # noqa: E402
from torchtitan.config import DebugConfig, ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.hf_datasets import DatasetConfig  # noqa: E402
from torchtitan.hf_datasets.text_datasets import DATASETS, HuggingFaceTextDataLoader  # noqa: E402
from torchtitan.models.common import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.llama3 import model_registry  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

rondo_torch.make_default(sys.argv[1] == "rondo")
if not hasattr(dist, "set_timeout"):
    dist.set_timeout = dist.distributed_c10d._set_pg_timeout  # its name until torch 2.13

losses = []


class Losses(BaseLogger):
    def log(self, metrics, step):
        losses.append(metrics["loss_metrics/global_avg_loss"])


generator = torch.Generator().manual_seed(1)
texts = [" ".join(f"w{word}" for word in row) for row in torch.randint(0, 50, (64, 65), generator=generator).tolist()]
DATASETS["words"] = DatasetConfig(path="", loader=lambda _: Dataset.from_dict({"text": texts}), sample_processor=lambda row: row["text"])

model = model_registry("debugmodel")
model.model.layers = model.model.layers[:2]
for layer in model.model.layers:
    # The default, FlexAttention, has no backward pass on the CPU.
    layer.attention.inner_attention = ScaledDotProductAttention.Config()

with tempfile.TemporaryDirectory() as folder:
    tokenizer = Tokenizer(models.WordLevel({f"w{word}": word for word in range(50)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(f"{folder}/tokenizer.json")
    # FSDP2 of torch 2.13 refuses the plain parameters of the default, "spmd_types".
    parallelism = ParallelismConfig(data_parallel_shard_degree=2, spmd_backend="partial_dtensor")
    trainer = Trainer.Config(
        model_spec=model, hf_assets_path=folder, dump_folder=folder, loss=CrossEntropyLoss.Config(), parallelism=parallelism,
        optimizer=default_adamw(lr=1e-3), lr_scheduler=LRSchedulersContainer.Config(warmup_steps=1),
        training=TrainingConfig(local_batch_size=4, seq_len=64, steps=6, mixed_precision_param="float32", disable_cuda_graphs=True),
        dataloader=HuggingFaceTextDataLoader.Config(dataset="words"), metrics=MetricsProcessor.Config(log_freq=1),
        activation_checkpoint=None, debug=DebugConfig(seed=1, deterministic=True)).build()
    trainer.metrics_processor.logger = Losses()
    if sys.argv[1] != "rondo":
        # Gloo lacks PREMUL_SUM, with which FSDP2 scales gradients.
        for module in trainer.model_parts[0].modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
    trainer.train()
    trainer.close()
backend = dist.get_backend(trainer.parallel_dims.get_mesh("fsdp").get_group())
assert dist.get_backend() == backend == sys.argv[1]
if dist.get_rank() == 0:
    print(json.dumps({"backend": backend, "losses": losses}), flush=True)
dist.destroy_process_group()
