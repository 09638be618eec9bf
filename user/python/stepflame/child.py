# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A running `stepflame record`, of which a job must notice nothing but that it was slower for a moment."""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Optional, Union

from . import program
from .errors import StepflameError, of_output

# A program around a Python, or a frozen one, would start itself again.
PYTHON = sys.executable if os.path.basename(sys.executable or "").startswith("python") else "python3"
SUPERVISOR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "supervisor.py")
START_SECONDS = 30
SAID_BYTES = 1 << 16
POLL_SECONDS = 0.01
KILLED_SECONDS = 5  # until the end of a killed program is known
END_SECONDS = 60  # until a program that was told to end has written its last part
LATE_SECONDS = 120  # for which a recording may last longer than it should


class Child:
    """
    In a session of its own, so that a Ctrl-C for the job is not a second one for stepflame; its messages go to a file, since a pipe that nobody reads
    would stop it. Ends with the job: supervisor.py.
    """

    def __init__(self, *arguments: str) -> None:
        self.status: Optional[int] = None  # exit code, or -signal, once it has ended
        try:
            self._log = tempfile.TemporaryFile(prefix="stepflame-")
            self._socket, its = socket.socketpair()
            with its:
                command = [PYTHON, "-I", "-S", SUPERVISOR, str(os.getpid()), program.path(), "record", *arguments]
                starter = subprocess.Popen(command, stdin=its.fileno(), stdout=subprocess.DEVNULL, stderr=self._log, start_new_session=True)
            if starter.wait(START_SECONDS):
                raise OSError("%s: %s" % (PYTHON, self.said().strip()))
        except (OSError, ValueError, subprocess.SubprocessError) as failure:
            raise StepflameError("cannot start stepflame: %s" % failure, "check memory, limits and the temporary folder (TMPDIR)") from None

    def said(self) -> str:
        """The end of it."""
        log = self._log.fileno()
        return os.pread(log, SAID_BYTES, max(0, os.fstat(log).st_size - SAID_BYTES)).decode(errors="replace")

    def error(self) -> StepflameError:
        return of_output(self.said(), self.status or 0, "record")

    def wait(self, seconds: Optional[float]) -> Optional[int]:
        """Its exit code, or -signal; None: so many seconds have passed."""
        if self.status is None:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if poll.poll(None if seconds is None else max(0, seconds) * 1000):
                try:
                    told = self._socket.recv(16)
                except OSError:
                    told = b""
                self.status = int(told or -signal.SIGKILL)  # without an answer it was the supervisor that was killed
                self._socket.close()
        return self.status

    def until_armed(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while "stepflame: armed" not in self.said():
            if self.wait(POLL_SECONDS) is not None:
                if "stepflame: armed" in self.said():
                    return
                raise self.error()
            if time.monotonic() > end:
                self.end(0)
                raise StepflameError("stepflame has not attached within %g s" % seconds, "try again when the machine is less busy, or give it more time: attach_seconds=")

    def complete(self, duration: Union[None, float, str]) -> None:
        """Waits for the end of a recording that lasts for so long, if that is known; raises its error."""
        try:
            status = self.wait(duration + LATE_SECONDS if isinstance(duration, (int, float)) else None)
        except BaseException:
            self.end(END_SECONDS)
            raise
        if status is None:
            self.end(END_SECONDS)
            raise StepflameError("stepflame has not ended %g s after it should have" % LATE_SECONDS, "try again when the machine is less busy")
        if status:
            raise self.error()

    def signal(self, number: int) -> None:
        try:
            self._socket.send(bytes([number]), socket.MSG_NOSIGNAL)
        except OSError:
            pass  # it has ended

    def end(self, seconds: float) -> Optional[int]:
        """Ends the recording, which writes its last part; kills it if it has not done so after so many seconds."""
        for number, wait in ((signal.SIGINT, seconds), (signal.SIGKILL, KILLED_SECONDS)):
            if self.status is None:
                self.signal(number)
                self.wait(wait)
        return self.status
