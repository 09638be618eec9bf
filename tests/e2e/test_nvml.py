# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""GPU usage against what the double of libnvidia-ml (tests/gpu/nvml.c) says that it told, and a library that hangs, crashes, or is not there."""

import collections
import os
import re
import subprocess
import time

import gpu
import helpers
import pytest
import recfile

pytestmark = [helpers.needs_bpf, gpu.needs_doubles]

UNKNOWN = 0xFFFFFFFF
GIB = 1 << 30
IDLE = "import time; print('ready', flush=True); time.sleep(600)"
DRIVER = os.path.join(gpu.DOUBLES, "libcuda.so.1")
WITH_DRIVER = "import ctypes; ctypes.CDLL(%r); " % DRIVER + IDLE
DRIVER_LATE = "import ctypes, time, torch; print('ready', flush=True); time.sleep(4); ctypes.CDLL(%r); time.sleep(600)" % DRIVER

Usage = collections.namedtuple("Usage", "time_ns used total device busy memory_busy power celsius mhz name")

# Of three GPUs: figures that change with each look, nothing but a memory, and no memory and no power.
TOLD = """0 init prints
0 busy 0*1
0 memory_busy 100*-1
0 memory %(memory)d
0 memory_used 0*%(more)d
0 power_mw 100000*1
0 temperature 40*1
0 sm_mhz 1000*1
0 mhz 1
1 busy fail=3
1 memory %(memory)d
1 memory_used 0*%(more)d
1 power_mw fail=3
1 temperature fail=3
1 sm_mhz fail=3
2 name A GPU
2 busy 71
2 memory_busy 23
2 memory fail=3
2 power_mw fail=3
2 temperature 63
2 sm_mhz 1755
2 mhz 1
""" % {"memory": 80 * GIB, "more": 1 << 20}


class Double:
    """What the double tells, and its log."""

    def __init__(self, directory, *more):
        self.path = directory / "nvml"
        self.path.write_text(TOLD + "".join(line + "\n" for line in more))
        self.environment = dict(os.environ, LD_LIBRARY_PATH=gpu.DOUBLES, GPU_DOUBLE_NVML=str(self.path), GPU_DOUBLE_DEVICES="3")

    @property
    def looks(self):
        """[(number, ns)]"""
        log = self.path.with_suffix(".looks")
        return [tuple(map(int, line.split())) for line in log.read_text().splitlines()] if log.exists() else []


def idle(bench, script=IDLE):
    return bench.process(helpers.PYTHON, "-c", script).until_ready()


class Recorded:
    """An idle Python under `record` with the double, or without."""

    def __init__(self, bench, *options, more=(), seconds=None, looks=3, double=True, script=IDLE, auto=True, uses=()):
        """Until so many looks, or for so many seconds. more: lines of what the double tells; uses: the GPUs
        that it says the job to use, besides another process."""
        job = idle(bench, script)
        told = Double(bench.directory, *more, *(f"{device} processes 1,{job.pid}" for device in uses))
        self.file = bench.directory / "nvml.rec"
        command = [helpers.STEPFLAME, "record", "-p", job.pid, "-o", self.file, *(("--gpu", "auto") if auto else ()), *options]
        self.record = bench.process(*command, env=told.environment if double else None)
        self.record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
        if seconds:
            time.sleep(seconds)  # clock: of tests outside of the gate
        else:
            helpers.until(helpers.ARMED_SECONDS, lambda: len(told.looks) >= looks, lambda: str(told.looks), self.record.delayed)
            time.sleep(0.3)  # clock: the last look is told behind it; the gate does not ask for it
        self.record.interrupt()
        began = time.monotonic()  # clock: for test_hangs
        assert self.record.wait() == helpers.OK, self.record.what()
        self.end_seconds = time.monotonic() - began  # clock: likewise
        records = list(recfile.read_records(self.file))
        self.job_pid = job.pid
        self.users = [(row.pid, row.device) for kind, row in records if kind == "GPU_USER"]
        self.rows = [self.usage(row) for kind, row in records if kind == "GPU_USAGE"]
        self.notes = [recfile.text_of(row) for kind, row in records if kind == "NOTE"]
        self.looks = told.looks
        assert "NVML prints" not in self.record.stdout

    @staticmethod
    def usage(row):
        figures = (getattr(row, field) for field in recfile.USAGE_FIELDS)
        return Usage(row.time_ns, row.memory_used_bytes, row.memory_bytes, row.device, *figures, row.name)


def children_named(name):
    found = subprocess.run(["ps", "-eo", "ppid,comm,pid"], capture_output=True, text=True).stdout.splitlines()
    return [line.split() for line in found if name in line]


def test_usage(bench):
    found = Recorded(bench, looks=4)
    assert not [note for note in found.notes if "NVML" in note]
    told = dict(found.looks)
    gaps = [b - a for (_, a), (_, b) in zip(found.looks, found.looks[1:])]
    assert len(gaps) >= 3 and all(gap > 0.9e9 for gap in gaps[1:]), gaps
    assert len(found.rows) >= 3 * 3
    looks = collections.defaultdict(list)
    for row in found.rows:
        # the nearest look; each has a second of its own
        look = min(told, key=lambda look: abs(told[look] - row.time_ns))
        assert abs(row.time_ns - told[look]) < 0.5e9
        looks[look].append(row.device)
        assert row.name == ("A GPU" if row.device == 2 else "Double %d" % row.device)
        if row.device == 0:
            assert row[1:9] == (look << 20, 80 * GIB, 0, look, 100 - look, 100000 + look, 40 + look, 1000 + look)
        elif row.device == 1:
            assert row[1:9] == (look << 20, 80 * GIB, 1, *(UNKNOWN,) * 5)
        else:
            assert row[1:9] == (0, 0, 2, 71, 23, UNKNOWN, 63, 1755)
    # Each look from then on, of all.
    assert all(sorted(devices) == [0, 1, 2] for devices in looks.values()), looks
    assert sorted(looks) == list(range(min(looks), max(looks) + 1)), looks


