# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the package raises, and how it tells of what it does not raise."""

import logging
import re
import signal
from typing import Optional

LOG = logging.getLogger("stepflame")
USAGE = 2  # the program's exit code
told = set()  # type: set[str]


class StepflameError(Exception):
    """what: what went wrong, and why; fix: what to do about it, or None; status: the program's exit code, or -signal."""

    def __init__(self, what: str, fix: Optional[str] = None, status: int = 1) -> None:
        super().__init__(what, fix, status)
        self.what, self.fix, self.status = what, fix, status

    def __str__(self) -> str:
        return self.what + ("\n  fix: " + self.fix if self.fix else "")


def of_output(said: str, status: int, command: str) -> StepflameError:
    """The error that the program told on its standard error, of which each message is `stepflame: error: WHAT`, indented lines, `  fix: FIX`."""
    messages = re.findall(r"^stepflame: error: (.*(?:\n  .*)*)", said, re.M)
    if messages:
        parts = [[" ".join(part.split()) for part in message.split("\n  fix: ", 1)] for message in messages]
        return StepflameError("; ".join(part[0] for part in parts), next((part[1] for part in parts if len(part) > 1), None), status)
    lines = said.strip().splitlines() or ["it said nothing"]
    if status == USAGE:
        return StepflameError(lines[0].partition(": ")[2] or lines[0], "stepflame help %s lists the options" % command, status)
    if status < 0:
        number = -status
        return StepflameError("stepflame %s was killed by %s" % (command, signal.Signals(number).name if number in set(signal.Signals) else "signal %d" % number), None, status)
    return StepflameError("stepflame %s ended with exit status %d: %s" % (command, status, lines[-1]), None, status)


def tell_once(text: str) -> None:
    """By logging, not by a warning, for a filter may make an exception of that, which would end the job."""
    if text not in told:
        told.add(text)
        LOG.warning("stepflame: %s", text)
