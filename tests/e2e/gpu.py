# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Jobs that run with the doubles of CUDA's libraries (tests/gpu), and the doubles' log: what really happened."""

import json
import os
import re
import time

import helpers
import pytest

DOUBLES = os.path.join(os.path.dirname(helpers.STEPFLAME), "tests", "gpu")

needs_doubles = pytest.mark.skipif(
    not os.access(os.path.join(DOUBLES, "train"), os.X_OK),
    reason="the doubles of CUDA's libraries are not built: run make doubles",
)
INJECT = os.path.join(os.path.dirname(helpers.STEPFLAME), "libstepflame-inject.so")
needs_cupti = pytest.mark.skipif(
    not os.path.exists(INJECT), reason="libstepflame-inject.so was not built: CUPTI's headers are not here"
)


def environment(log, cupti="", injection=None, **more):
    """
    The environment of a job that uses the doubles. log: where they write, a prefix. cupti: how CUPTI behaves
    (tests/gpu/cupti_double.h). injection: the library that CUDA shall load. more: variables, by their names.

    libcupti is loaded before all: a torch with CUDA brings its own, which is mapped too, and without a GPU is of no use.
    """
    cupti_path = os.path.join(DOUBLES, "libcupti.so.13")
    env = {
        "LD_LIBRARY_PATH": DOUBLES,
        "LD_PRELOAD": cupti_path,
        "STEPFLAME_CUPTI": cupti_path,
        "GPU_DOUBLES": DOUBLES,
        "GPU_DOUBLE_LOG": str(log),
        "GPU_DOUBLE_CUPTI": cupti,
        **{name: str(value) for name, value in more.items()},
    }
    if injection:
        env["CUDA_INJECTION64_PATH"] = str(injection)
    return env


class Jobs:
    """Starts jobs with the doubles; each has a `log`."""

    def __init__(self, bench):
        self.bench = bench

    def _start(self, script, args, command, environment_of):
        prefix = self.bench.directory / ("gpu%d.log" % len(self.bench.started))
        job = self.bench.job(script, *args, command=command, env=environment(prefix, **environment_of))
        job.log = Log(prefix, job.pid)
        return job

    def train(self, *args, program="train", **environment_of):
        """
        tests/gpu/train.c, or calls.c; program: train, train-static (the runtime is in it), train-static-stripped,
        calls, calls-static, calls-static-stripped.
        """
        return self._start(program, args, [os.path.join(DOUBLES, program)], environment_of)

    def python(self, script, *args, python=helpers.PYTHON, **environment_of):
        return self._start(script, args, [python, helpers.JOBS / script], environment_of)


class Log:
    """
    What the doubles wrote of one process, as dicts, in the order of writing: `call` (what ended), `op` (what a GPU did,
    written when it was given to it), `sync`, `cupti` (calls of CUPTI's own functions), `delivered`, `dropped`,
    `overhead`, `injected`, `clock`, and `error`: what no client of CUPTI may do.

    Times are ns of CLOCK_MONOTONIC.
    """

    def __init__(self, prefix, pid):
        self.path = "%s.%d" % (prefix, pid)
        self._lines = None

    def lines(self, kind=None):
        """All, of a process that has ended."""
        if self._lines is None:
            with open(self.path) as f:
                self._lines = [json.loads(line) for line in f]
        return [line for line in self._lines if kind in (None, line["log"])]

    def so_far(self, kind=None):
        """Of a process that runs: the whole lines that are there."""
        try:
            with open(self.path) as f:
                lines = [json.loads(line) for line in f if line.endswith("\n")]
        except FileNotFoundError:
            lines = []
        return [line for line in lines if kind in (None, line["log"])]

    def until(self, condition, seconds=helpers.END_SECONDS):
        """Waits until condition(line) holds for a line; the line."""

        def look():
            return next((line for line in self.so_far() if condition(line)), None)

        return helpers.until(seconds, look, lambda: "no such line in %s" % self.path)

    def calls(self, library=None, names=None, outer=True):
        """outer: only those that lie in no other; `names`: without _v2, _ptsz, _ptds."""
        return [
            call
            for call in self.lines("call")
            if library in (None, call["library"])
            and (names is None or plain(call["name"]) in names)
            and not (outer and call["depth"])
        ]

    def ops(self, *kinds, recorded=None):
        """kinds: kernel, copy, set, graph (a whole one, whose kernels are there too). recorded: by CUPTI."""
        return [
            op
            for op in self.lines("op")
            if (not kinds or op["kind"] in kinds) and recorded in (None, op["recorded"])
        ]

    def errors(self):
        return self.lines("error")

    def clock(self):
        """The function from CLOCK_MONOTONIC to CUPTI's time."""
        clock = self.lines("clock")[-1]

        def cupti(ns):
            drift = (ns - clock["base"]) * clock["drift_ppm"]
            # as C divides
            return ns + clock["offset"] + abs(drift) // 1000000 * (-1 if drift < 0 else 1)

        return cupti


def plain(name):
    """As C has a function of CUDA's libraries: cuMemcpyHtoDAsync_v2_ptsz is cuMemcpyHtoDAsync."""
    return re.sub(r"(_(ptsz|ptds|v\d+))+$", "", name)


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
