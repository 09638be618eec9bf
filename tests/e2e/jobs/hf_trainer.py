# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""transformers' Trainer: a tiny GPT-2 with random weights on random tokens, evaluated after half of its steps and at the end.

Its truth is when each step ended, by the callbacks that the Trainer calls, and how often it evaluated.
"""

import os
import tempfile
import time

import common
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

TOKENS, BATCH, WORDS = 16, 4, 100


class Tokens(torch.utils.data.Dataset):
    def __init__(self, count):
        self.ids = torch.randint(0, WORDS, (count, TOKENS))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class Clock(TrainerCallback):
    def __init__(self):
        self.ends, self.evaluations = [], 0

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append(time.perf_counter())

    def on_evaluate(self, args, state, control, **kwargs):
        self.evaluations += 1


def main():
    p = common.parser(__doc__, batches=20, work=32)
    args = p.parse_args()
    common.prepare(args)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    clock = Clock()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=TOKENS, n_embd=args.work, n_layer=1, n_head=2))
    with tempfile.TemporaryDirectory() as directory:
        more = {"eval_strategy": "steps", "eval_steps": args.batches // 2, "save_strategy": "no", "report_to": [], "use_cpu": True}
        settings = TrainingArguments(directory, per_device_train_batch_size=BATCH, max_steps=args.batches, disable_tqdm=True, **more)
        trainer = Trainer(model, settings, train_dataset=Tokens(BATCH * args.batches), eval_dataset=Tokens(8), callbacks=[clock])
        common.wait(args)
        trainer.train()
    common.write(args, {"steps": len(clock.ends), "ends": clock.ends, "evaluations": clock.evaluations})


if __name__ == "__main__":
    main()
