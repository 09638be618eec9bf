# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A Lightning GAN: manual optimization with two optimizers, so two optimizer steps and two backwards a batch.

Its truth is what Lightning's own SimpleProfiler recorded in the same process.
"""

import common
import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset
from true_profiler import TrueSimpleProfiler, quiet_lightning

quiet_lightning()
LATENT, BATCH = 8, 16


class Gan(pl.LightningModule):
    def __init__(self, work):
        super().__init__()
        self.automatic_optimization = False
        self.generator = torch.nn.Sequential(torch.nn.Linear(LATENT, work), torch.nn.ReLU(), torch.nn.Linear(work, 32))
        self.critic = torch.nn.Sequential(torch.nn.Linear(32, work), torch.nn.ReLU(), torch.nn.Linear(work, 1))

    def verdict(self, rows, real):
        out = self.critic(rows)
        return torch.nn.functional.binary_cross_entropy_with_logits(out, torch.full_like(out, float(real)))

    def training_step(self, batch, batch_idx):
        (real,) = batch
        for_generator, for_critic = self.optimizers()
        fake = self.generator(torch.randn(len(real), LATENT))

        self.toggle_optimizer(for_generator)
        loss = self.verdict(fake, True)
        for_generator.zero_grad()
        self.manual_backward(loss)
        for_generator.step()
        self.untoggle_optimizer(for_generator)

        self.toggle_optimizer(for_critic)
        loss = (self.verdict(real, True) + self.verdict(fake.detach(), False)) / 2
        for_critic.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(for_critic, gradient_clip_val=1.0)
        for_critic.step()
        self.untoggle_optimizer(for_critic)

    def configure_optimizers(self):
        return [torch.optim.Adam(m.parameters(), lr=2e-4) for m in (self.generator, self.critic)]


def main():
    args = common.parser(__doc__).parse_args()
    common.prepare(args)
    rows = torch.randn(BATCH * args.batches, 32)
    profiler = TrueSimpleProfiler()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=args.epochs,
        profiler=profiler,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Gan(args.work)
    common.wait(args)
    trainer.fit(module, DataLoader(TensorDataset(rows), batch_size=BATCH))
    weights = sum(p.sum().item() for p in module.parameters())
    common.write(args, dict(profiler.truth(), steps=trainer.global_step, weights=weights))


if __name__ == "__main__":
    main()
