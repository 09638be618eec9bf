# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A callback for transformers' Trainer: Trainer(..., callbacks=[StepflameCallback()])."""

import os
import sys
from typing import Any, Collection, Optional

from transformers import TrainerCallback

from .errors import tell_once
from .periodic import Made, Periodic, guarded, to_mlflow, to_tensorboard, to_wandb


def runs() -> "dict[str, Any]":
    """What the Trainer's integrations have opened; MLflow tells that only the thread that trains."""
    wandb, mlflow = sys.modules.get("wandb"), sys.modules.get("mlflow")
    active = mlflow and mlflow.active_run()
    return {"tensorboard": True, "wandb": wandb and wandb.run, "mlflow": active and active.info.run_id}


def publish(settings: Any, opened: "dict[str, Any]", made: Made) -> None:
    """To each that the Trainer reports to, and that takes pages."""
    for name in settings.report_to if settings.process_index == 0 else ():
        run = opened.get(name)
        try:
            if run and name == "tensorboard":
                from torch.utils.tensorboard import SummaryWriter

                log_dir = os.environ.get("TENSORBOARD_LOGGING_DIR") or getattr(settings, "logging_dir", None) or os.path.join(settings.output_dir, "runs")
                with SummaryWriter(log_dir) as writer:
                    to_tensorboard(made, log_dir, writer)
            elif run and name == "wandb":
                to_wandb(made, run)
            elif run and name == "mlflow":
                to_mlflow(made, sys.modules["mlflow"].MlflowClient(), run)
        except Exception as error:
            tell_once("%s does not take the page %s: %s" % (name, made.page, error))


class StepflameCallback(TrainerCallback):  # type: ignore[misc]
    """
    Records this process for `duration` seconds, after `first_after` steps and then every N-th hour, in ranks (None: all), with the options of
    `stepflame record`. The recording and its page go to folder (stepflame/ in the output_dir), and the page to what the Trainer reports to.
    """

    def __init__(
        self, every_hours: float = 6, duration: float = 30, folder: Optional["str | os.PathLike[str]"] = None, ranks: Optional[Collection[int]] = (0,), first_after: int = 100, **options: Any
    ) -> None:
        self._periodic = Periodic(every_hours, duration, os.fspath(folder) if folder else None, ranks, first_after, options)

    @guarded
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        rank = args.process_index
        if self._periodic.is_due(rank):
            opened = runs()
            self._periodic.start(os.path.join(args.output_dir, "stepflame"), rank, state.global_step, lambda made: publish(args, opened, made))

    @guarded
    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._periodic.finish()
