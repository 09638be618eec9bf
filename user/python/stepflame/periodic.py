# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the callbacks of Lightning and of transformers share: recordings of this process now and then, by a thread that waits for the program."""

import functools
import os
import shutil
import signal
import threading
import time
from typing import Any, Callable, Collection, Optional

from .child import Child
from .errors import LOG, StepflameError, tell_once
from .recorder import arguments
from .recording import Recording

FINISH_SECONDS = 30  # for which the end of a training waits for the end of a recording


class Made:
    """What there is to be attached to a logger."""

    def __init__(self, page: str, summary: str, step: int) -> None:
        self.page, self.summary, self.step = page, summary, step

    def as_markdown(self) -> str:
        return "".join("    %s\n" % line for line in self.summary.splitlines())


class Periodic:
    """Nothing of it raises: a training goes on without it."""

    def __init__(self, every_hours: float, duration: float, folder: Optional[str], ranks: Optional[Collection[int]], first_after: int, options: "dict[str, Any]") -> None:
        self.every_seconds, self.duration, self.folder = every_hours * 3600, duration, folder
        self.ranks, self.first_after, self.options = ranks, first_after, options
        self.steps = 0
        self.due = 0.0  # by time.monotonic(), once there were enough steps
        self._thread: Optional[threading.Thread] = None
        self._child: Optional[Child] = None
        self._finishing = False

    def __getstate__(self) -> "dict[str, Any]":
        """A callback may be copied or sent to another process; the recording stays here."""
        return {**vars(self), "_thread": None, "_child": None}

    def is_due(self, rank: int) -> bool:
        """Of a step that has ended."""
        self.steps += 1
        if self.steps < self.first_after or time.monotonic() < self.due or (self.ranks is not None and rank not in self.ranks):
            return False
        return not (self._thread and self._thread.is_alive())

    def start(self, folder: str, rank: int, step: int, publish: Callable[[Made], None]) -> None:
        """folder: where the files go, unless the user has named one."""
        self.due = time.monotonic() + self.every_seconds
        self._finishing = False
        name = "rank%d-step%d-%s" % (rank, step, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
        self._thread = threading.Thread(target=self._run, args=(os.path.join(self.folder or folder, name), step, publish), name="stepflame", daemon=True)
        self._thread.start()

    def _run(self, stem: str, step: int, publish: Callable[[Made], None]) -> None:
        try:
            if "://" in stem:
                raise StepflameError("%s is no folder of this machine" % os.path.dirname(stem), "name one: folder=")
            os.makedirs(os.path.dirname(stem), exist_ok=True)
            recording = Recording(stem + ".rec")
            if not self._record(recording.path):
                return
            made = Made(recording.flame(stem + ".html"), recording.report(), step)
            LOG.info("stepflame: recorded %s s at step %d: %s", self.duration, step, made.page)
            publish(made)
        except Exception as error:
            tell_once("nothing is recorded, or shown: %s" % error)

    def _record(self, path: str) -> bool:
        """Is there a recording?"""
        child = self._child = Child(*arguments(os.getpid(), path, self.duration, self.options))
        if self._finishing:
            child.signal(signal.SIGINT)
        try:
            child.complete(self.duration)
        except StepflameError as error:
            if error.status == -signal.SIGINT and self._finishing:
                return False  # the training has ended before stepflame could begin
            raise
        return True

    def finish(self) -> None:
        """The training ends: so does the recording, and its page goes to the logger while that is open."""
        self._finishing = True
        if self._thread and self._thread.is_alive():
            if self._child:
                self._child.signal(signal.SIGINT)
            self._thread.join(FINISH_SECONDS)


def guarded(method: Callable[..., None]) -> Callable[..., None]:
    """A hook of a callback that tells of what it does not raise."""

    @functools.wraps(method)
    def hook(*arguments: Any, **named: Any) -> None:
        try:
            method(*arguments, **named)
        except Exception as error:
            tell_once("the callback failed, and the training goes on: %s: %s" % (type(error).__name__, error))

    return hook


def to_tensorboard(made: Made, log_dir: str, writer: Any) -> None:
    os.makedirs(log_dir, exist_ok=True)
    shutil.copy(made.page, log_dir)
    writer.add_text("stepflame", made.as_markdown(), made.step)


def to_wandb(made: Made, run: Any) -> None:
    import wandb

    with open(made.page, encoding="utf-8") as page:
        run.log({"stepflame": wandb.Html(page, inject=False)}, commit=False)  # with the next of the job's own


def to_mlflow(made: Made, client: Any, run_id: str) -> None:
    client.log_artifact(run_id, made.page, "stepflame")
    client.log_text(run_id, made.summary, "stepflame/%s.txt" % os.path.splitext(os.path.basename(made.page))[0])
