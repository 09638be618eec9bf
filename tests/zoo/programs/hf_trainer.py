# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""transformers' Trainer: a small GPT-2 with random weights on random tokens, evaluated every 20 steps, with two workers."""

import os
import sys

import clock
import faults
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

TOKENS, BATCH = 64, 8


class Tokens(torch.utils.data.Dataset):
    def __init__(self, count):
        self.ids = torch.randint(0, 500, (count, TOKENS))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class Clock(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        clock.step()


evaluate = "--no-eval" not in sys.argv
workers = 0 if "--no-workers" in sys.argv else 2
model = GPT2LMHeadModel(GPT2Config(vocab_size=500, n_positions=TOKENS, n_embd=128, n_layer=2, n_head=4))
args = TrainingArguments(
    output_dir=os.environ["ZOO_TRUTH"] + ".out",
    per_device_train_batch_size=BATCH,
    max_steps=10**6,
    eval_strategy="steps" if evaluate else "no",
    eval_steps=20,
    save_strategy="no",
    logging_steps=50,
    dataloader_num_workers=workers,
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
faults.arm()
train = faults.dataset(Tokens(4000), BATCH)
Trainer(model=model, args=args, train_dataset=train, eval_dataset=Tokens(80), callbacks=[Clock()]).train()
