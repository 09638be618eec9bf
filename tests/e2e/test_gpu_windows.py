# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Windows of CUPTI's by a schedule: their bounds against the job's own clock, and what is in them against the log of the
doubles (tests/gpu).
"""

import json
import signal
import time
from pathlib import Path

import gpu
import helpers
import pytest
import recfile
from gpu_train import ALL_ONES, NEEDS_CUPTI, OPS, PATIENCE_SECONDS, Activities, Train, check_times
from intervals import length

pytestmark = NEEDS_CUPTI

MS = 1000000
AT = "libcudart.so.13:cudaEventSynchronize"  # the last call of a step of the program that trains
WAIT, WARMUP, ACTIVE = 3, 2, 4
CYCLE = WAIT + WARMUP + ACTIVE


class Trained:
    """The program that trains, recorded by a schedule from before its first step."""

    def __init__(self, bench, *args, schedule="wait=%d,warmup=%d,active=%d" % (WAIT, WARMUP, ACTIVE), more=(), cupti="", at=AT, stopped=False, **train):
        self.times = bench.directory / "times"
        self.train = Train(bench, *args, *([] if "command" in train else ["--out", self.times]), cupti=cupti, **train)
        self.record = bench.record(
            "-p", self.train.pid, "--gpu", "cupti", "-F", 0, "--no-syscalls", "--action", at, "--step-at", at, "--schedule", schedule, *more
        ).until_armed()  # fmt: skip
        if stopped:  # once stepflame has found the library
            maps = Path("/proc/%d/maps" % self.record.pid)
            helpers.until(30, lambda: "stepflame-gpu" in maps.read_text(), self.record.what)
            time.sleep(0.3)  # clock: it looks at it, too; of a test outside of the gate
            self.record.popen.send_signal(signal.SIGSTOP)
        self.train.release()

    def end(self):
        self.train.end()
        assert self.record.wait() == helpers.OK, self.record.what()
        return self.windows()

    def windows(self):
        self.found = Activities(self.record.file)
        return self.found.windows(self.train.pid)

    def boundaries(self):
        """The ends of the steps, by the program's clock."""
        return [end for _, end in json.loads(self.times.read_text())["threads"][0]]

    def ops(self):
        return [op for op in self.train.log("op") if op["kind"] in OPS]


def is_near(a, b, others):
    """The same instant; as exact as a step of a busy machine lets us say."""
    return abs(a - b) < min(abs(other - b) for other in others if other != b) / 2


def key_of(row):
    return row["correlation"], row["kind"], row["detail"][7] if row["kind"] == recfile.KERNEL else 0


def wanted(trained, window):
    """key_of() what lies in a window or was asked for in it, for sure, and perhaps."""
    start, end = window["start"], window["end"]
    asked = {}
    for call in trained.train.log("call"):
        if call.get("correlation"):
            begun = asked.setdefault(call["correlation"], call["start"])
            asked[call["correlation"]] = min(begun, call["start"])
    sure, perhaps = {}, set()
    for op in trained.ops():
        key = op["correlation"], OPS[op["kind"]], op["graph_node"] & ALL_ONES
        slack, begun = MS, min(op["start"], asked.get(op["correlation"], op["start"]))
        if op["end"] > start + slack and begun < end - slack:
            sure[key] = op
        elif op["end"] > start - slack and begun < end + slack:
            perhaps.add(key)
    return sure, perhaps


def check_content(trained, windows):
    """Each window has its work, with its times, once, and there is no other."""
    rows = {key_of(row): row for row in trained.found.of(*OPS.values())}
    assert len(rows) == len(trained.found.of(*OPS.values()))
    known, errors = set(), []
    for window in windows:
        sure, perhaps = wanted(trained, window)
        assert sure and sure.keys() <= rows.keys()
        known |= sure.keys() | perhaps
        for key, op in sure.items():
            errors += [abs(rows[key]["start"] - op["start"]), abs(rows[key]["end"] - op["end"])]
    assert rows.keys() <= known
    check_times(errors)
    for call in trained.found.of(recfile.GPU_API_CALL):
        assert any(call["end"] > w["start"] and call["start"] < w["end"] for w in windows)


