# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""GPU usage against what a double of libnvidia-ml says that it told, and a library that hangs, crashes, or is not there."""

import collections
import os
import re
import subprocess
import time
from pathlib import Path

import helpers
import pytest
import recfile

pytestmark = helpers.needs_bpf

UNKNOWN = 0xFFFFFFFF
GIB = 1 << 30
IDLE = "import time; print('ready', flush=True); time.sleep(600)"

Usage = collections.namedtuple("Usage", "time_ns used total device busy memory_busy power celsius mhz name")


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvml")
    command = ["cc", "-w", "-fPIC", "-shared", "-o", folder / "libnvidia-ml.so.1", helpers.JOBS / "nvml_double.c"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no C compiler")
    return folder


class Recorded:
    """An idle Python under `record` with the double, or without."""

    def __init__(self, bench, library, *options, mode="", seconds=4, **more):
        job = bench.process(helpers.PYTHON, "-c", IDLE)
        job.until_says("^ready$", helpers.READY_SECONDS, "stdout")
        self.log = bench.directory / "nvml.log"
        self.log.touch()
        self.file = bench.directory / "nvml.rec"
        env = dict(os.environ, NVML_DOUBLE=mode, NVML_DOUBLE_LOG=str(self.log), **more)
        if library:
            env["LD_LIBRARY_PATH"] = str(library)
        command = [helpers.STEPFLAME, "record", "-p", job.pid, "-o", self.file, "--gpu", "auto", *options]
        self.record = bench.process(*command, env=env)
        self.record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
        time.sleep(seconds)
        self.record.interrupt()
        began = time.monotonic()
        assert self.record.wait() == helpers.OK, self.record.what()
        self.end_seconds = time.monotonic() - began
        records = list(recfile.read_records(self.file))
        self.rows = [self.usage(row) for kind, row in records if kind == "GPU_USAGE"]
        self.notes = [recfile.text_of(row) for kind, row in records if kind == "NOTE"]
        self.looks = [tuple(map(int, line.split())) for line in self.log.read_text().splitlines()]
        assert "NVML prints" not in self.record.stdout

    @staticmethod
    def usage(row):
        figures = (getattr(row, field) for field in recfile.USAGE_FIELDS)
        return Usage(row.time_ns, row.memory_used_bytes, row.memory_bytes, row.device, *figures, row.name)


def children_named(name):
    found = subprocess.run(["ps", "-eo", "ppid,comm,pid"], capture_output=True, text=True).stdout.splitlines()
    return [line.split() for line in found if name in line]


def test_usage(bench, library):
    found = Recorded(bench, library, seconds=4.5)
    assert not [note for note in found.notes if "NVML" in note]
    told = {look: at for look, at in found.looks}
    gaps = [b - a for (_, a), (_, b) in zip(found.looks, found.looks[1:])]
    assert len(gaps) >= 3 and all(gap > 0.9e9 for gap in gaps[1:]), gaps
    assert len(found.rows) >= 2 * 3
    for row in found.rows:
        look = row.used >> 20
        assert abs(row.time_ns - told[look]) < 0.5e9
        assert (row.total, row.used) == (80 * GIB, look << 20)
        assert row.name == "Double %d" % row.device
        if row.device == 0:
            assert row[4:9] == (look, 100 - look, 100000 + look, 40 + look, 1000 + look)
        else:
            assert row[4:9] == (UNKNOWN,) * 5
    # Each look from then on, of both.
    looks = collections.Counter(row.used >> 20 for row in found.rows)
    assert set(looks.values()) == {2} and sorted(looks) == list(range(min(looks), max(looks) + 1)), looks


DOUBLES = Path(helpers.STEPFLAME).parent / "tests" / "gpu"


@pytest.mark.skipif(not (DOUBLES / "libnvidia-ml.so.1").exists(), reason="no doubles of NVIDIA's libraries: make doubles")
def test_layouts(bench):
    """The double that is built with NVIDIA's own nvml.h."""
    figures = {"name": "A GPU", "memory": 80 * GIB, "memory_used": 5 * GIB, "busy": 71, "memory_busy": 23}
    figures.update(power_mw=312345, temperature=63, sm_mhz=1755, mhz=1)
    told = bench.directory / "figures"
    told.write_text("".join("0 %s %s\n" % item for item in figures.items()) + "1 power_mw fail=3\n1 memory fail=3\n")
    found = Recorded(bench, DOUBLES, seconds=2.5, GPU_DOUBLE_NVML=str(told), GPU_DOUBLE_DEVICES="2")
    first, second = ([row for row in found.rows if row.device == device] for device in (0, 1))
    assert len(first) >= 2 and len(second) >= 2
    assert {row[1:] for row in first} == {(5 * GIB, 80 * GIB, 0, 71, 23, 312345, 63, 1755, "A GPU")}
    assert {(row.used, row.total, row.busy, row.power) for row in second} == {(0, 0, 0, UNKNOWN)}


def test_off(bench, library):
    found = Recorded(bench, library, "--gpu", "off", seconds=1.5)
    assert not found.rows and not found.looks


def test_top(bench, library):
    """The header of `top` has the last reading of each GPU, and says nothing of what is not told."""
    job = bench.process(helpers.PYTHON, "-c", IDLE)
    job.until_says("^ready$", helpers.READY_SECONDS, "stdout")
    log = bench.directory / "nvml.log"
    env = dict(os.environ, NVML_DOUBLE_LOG=str(log), LD_LIBRARY_PATH=str(library))
    top = bench.process(helpers.STEPFLAME, "top", "-p", job.pid, "--batch", "-n", 3, env=env)
    assert top.wait() == helpers.OK, top.what()
    looks = len(log.read_text().splitlines())
    said = re.findall(r"^GPU 0  busy (\d+) %  idle (\d+) %  memory (\S+) of 85.9 GB  100 W  (\d+) C  (\d+) MHz  Double 0$", top.stdout, re.M)
    assert len(said) >= 2
    for busy, idle, memory, celsius, mhz in said:
        look = int(busy)
        assert 1 <= look <= looks
        assert (idle, memory, celsius, mhz) == (str(100 - look), "%.1f" % (look * (1 << 20) / 1e9), str(40 + look), str(1000 + look))
    assert int(said[-1][0]) > int(said[0][0])
    assert re.search(r"^GPU 1  memory \S+ of 85.9 GB  Double 1$", top.stdout, re.M)
    without = helpers.stepflame("top", "-p", job.pid, "--batch", "-n", 1)
    assert not re.search("^GPU", without.stdout, re.M)


@pytest.mark.parametrize("mode", [None, "no-driver"])
def test_not_there(bench, library, mode):
    found = Recorded(bench, mode and library, mode=mode or "", seconds=1.5)
    assert not found.rows and not found.looks
    assert not [note for note in found.notes if "NVML" in note]
    assert "NVML" not in found.record.stderr and "nvidia" not in found.record.stderr


@pytest.mark.parametrize("mode", ["hang", "hang-init"])
def test_hangs(bench, library, mode):
    found = Recorded(bench, library, mode=mode)
    # what came before it hung is there
    assert {row.used >> 20 for row in found.rows} == ({1, 2} if mode == "hang" else set())
    assert len([note for note in found.notes if "NVML" in note and "did not answer" in note]) == 1
    assert not [line for line in children_named("stepflame-nvml") if int(line[0]) == found.record.pid]
    quick = Recorded(bench, library, "--gpu", "off", seconds=1)
    assert found.end_seconds < quick.end_seconds + 5


@pytest.mark.parametrize("mode, note", [("crash", 1), ("lost", 0)])
def test_gone(bench, library, mode, note):
    found = Recorded(bench, library, mode=mode)
    assert {row.used >> 20 for row in found.rows} == {1, 2} and len(found.looks) >= 3
    assert len([text for text in found.notes if "NVML" in text and "crashed" in text]) == note


def test_killed(bench, library):
    """stepflame is killed: the process that asks NVML ends, even from within a call that hangs."""
    job = bench.process(helpers.PYTHON, "-c", IDLE)
    job.until_says("^ready$", helpers.READY_SECONDS, "stdout")
    log = bench.directory / "nvml.log"
    env = dict(os.environ, NVML_DOUBLE="hang-init", NVML_DOUBLE_LOG=str(log), LD_LIBRARY_PATH=str(library))
    command = [helpers.STEPFLAME, "record", "-p", job.pid, "--gpu", "auto", "-o", bench.directory / "killed.rec"]
    record = bench.process(*command, env=env)
    record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
    (child,) = [int(pid) for parent, _, pid in children_named("stepflame-nvml") if int(parent) == record.pid]
    record.kill()
    helpers.until(5, lambda: not os.path.exists("/proc/%d" % child), lambda: "it lives on")
    assert job.running()
