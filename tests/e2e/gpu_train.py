# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program that trains on the doubles of CUDA's libraries (tests/gpu) under the injection library, and what came of its GPU, held against the doubles' log."""

import json
import os
import statistics
from pathlib import Path

import gpu
import helpers
import recfile

GPU = Path(gpu.DOUBLES)

NEEDS_CUPTI = [helpers.needs_bpf, gpu.needs_doubles, gpu.needs_cupti]

OPS = {"kernel": recfile.KERNEL, "copy": recfile.COPY, "set": recfile.SET}
PATIENCE_SECONDS = 5  # GPU_RING_PATIENCE_NS
# enum gpu_direction by CUpti_ActivityMemcpyKind
DIRECTIONS = {1: recfile.HTOD, 2: recfile.DTOH, 8: recfile.DTOD, 9: recfile.HTOH, 10: recfile.DTOD}
ALL_ONES = 0xFFFFFFFF


class Train:
    """The program that trains, with the doubles' log."""

    def __init__(self, bench, *args, cupti="", inject=True, command=(), **more):
        self.log_path = bench.directory / ("log%d" % len(bench.started))
        self.go = bench.directory / ("go%d" % len(bench.started))
        env = dict(os.environ, LD_LIBRARY_PATH=str(GPU), GPU_DOUBLE_LOG=str(self.log_path), GPU_DOUBLE_CUPTI=cupti, **more)
        if inject:
            env["CUDA_INJECTION64_PATH"] = str(gpu.INJECT)
        program = command or [GPU / "train", *args, "--early", "--wait", self.go]
        self.process = bench.process(*program, env=env)
        found = self.process.until_says(r"^ready (\d+)$", helpers.READY_SECONDS, "stdout")
        self.pid = int(found[1]) if not command else self.process.pid

    def release(self):
        self.go.touch()

    def log(self, kind=None, pid=None):
        path = Path("%s.%d" % (self.log_path, pid or self.pid))
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [line for line in found if kind in (None, line["log"])]

    def cupti(self):
        """Names of the functions of CUPTI that were called."""
        return [line["name"] for line in self.log("cupti")]

    def until_cupti(self, name, times=1, seconds=helpers.ARMED_SECONDS):
        helpers.until(seconds, lambda: self.cupti().count(name) >= times, lambda: name + ": " + str(self.cupti()))

    def until_ops(self, count):
        """Until its GPU has done so much more."""
        before = len(self.log("op"))
        helpers.until(helpers.END_SECONDS, lambda: len(self.log("op")) >= before + count, self.process.what, self.process.delayed)

    def end(self):
        assert self.process.wait() == 0, self.process.what()
        assert not self.log("error"), self.log("error")[:3]


def start(bench, *args, options=(), **more):
    """(train, record): a window is open in it, and it waits for release()."""
    train = Train(bench, *args, **more)
    record = bench.record("-p", train.pid, "--gpu", "cupti", "-F", 0, "--no-syscalls", *options).until_armed()
    return train, record


def started(bench, *args, **more):
    train, record = start(bench, *args, **more)
    train.until_cupti("cuptiActivityFlushPeriod")
    return train, record


class Activities:
    """REC_GPU_ACTIVITY and what goes with it."""

    def __init__(self, path):
        self.rows, self.names, self.devices, self.gpu, self.counters, self.last = [], {}, {}, {}, {}, {}
        same = ("bytes", "pid", "tid", "correlation", "kind", "direction", "device", "context", "stream")
        for kind, row in recfile.read_records(path):
            if kind == "NAME":
                self.names[row.id] = recfile.text_of(row)
            elif kind == "GPU_ACTIVITY":
                times = {"start": row.start_ns, "end": row.start_ns + row.duration_ns}
                more = {"name": self.names.get(row.name, ""), "detail": tuple(row.detail)}
                self.rows.append({**times, **more, **{field: getattr(row, field) for field in same}})
            elif kind == "GPU_DEVICE":
                self.devices[row.device] = (row.name, row.memory_bytes, row.multiprocessors, row.compute)
            elif kind == "GPU_WINDOW":
                how = recfile.WINDOW_ENDS[row.end]
                self.last[row.pid, row.index] = dict(start=row.start_ns, end=row.end_ns, how=how, error=row.error)
            elif kind == "GPU":
                self.gpu[row.pid] = dict(tier=row.tier, ns=row.cupti_ns, lost=row.lost, version=row.cupti_version, why=row.why)
            elif kind == "COUNTER":
                self.counters[row.name] = row.value

    def windows(self, pid):
        """In their order, the last word on each."""
        return [window for key, window in sorted(self.last.items()) if key[0] == pid]

    def of(self, *kinds):
        return [row for row in self.rows if row["kind"] in kinds]


def check_ops(found, train, ops=None):
    """Each piece of work that CUPTI has recorded arrived, as it was, once. Errors of the times, in ns."""
    ops = [op for op in train.log("op") if op["recorded"] and op["kind"] in OPS] if ops is None else ops
    rows = {(row["correlation"], row["kind"], row["detail"][7]): row for row in found.of(*OPS.values())}
    wanted = {(op["correlation"], OPS[op["kind"]], op["graph_node"] & ALL_ONES): op for op in ops}
    assert len(wanted) == len(ops) > 0
    assert len(rows) == len(found.of(*OPS.values()))
    assert rows.keys() == wanted.keys()
    errors = []
    for key, op in wanted.items():
        row = rows[key]
        assert row["pid"] == train.pid
        assert [row[k] for k in ("device", "context", "stream")] == [op[k] for k in ("device", "context", "stream")]
        if op["kind"] == "kernel":
            assert row["name"] == op["name"]
            assert row["detail"][:6] == (*op["grid"], *op["block"]) and row["bytes"] == op["shared"]
        else:
            assert row["bytes"] == op["bytes"]
        if op["kind"] == "copy":
            assert row["direction"] == DIRECTIONS[op["direction"]]
        errors += [abs(row["start"] - op["start"]), abs(row["end"] - op["end"])]
    return errors


def check_ops_of(found, train):
    """Those of the program's first process; a child that trains may have its own."""
    found.rows = [row for row in found.rows if row["pid"] == train.pid]
    return check_ops(found, train)


def check_times(errors):
    """A pair of readings is no wider than 1 ms, and ordinarily one microsecond."""
    assert max(errors) < 500_000
    assert statistics.median(errors) < 50_000