def check_bounds(trained, windows, first=0):
    """Those of the schedule, which counts steps from the first boundary."""
    ends = trained.boundaries()
    for i, window in enumerate(windows, first):
        begin = i * CYCLE + WAIT + WARMUP
        assert is_near(window["start"], ends[begin], ends), (i, window)
        assert is_near(window["end"], ends[begin + ACTIVE], ends), (i, window)


@pytest.mark.parametrize("args, cupti", [((), ""), (("-S", 3, "-k", 700000), "shuffle=1,late_ms=30"), (("-g", 3), "drift_ppm=-300")])
def test_windows(bench, args, cupti):
    """Three of them; in between CUPTI is left, and nothing is recorded."""
    trained = Trained(bench, "-s", 60, "-u", 40000, "-l", 12, *args, schedule="wait=%d,warmup=%d,active=%d,repeat=3" % (WAIT, WARMUP, ACTIVE), cupti=cupti)
    # The recording ends with its last window.
    assert trained.record.wait() == helpers.OK, trained.record.what()
    windows = trained.end()
    assert [w["how"] for w in windows] == ["steps"] * 3
    check_bounds(trained, windows)
    check_content(trained, windows)
    names = trained.train.cupti()
    assert names.count("cuptiSubscribe_v2") == names.count("cuptiUnsubscribe") == 3
    # CUPTI was there for the steps, and for no more than one of the wait.
    ends = trained.boundaries()
    for op in trained.ops():
        step = sum(end < op["start"] for end in ends) - 1
        if 0 <= step < 3 * CYCLE and step % CYCLE < WAIT:
            assert not op["recorded"] or step % CYCLE == 0, (step, op)
        elif 0 <= step < 3 * CYCLE and step % CYCLE >= WAIT + WARMUP:
            assert op["recorded"], (step, op)
    (tier,) = helpers.report(trained.record.file, "--gpu")["tiers"]
    assert tier["tier"] == 2 and tier["why"] is None and tier["lost"] == 0
    assert tier["cupti_s"] == pytest.approx(sum(w["end"] - w["start"] for w in windows) / 1e9)


def test_report(bench):
    """What the report says of the windows is what the log says of them."""
    trained = Trained(bench, "-s", 40, "-u", 40000, "-l", 12, schedule="wait=%d,warmup=%d,active=%d,repeat=3" % (WAIT, WARMUP, ACTIVE))
    windows = trained.end()
    found = helpers.report(trained.record.file, "--gpu")
    assert [w["end"] for w in found["windows"]] == ["steps"] * 3
    for told, window in zip(found["windows"], windows):
        assert told["duration_s"] == pytest.approx((window["end"] - window["start"]) / 1e9)
    (line,) = found["gpus"]
    spans = [(op["start"], op["end"]) for op in trained.ops()]
    busy = sum(length(spans, w["start"], w["end"]) for w in windows)
    assert line["busy_us"] == pytest.approx(busy / 1e3, rel=0.01)
    # From the first work in the first window to the last work in the last one.
    watched = sum(w["end"] - w["start"] for w in windows)
    assert line["busy_us"] <= line["watched_us"] <= watched / 1e3
    assert sum(line["idle_us"].values()) == pytest.approx(line["watched_us"] - line["busy_us"], rel=0.001)
    assert 1e3 * line["watched_us"] > watched - 2 * max(b - a for a, b in zip(trained.boundaries(), trained.boundaries()[1:]))


def test_own_profiler(bench):
    """The program uses CUPTI itself, between windows: it gets it, and the windows are whole."""
    trained = Trained(bench, "-s", 45, "-u", 50000, "--profile", "25:27", schedule="wait=12,warmup=1,active=3,repeat=2")
    windows = trained.end()
    assert "taken" not in trained.train.process.stdout
    assert [w["how"] for w in windows] == ["steps"] * 2
    check_content(trained, windows)


