# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Jobs that are forked from a process with torch (nursery.py), as far as they need what subprocess.Popen has."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

NURSERY = Path(__file__).resolve().parent / "nursery.py"


class Nursery:
    """One for each set of modules and each environment, which /proc says of its jobs, too; it ends with us."""

    known = {}

    def __init__(self, python, modules):
        env = dict(os.environ, PYTHONUNBUFFERED="1")
        pipe = subprocess.PIPE
        self.popen = subprocess.Popen([python, NURSERY, *modules], stdin=pipe, stdout=pipe, env=env)
        self.codes = {}  # of jobs that have ended
        self.born = []
        self.text = b""

    @classmethod
    def of(cls, python, modules):
        environment = frozenset(item for item in os.environ.items() if item[0] != "PYTEST_CURRENT_TEST")
        key = (os.getpid(), python, modules, environment)
        if key not in cls.known:
            cls.known[key] = cls(python, modules)
        return cls.known[key]

    def listen(self, blocking):
        """Takes in what has been said; waits for something if `blocking`."""
        fd = self.popen.stdout.fileno()
        os.set_blocking(fd, blocking)
        try:
            more = os.read(fd, 65536)
        except BlockingIOError:
            return
        if not more:
            raise RuntimeError("the nursery has ended")
        *lines, self.text = (self.text + more).split(b"\n")
        for line in lines:
            pid, code = json.loads(line)
            if code is None:
                self.born.append(pid)
            else:
                self.codes[pid] = code

    def start(self, argv, out, err):
        """A job whose output goes to these files, which are there."""
        self.popen.stdin.write((json.dumps([argv, out, err]) + "\n").encode())
        self.popen.stdin.flush()
        while not self.born:
            self.listen(blocking=True)
        return Forked(self, self.born.pop())


class Forked:
    def __init__(self, nursery, pid):
        self.nursery = nursery
        self.pid = pid
        self.returncode = None

    def poll(self):
        if self.returncode is None:
            self.nursery.listen(blocking=False)
            self.returncode = self.nursery.codes.pop(self.pid, None)
        return self.returncode

    def wait(self):
        while self.poll() is None:
            time.sleep(0.005)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)
