"""The Trainer of Hugging Face Transformers: the group exists before TrainingArguments() looks for one.  with_transformers.py BACKEND"""
import json
import sys

import rondo_torch  # noqa: F401
import torch
import torch.distributed as dist
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

dist.init_process_group(sys.argv[1])
arguments = TrainingArguments(output_dir="trainer", use_cpu=True, per_device_train_batch_size=8, max_steps=6, logging_steps=1,
                              learning_rate=1e-3, save_strategy="no", report_to="none", disable_tqdm=True, seed=1,
                              lr_scheduler_type="constant")

torch.manual_seed(1)
rows = torch.randint(0, 64, (128, 16))
data = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": int(row[0] % 2)} for row in rows]
model = BertForSequenceClassification(BertConfig(vocab_size=64, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
                                                 intermediate_size=256, hidden_dropout_prob=0.0,
                                                 attention_probs_dropout_prob=0.0))
trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train()
assert dist.get_backend() == sys.argv[1] and trainer.model_wrapped is not model
if dist.get_rank() == 0:
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(json.dumps({"backend": dist.get_backend(), "losses": losses}), flush=True)
dist.destroy_process_group()
