# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A callback for Lightning's Trainer: Trainer(callbacks=[StepflameCallback()])."""

import importlib.util
import os
import sys
from typing import Any, Collection, Optional

from .errors import tell_once
from .periodic import Made, Periodic, guarded, to_mlflow, to_tensorboard, to_wandb

NAMES = ("lightning.pytorch", "pytorch_lightning")  # of the same library


def base() -> Any:
    """Callback of the library that the program has imported, or else of one that is there."""
    name = next((name for name in NAMES if name in sys.modules), None) or next((name for name in NAMES if importlib.util.find_spec(name.partition(".")[0])), NAMES[0])
    return importlib.import_module(name).Callback


def publish(trainer: Any, rank: int, made: Made) -> None:
    """To each logger that takes pages. Those of other ranks than 0 log nothing."""
    for logger in trainer.loggers if rank == 0 else ():
        kinds = {kind.__name__ for kind in type(logger).__mro__}
        try:
            if "TensorBoardLogger" in kinds:
                to_tensorboard(made, logger.log_dir, logger.experiment)
            elif "WandbLogger" in kinds:
                to_wandb(made, logger.experiment)
            elif "MLFlowLogger" in kinds:
                to_mlflow(made, logger.experiment, logger.run_id)
        except Exception as error:
            tell_once("%s does not take the page %s: %s" % (type(logger).__name__, made.page, error))


class StepflameCallback(base()):  # type: ignore[misc]
    """
    Records this process for `duration` seconds, after `first_after` batches and then every N-th hour, in ranks (None: all), with the options of
    `stepflame record`. The recording and its page go to folder (stepflame/ in the trainer's default_root_dir), and the page to the trainer's logger.
    """

    def __init__(
        self, every_hours: float = 6, duration: float = 30, folder: Optional["str | os.PathLike[str]"] = None, ranks: Optional[Collection[int]] = (0,), first_after: int = 100, **options: Any
    ) -> None:
        super().__init__()
        self._periodic = Periodic(every_hours, duration, os.fspath(folder) if folder else None, ranks, first_after, options)

    @guarded
    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        rank = trainer.global_rank
        if self._periodic.is_due(rank):
            self._periodic.start(os.path.join(trainer.default_root_dir, "stepflame"), rank, trainer.global_step, lambda made: publish(trainer, rank, made))

    @guarded
    def on_train_end(self, *_: Any) -> None:
        self._periodic.finish()

    on_exception = on_train_end
