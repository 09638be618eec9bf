# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Recordings from Python: of another process, attach(), and of this one, record()."""

import os
import shutil
import tempfile
import weakref
from types import TracebackType
from typing import Any, Optional, Type, Union

from . import program
from .child import END_SECONDS, Child
from .errors import StepflameError, tell_once
from .recording import PATH, Recording

ARM_SECONDS = 30


def arguments(pid: int, output: str, duration: Union[None, float, str], options: "dict[str, Any]") -> "list[str]":
    return program.words({"pid": pid, "output": output, "duration": duration, **options})


def attach(pid: int, duration: Union[None, float, str] = 10, output: Optional[PATH] = None, **options: Any) -> Recording:
    """
    Records a running process for so many seconds (or "2m"; None: until it ends), with the options of `stepflame record`: ops=True, frequency=19.
    Without an output the recording is in a temporary file, for as long as it is used.
    """
    try:
        folder = None if output else tempfile.mkdtemp(prefix="stepflame-")
    except OSError as failure:
        raise StepflameError("there is no temporary folder for the recording: %s" % failure, "name a file: output=, or check the temporary folder (TMPDIR)") from None
    recording = Recording(output or os.path.join(folder or "", "stepflame.rec"))
    if folder:
        weakref.finalize(recording, remove, folder, os.getpid())
    Child(*arguments(pid, recording.path, duration, options)).complete(duration)
    return recording


def remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a fork of the process, when that ends
        shutil.rmtree(folder, ignore_errors=True)


class record:
    """
    with record("x.rec") as recording: records this process, or pid, during the block, with the options of `stepflame record`. The recording is
    complete behind the block.

    Nothing of it ends the block: where stepflame cannot attach, that is logged once, and recording.error has it. required=True raises it.
    """

    def __init__(
        self,
        output: PATH = "stepflame.rec",
        *,
        pid: Optional[int] = None,
        duration: Union[None, float, str] = None,
        required: bool = False,
        attach_seconds: float = ARM_SECONDS,
        end_seconds: float = END_SECONDS,
        **options: Any,
    ) -> None:
        self.output, self.pid, self.duration, self.options = output, pid, duration, options
        self.required, self.attach_seconds, self.end_seconds = required, attach_seconds, end_seconds
        self._child: Optional[Child] = None

    def __enter__(self) -> Recording:
        recording = self._recording = Recording(self.output)
        self._owner = os.getpid()
        try:
            self._child = Child(*arguments(self.pid or self._owner, recording.path, self.duration, self.options))
            try:
                self._child.until_armed(self.attach_seconds)
            except BaseException:
                self._child.end(0)
                self._child = None
                raise
        except Exception as error:
            if self.required:
                raise
            recording.error = error if isinstance(error, StepflameError) else StepflameError(repr(error))
            tell_once("nothing is recorded: %s" % error)
        else:
            recording.error = StepflameError("%s is still being recorded" % recording.path, "read it behind the with block")
        return recording

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], traceback: Optional[TracebackType]) -> None:
        child, self._child = self._child, None
        if not child or os.getpid() != self._owner:  # a fork of the process leaves the block, too
            return
        try:
            status = child.end(self.end_seconds)
            self._recording.error = None
            if not status:
                return
            error = child.error()
        except Exception as failure:  # such as of a job that has closed all its files
            error = StepflameError(repr(failure))
        if self.required and not value:
            raise error
        tell_once("%s ended before the block did: %s" % (self._recording.path, error))