def test_busy(bench):
    """It has CUPTI in the second window: that one cannot be had, which is said, and those around it can."""
    wait = 10  # it takes a tenth of a second until CUPTI is left
    cycle = wait + WARMUP + ACTIVE
    trained = Trained(
        bench, "-s", 70, "-u", 30000, "--profile", "%d:%d" % (cycle + wait - 2, 2 * cycle + 2), schedule="wait=%d,warmup=%d,active=%d,repeat=3" % (wait, WARMUP, ACTIVE)
    )  # fmt: skip
    windows = trained.end()
    assert "taken" not in trained.train.process.stdout
    assert [w["how"] for w in windows] == ["steps", "busy", "steps"]
    assert windows[1]["start"] == windows[1]["end"]
    check_content(trained, [windows[0], windows[2]])
    assert "another tool uses CUPTI in this process" in trained.record.stderr and "in this window" in trained.record.stderr
    assert "1 of 3 windows did not open: another tool used CUPTI" in " ".join(helpers.report_text(trained.record.file, "--gpu").split())
    (tier,) = helpers.report(trained.record.file, "--gpu")["tiers"]
    assert tier["tier"] == 2


def begun(trained, count=100):
    """Until so much was recorded in the window."""
    helpers.until(30, lambda: sum(op["recorded"] for op in trained.ops()) > count, trained.record.what)


def test_cut_by_the_end(bench):
    """The recording ends amid a window."""
    trained = Trained(bench, "-s", 2000, "-u", 20000, schedule="wait=2,warmup=1,active=1000")
    begun(trained)
    trained.record.interrupt()
    assert trained.record.wait() == helpers.OK, trained.record.what()
    now = gpu.now_ns()
    (window,) = trained.windows()
    assert window["how"] == "recording" and window["start"] < window["end"] <= now
    last = max(op["end"] for op in trained.ops() if op["recorded"])
    assert last - 500 * MS < window["end"]
    check_content(trained, [window])
    trained.train.process.kill()


def test_cut_by_the_program(bench):
    """The program ends amid its second window."""
    trained = Trained(bench, "-s", CYCLE + WAIT + WARMUP + 3, "-u", 20000)
    windows = trained.end()
    assert [w["how"] for w in windows] == ["steps", "exit"]
    ends = trained.boundaries()
    check_bounds(trained, windows[:1])
    assert is_near(windows[1]["start"], ends[CYCLE + WAIT + WARMUP], ends)
    assert windows[1]["end"] > ends[-1] - 100 * MS
    check_content(trained, windows)


