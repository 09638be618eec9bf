# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""lightning_fit.py's run under Lightning's PyTorchProfiler, over the whole fit or by its own schedule.

Its truth is that profiler's key_averages. Nothing is done between the release and fit, nor behind it.
"""

import tempfile

import common
import lightning.pytorch as pl
from lightning.pytorch.profilers import PyTorchProfiler
from lightning_fit import Data, Module, callbacks
from ops import rows
from true_profiler import quiet_lightning

quiet_lightning()


class TruePyTorchProfiler(PyTorchProfiler):
    """Keeps the events that summary() makes its table of."""

    def __init__(self, directory, **options):
        super().__init__(dirpath=directory, filename="ops", export_to_chrome=False, **options)
        self.events = None

    def summary(self):
        text = super().summary()
        self.events = self.function_events
        return text


def main():
    p = common.parser(__doc__, epochs=2, batches=20, work=64)
    p.add_argument("--scheduled", action="store_true", help="Lightning's default schedule: a few steps only")
    p.add_argument("--workers", type=int, default=0)
    p.set_defaults(iterable=False, callbacks=True, logger="none")
    args = p.parse_args()
    common.prepare(args)
    with tempfile.TemporaryDirectory() as directory:
        profiler = TruePyTorchProfiler(directory, **({} if args.scheduled else {"schedule": None}))
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=args.epochs,
            profiler=profiler,
            callbacks=callbacks(args, directory),
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            gradient_clip_val=0.5,
            default_root_dir=directory,
        )
        module, data = Module(args.work), Data(args)
        common.wait(args)
        trainer.fit(module, datamodule=data)
        common.write(args, {"ops": rows(profiler.events, False), "steps": trainer.global_step})


if __name__ == "__main__":
    main()
