# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A job whose memory is swapped out: BPF reads what is there; a stack may end early, counted, and has no frame that is not true."""

import ctypes
import json
import os
import subprocess

import dumped_samples
import helpers
import pytest
import pythons

pytestmark = helpers.needs_bpf

PIDFD_OPEN, PROCESS_MADVISE, MADV_PAGEOUT = 434, 440, 21
DEPTH = 100

# Each function has a code object, a name and a file of its own; the innermost runs, in few pages.
JOB = """
import time
def innermost():
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for i in range(20000): pass
        time.sleep(0.001)
scope = {"f0": innermost}
for i in range(1, %d):
    source = "def f%%d():\\n    f%%d()\\n    %%r\\n" %% (i, i - 1, "x" * 3000)
    exec(compile(source, "/nowhere/%%d.py" %% i, "exec"), scope)
print("ready", flush=True)
scope["f%d"]()
""" % (DEPTH, DEPTH - 1)


@pytest.fixture
def swap(tmp_path):
    file = tmp_path / "swap"
    with open(file, "wb") as f:
        os.posix_fallocate(f.fileno(), 0, 64 << 20)
    file.chmod(0o600)
    for command in ("mkswap", "swapon"):
        if subprocess.run([command, str(file)], capture_output=True).returncode:
            pytest.skip("no swap file can be added here")
    yield
    subprocess.run(["swapoff", str(file)], check=True)


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_size_t), ("bytes", ctypes.c_size_t)]


def page_out(pid):
    """All that is the process's own; how much of it is out then."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = libc.syscall(PIDFD_OPEN, pid, 0)
    with open("/proc/%d/maps" % pid) as maps:
        areas = [line.split()[0].split("-") for line in maps if " rw-p " in line]
    for start, end in areas:
        area = Iovec(int(start, 16), int(end, 16) - int(start, 16))
        if libc.syscall(PROCESS_MADVISE, pidfd, ctypes.byref(area), 1, MADV_PAGEOUT, 0) < 0 and ctypes.get_errno() == 1:
            pytest.skip("this kernel pages out no other process")
    os.close(pidfd)
    with open("/proc/%d/status" % pid) as status:
        return int([line.split()[1] for line in status if line.startswith("VmSwap")][0])


@pythons.parametrize(pythons.of_minor(9, 11, 13), long=(11,))
def test_swapped(bench, swap, python):
    job = bench.process(python, "-c", JOB).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    out_kb = 0
    for _ in range(3):
        out_kb = max(out_kb, page_out(job.pid))
        job.until_ran(0.1)
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()
    assert out_kb > 1000 and job.running()
    expected = ["innermost"] + ["f%d" % i for i in range(1, DEPTH)] + ["<module>"]
    files = ["<string>"] + ["/nowhere/%d.py" % i for i in range(1, DEPTH)] + ["<string>"]
    lengths = set()
    for sample in dumped_samples.Samples(record.file).of(pid=job.pid):
        assert [frame.name for frame in sample.stack] == expected[: len(sample.stack)]
        assert [frame.file for frame in sample.stack] == files[: len(sample.stack)]
        assert len(sample.stack) == len(expected) or sample.cut or not sample.stack
        lengths.add(len(sample.stack))
    found = helpers.report(record.file)
    assert any(0 < length < len(expected) for length in lengths), (lengths, found["lost"])
    assert found["lost"]["stack_lost"] > 0, found["lost"]
    # what is out comes back for who asks in earnest
    (thread,) = json.loads(helpers.stepflame("dump", "-p", job.pid, "--json").stdout)["threads"]
    assert [frame["name"] for frame in thread["frames"][-DEPTH:]] == expected[-DEPTH:]
