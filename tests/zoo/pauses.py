# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Pauses from outside: now and then a program is kept from running, by a signal or by its cgroup's freezer."""

import os
import signal
import threading

import limits

PAUSE_SECONDS, RUN_SECONDS = 0.25, 1.25


class Pauses:
    """From start() until end(), in a thread."""

    def __init__(self, pause, go_on):
        self.pause, self.go_on = pause, go_on
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def start(self):
        self.thread.start()

    def run(self):
        while not self.over.wait(RUN_SECONDS):
            self.pause()
            self.over.wait(PAUSE_SECONDS)
            self.go_on()

    def end(self):
        self.over.set()
        self.thread.join()


class Freezer(limits.Limit):
    """A cgroup whose processes can be frozen."""

    def __init__(self):
        super().__init__("freezer")

    def set(self, path):
        pass

    def freeze(self, frozen):
        self.write("freezer.state", "FROZEN" if frozen else "THAWED", "cgroup.freeze", "1" if frozen else "0")


limits.LIMITS["freeze"] = Freezer


def of(fault, pid, limit):
    """The pauses of a fault, or None."""
    if fault == "freeze":
        return Pauses(lambda: limit.freeze(True), lambda: limit.freeze(False))
    if fault == "stop":
        return Pauses(lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT))
    return None
