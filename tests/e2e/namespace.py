# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Training jobs in a PID namespace: other tests run beside, and commands that look at all processes are to see these alone."""

import os
import re
import shlex
import shutil
import subprocess

import helpers
import pytest

LOOP = helpers.JOBS / "plain_loop.py"
needs_namespace = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="a PID namespace of its own needs root and unshare")


class Host:
    """A PID namespace with training jobs (of the script with its arguments and the Python, each with an environment), and nothing else that has torch but the commands `beside`."""

    def __init__(self, bench, *environments, script=LOOP, args=(), python=helpers.COLD_PYTHON, beside=()):
        self.bench, self.go = bench, bench.directory / "go"
        shell = "i=0; for env in \"$@\"; do i=$((i + 1)); env $env %s --wait '%s' --out '%s'.$i & done; wait" % (shlex.join(map(str, (python, script, *args))), self.go, bench.directory / "truth")
        shell = "".join("%s & " % shlex.join(map(str, command)) for command in beside) + shell
        words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", shell, "sh", *environments]
        self.process = bench.process(*words)
        ready = re.compile(r"^ready (\d+)$", re.M)
        helpers.until(helpers.READY_SECONDS, lambda: len(ready.findall(self.process.stdout)) == len(environments), self.process.what)
        self.pids = [int(pid) for pid in ready.findall(self.process.stdout)]
        (self.init,) = open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)).read().split()

    def command(self, *words):
        """The command, run in there."""
        return ["nsenter", "--target", self.init, "--pid", "--mount", "--wd=%s" % self.bench.directory, *map(str, words)]

    def run(self, *args):
        return subprocess.run(self.command(helpers.STEPFLAME, *args), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=helpers.END_SECONDS)

    def end(self):
        self.go.touch()
        assert self.process.wait() == 0, self.process.what()