BEHIND = ("-t", 3, "-l", 12, "-k", MS // 5, "-u", 500)  # at each flush, records of some thread are not complete


@pytest.mark.parametrize("args, cupti", [(("-u", 20000), ""), (BEHIND, ""), (BEHIND, "per_thread=0")])
def test_cut_by_a_kill_of_the_program(bench, args, cupti):
    """It has no time to say anything. What CUPTI had not given back, as work in the same buffer was not done, is behind the window's end."""
    trained = Trained(bench, "-s", 2000, *args, schedule="wait=2,warmup=1,active=1000", cupti=cupti)
    begun(trained, 300)
    time.sleep(1.5)  # the library looks at its clock once a second, and what ended before is known
    trained.train.process.kill()
    assert trained.record.wait() == helpers.OK, trained.record.what()
    (window,) = trained.windows()
    assert window["how"] == "exit"
    sure, _ = wanted(trained, window)
    sure = {key for key, op in sure.items() if op["end"] < window["end"]}
    assert sure and sure <= set(map(key_of, trained.found.of(*OPS.values())))


def test_cut_by_a_kill_of_ours(bench):
    """stepflame is killed amid a window: the file says up to when all is there."""
    trained = Trained(bench, "-s", 2000, "-u", 20000, schedule="wait=2,warmup=1,active=1000")
    begun(trained)
    helpers.until(30, lambda: any(w["end"] - w["start"] > 2000 * MS for w in trained.windows()), trained.record.what)
    trained.record.kill()
    (window,) = trained.windows()
    assert window["how"] == "open"
    sure, _ = wanted(trained, window)
    sure = {key for key, op in sure.items() if op["end"] < window["end"]}
    assert sure and sure <= set(map(key_of, trained.found.of(*OPS.values())))
    assert "ended when the recording was cut" in helpers.report_text(trained.record.file, "--gpu")
    trained.train.until_cupti("cuptiUnsubscribe", seconds=4 * PATIENCE_SECONDS)
    trained.train.process.kill()


def test_late(bench):
    """Steps that are over before stepflame has woken CUPTI: that is said, and nothing is made up."""
    trained = Trained(bench, "-s", 100, "-u", 20000, schedule="wait=30,active=2,repeat=2")
    trained.record.popen.send_signal(signal.SIGSTOP)
    helpers.until(30, lambda: len(trained.ops()) > 40 * 11, trained.train.process.what)
    trained.record.popen.send_signal(signal.SIGCONT)
    windows = trained.end()
    assert [w["how"] for w in windows] == ["late", "steps"]
    assert windows[0]["start"] == windows[0]["end"]
    check_content(trained, windows[1:])
    assert "1 of 2 windows ended before CUPTI was ready" in " ".join(helpers.report_text(trained.record.file, "--gpu").split())
    trained.train.process.kill()


def test_many_late(bench):
    """Windows that nobody saw."""
    trained = Trained(bench, "-s", 40, "-u", 1000, schedule="wait=2,active=2", stopped=True)
    trained.train.end()
    trained.record.popen.send_signal(signal.SIGCONT)
    assert trained.record.wait() == helpers.OK, trained.record.what()
    ends = [w["how"] for w in trained.windows()]
    assert len(ends) >= 9 and set(ends) == {"late"}
    assert not trained.found.of(*OPS.values())


FORKS = """
import ctypes, os, sys, time
cuda = ctypes.CDLL("libcudart.so.13")
assert cuda.cudaFree(None) == 0
print("ready %d" % os.getpid(), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
child = 0
for i in range(24):
    if i == 12:
        child = os.fork()
        if not child:
            time.sleep(0.3)
            os._exit(0)
    assert cuda.cudaDeviceSynchronize() == 0
    time.sleep(0.05)
assert os.waitpid(child, 0)[1] == 0
"""


def test_fork_between(bench):
    """A child that was forked between two windows has none of them, and the second is the parent's as the first was."""
    go = bench.directory / "go"
    trained = Trained(
        bench, schedule="wait=3,warmup=2,active=4,repeat=2", at="libcudart.so.13:cudaDeviceSynchronize", command=[helpers.PYTHON, "-c", FORKS, bench.directory / "go0"]
    )  # fmt: skip
    assert not go.exists()
    windows = trained.end()
    assert [w["how"] for w in windows] == ["steps"] * 2
    assert {pid for pid, _ in trained.found.last} == {trained.train.pid}
    syncs = [s for s in trained.train.log("sync") if s["recorded"]]
    for window in windows:
        inside = {s["correlation"] for s in syncs if s["start"] > window["start"] + MS and s["end"] < window["end"] - MS}
        rows = {row["correlation"] for row in trained.found.of(recfile.GPU_SYNC)}
        assert len(inside) >= 3 and inside <= rows


@gpu.needs_doubles
def test_with_operators(gpu_jobs, bench):
    """The windows of both are the same steps. With so short a wait operators are armed from the beginning on."""
    active = 10
    job = gpu_jobs.python("gpu_loop.py", "--batches", 400, injection=gpu.INJECT).until_ready()
    record = bench.record("-p", job.pid, "--gpu", "cupti", "--ops", "--schedule", "wait=2,warmup=58,active=%d" % active).until_armed()
    job.release()
    job.truth()
    assert record.wait() == helpers.OK, record.what()
    found, ops = Activities(record.file), {}
    for kind, row in recfile.read_records(record.file):
        if kind == "OP_WINDOW":
            ops[row.index] = row.steps, row.start_ns, row.end_ns
    windows = {window["end"]: window for window in found.windows(job.pid)}
    whole = [(start, end) for steps, start, end in ops.values() if steps == active]
    assert whole and len(windows) >= 5
    for start, end in whole:
        assert windows[end]["how"] == "late" or start <= windows[end]["start"] < end


def test_no_operators(bench):
    """With --gpu a schedule is CUPTI's alone unless --ops is there, too."""
    trained = Trained(bench, "-s", 20, schedule="wait=1,active=2,repeat=1")
    trained.end()
    assert not any(kind == "OP_WINDOW" for kind, _ in recfile.read_records(trained.record.file))