def test_which_gpus_a_process_uses(bench):
    """As NVML lists its processes, those of the recording, each once."""
    found = Recorded(bench, uses=(0, 2))
    assert sorted(found.users) == [(found.job_pid, 0), (found.job_pid, 2)]
    assert not Recorded(bench).users


def test_off(bench):
    found = Recorded(bench, "--gpu", "off", seconds=1.5)
    assert not found.rows and not found.looks


@pytest.mark.parametrize("script", [WITH_DRIVER, DRIVER_LATE], ids=["mapped", "later"])
def test_driver_is_mapped(bench, script):
    """Without --gpu: NVML is asked once the process has CUDA's driver; and it takes no probe."""
    found = Recorded(bench, script=script, auto=False)
    told = dict(found.looks)
    rows = [row for row in found.rows if row.device == 0]
    assert len(rows) >= 2 and all(row.used == row.busy << 20 and row.busy in told for row in rows)
    assert not [kind for kind, _ in recfile.read_records(found.file) if kind in ("GPU_CALLS", "GPU_STEP")]
    assert "GPU 2: A GPU, 71.0 % busy, 63 degrees" in " ".join(helpers.report_text(found.file, "--steps").split())


def test_no_driver_or_off(bench):
    assert not Recorded(bench, auto=False, seconds=1.5).looks
    assert not Recorded(bench, "--gpu", "off", script=WITH_DRIVER, auto=False, seconds=1.5).looks


def test_top(bench):
    """The header of `top` has the last reading of each GPU, and says nothing of what is not told."""
    job, told = idle(bench), Double(bench.directory)
    top = bench.process(helpers.STEPFLAME, "top", "-p", job.pid, "--batch", "-n", 3, env=told.environment)
    assert top.wait() == helpers.OK, top.what()
    looks = len(told.looks)
    said = re.findall(r"^GPU 0  busy (\d+) %  idle (\d+) %  memory (\S+) of 85.9 GB  100 W  (\d+) C  (\d+) MHz  Double 0$", top.stdout, re.M)
    assert len(said) >= 2
    for busy, not_busy, memory, celsius, mhz in said:
        look = int(busy)
        assert 1 <= look <= looks
        assert (not_busy, memory, celsius, mhz) == (str(100 - look), "%.1f" % (look * (1 << 20) / 1e9), str(40 + look), str(1000 + look))
    assert int(said[-1][0]) > int(said[0][0])
    assert re.search(r"^GPU 1  memory \S+ of 85.9 GB  Double 1$", top.stdout, re.M)
    without = helpers.stepflame("top", "-p", job.pid, "--batch", "-n", 1)
    assert not re.search("^GPU", without.stdout, re.M)


@pytest.mark.parametrize("double", [False, True], ids=["no library", "no driver"])
def test_not_there(bench, double):
    found = Recorded(bench, more=["0 init fail=9"], seconds=1.5, double=double)
    assert not found.rows and not found.looks
    assert not [note for note in found.notes if "NVML" in note]
    assert "NVML" not in found.record.stderr and "nvidia" not in found.record.stderr


@pytest.mark.parametrize("where", ["handle hang@3", "init hang"])
def test_hangs(bench, where):
    found = Recorded(bench, more=["0 " + where], **({"looks": 3} if "3" in where else {"seconds": 1.5}))
    # what came before it hung is there
    assert {row.used >> 20 for row in found.rows if row.total} == ({1, 2} if "3" in where else set())
    assert len([note for note in found.notes if "NVML" in note and "did not answer" in note]) == 1
    assert not [line for line in children_named("stepflame-nvml") if int(line[0]) == found.record.pid]
    quick = Recorded(bench, "--gpu", "off", seconds=1)
    assert found.end_seconds < quick.end_seconds + 5


@pytest.mark.parametrize("how, note", [("crash", 1), ("fail=15", 0)], ids=["crash", "lost"])
def test_gone(bench, how, note):
    found = Recorded(bench, more=["%d handle %s@3" % (device, how) for device in range(3)])
    assert {row.used >> 20 for row in found.rows if row.total} == {1, 2} and len(found.looks) >= 3
    assert len([text for text in found.notes if "NVML" in text and "crashed" in text]) == note


def test_killed(bench):
    """stepflame is killed: the process that asks NVML ends, even from within a call that hangs."""
    job, told = idle(bench), Double(bench.directory, "0 init hang")
    command = [helpers.STEPFLAME, "record", "-p", job.pid, "--gpu", "auto", "-o", bench.directory / "killed.rec"]
    record = bench.process(*command, env=told.environment)
    record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
    (child,) = [int(pid) for parent, _, pid in children_named("stepflame-nvml") if int(parent) == record.pid]
    record.kill()
    helpers.until(5, lambda: not os.path.exists("/proc/%d" % child), lambda: "it lives on")
    assert job.running()
