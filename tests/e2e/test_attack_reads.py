# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Processes that lie in wait for whoever reads them: none makes stepflame hang, read without bound, or look outside their root."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import helpers
import pytest
from helpers import ERROR, OK, compiled, stepflame

SECONDS = 30  # stepflame gives up after 2 s; without that it hangs for good
SILENT = "is not readable: it does not answer reads of its memory or files"
HIDES = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
ctypes.CDLL(sys.argv[2]).hide(ctypes.c_uint64(runtime), ctypes.c_size_t(4096))
"""

LOCKS = """
import ctypes, sys, threading, torch
parameter = torch.nn.Parameter(torch.ones(9))
optimizer = torch.optim.SGD([parameter])
threading.Thread(target=ctypes.CDLL(sys.argv[1]).lock_memory, args=[sys.argv[2].encode()], daemon=True).start()
while True:
    parameter.sum().backward()
    optimizer.step()
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """hostile, hostile.so, and torch/lib/libtorch_cpu.so, which is nothing else than its name."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "torch/lib").mkdir(parents=True)
    (folder / "empty.c").write_text("int empty;\n")
    compiled(folder / "torch/lib/libtorch_cpu.so", folder / "empty.c", "-shared", "-fPIC")
    compiled(folder / "hostile", helpers.JOBS / "hostile.c", "-pthread", "-Wl,-z,now")
    compiled(folder / "hostile.so", helpers.JOBS / "hostile.c", "-pthread", "-shared", "-fPIC", "-Wl,-z,now")
    return folder


@contextlib.contextmanager
def silent_folder(bench, tmp_path):
    """A mounted file system that does not answer, and its process; when that ends, what waits for it goes on."""
    place = tmp_path / "silent"
    place.mkdir()
    if not os.path.exists("/dev/fuse"):
        pytest.skip("no FUSE here")
    server = bench.process(sys.executable, Path(__file__).with_name("silent_fs.py"), place)
    server.until_ready()
    try:
        yield place, server
    finally:
        server.kill()
        subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def silent(bench, tmp_path):
    with silent_folder(bench, tmp_path) as (place, _):
        yield place


def listed(pid):
    """The line of `ps` of a process, and what it says on stderr."""
    result = stepflame("ps", seconds=SECONDS)
    assert result.returncode == OK, result
    lines = [line for line in result.stdout.splitlines() if line.split()[:1] == [str(pid)]]
    return lines[0] if lines else None, result.stderr


def torch_of(pid):
    line = listed(pid)[0]
    assert line and "labels (no Python)" in line, line
    return line.split()[4]


def fifo(version, outside):
    os.mkfifo(version)


def zero(version, outside):
    version.symlink_to("/dev/zero")


def device(version, outside):
    os.mknod(version, 0o20666, os.makedev(1, 5))


def directory(version, outside):
    version.mkdir()


def loop(version, outside):
    version.symlink_to("version.py")


def host(version, outside):
    outside.write_text("__version__ = 'leaked'\n")
    version.symlink_to(outside)


def magic(version, outside):
    outside.write_text("__version__ = 'leaked'\n")
    version.symlink_to("/proc/%d/root%s" % (os.getpid(), outside))


def sparse(version, outside):
    with open(version, "wb") as file:
        file.truncate(1 << 40)


def link(version, outside):
    version.with_name("other.py").write_text("__version__ = 'inside'\n")
    version.symlink_to("/torch/other.py")


def long_line(version, outside):
    version.write_text("__version__ = '" + "9" * (1 << 20))


@pytest.mark.parametrize("kind", [fifo, zero, device, directory, loop, host, magic, sparse, link, long_line], ids=lambda kind: kind.__name__)
def test_version_file(bench, folder, tmp_path, kind):
    """In a root of its own, with the host's devices and processes in it."""
    root = tmp_path / "root"
    shutil.copytree(folder / "torch", root / "torch")
    (root / "dev").mkdir()
    os.mknod(root / "dev/zero", 0o20666, os.makedev(1, 5))
    (root / "proc").mkdir()
    kind(root / "torch/version.py", tmp_path / "outside.py")
    job = bench.process(folder / "hostile", "root", root, "library", "/torch/lib/libtorch_cpu.so").until_ready()
    assert torch_of(job.pid) == ("9" * 31 if kind is long_line else "inside" if kind is link else "-")
    assert "leaked" not in stepflame("doctor", "-p", job.pid, seconds=SECONDS).stdout


def test_version_file_on_silent_fs(bench, folder, silent, tmp_path):
    shutil.copytree(folder / "torch", tmp_path / "torch")
    (tmp_path / "torch/version.py").symlink_to(silent / "file")
    job = bench.process(folder / "hostile", "library", tmp_path / "torch/lib/libtorch_cpu.so").until_ready()
    line, stderr = listed(job.pid)
    assert line and "process %d %s" % (job.pid, SILENT) in stderr, (line, stderr)


@pytest.fixture
def hidden(bench, folder):
    """A Python process whose runtime's memory does not come."""
    job = bench.process(helpers.PYTHON, "-c", HIDES, folder / "torch/lib/libtorch_cpu.so", folder / "hostile.so")
    return job.until_ready()


def test_memory(bench, folder, hidden):
    """It is listed, in time, and so are those after it; nothing of it is recorded."""
    after = bench.process(folder / "hostile", "library", folder / "torch/lib/libtorch_cpu.so").until_ready()
    result = stepflame("ps", seconds=SECONDS)
    pids = {int(line.split()[0]) for line in result.stdout.splitlines()[1:]}
    assert {hidden.pid, after.pid} <= pids, result
    assert "process %d %s" % (hidden.pid, SILENT) in result.stderr, result
    result = stepflame("dump", "-p", hidden.pid, seconds=SECONDS)
    assert result.returncode == ERROR and SILENT in result.stderr, result


@helpers.needs_bpf
def test_memory_in_a_recording(bench, hidden):
    record = bench.record("-p", hidden.pid, "-d", 1)
    assert record.wait(SECONDS) != OK and SILENT in record.stderr, record.what()


def test_lock(bench, folder, silent):
    """Its memory's lock is held for good: everything that takes it waits, the command line first."""
    job = bench.process(folder / "hostile", "library", folder / "torch/lib/libtorch_cpu.so", "lock", silent / "file").until_ready()
    line, stderr = listed(job.pid)
    assert line is None and "process %d %s" % (job.pid, SILENT) in stderr, (line, stderr)
    result = stepflame("doctor", "-p", job.pid, seconds=SECONDS)
    assert result.returncode != OK and SILENT in result.stdout, result


@pytest.mark.alone
@helpers.needs_bpf
def test_watch_asks_again(bench, folder, tmp_path):
    """A job does not answer when `watch` first sees it, and later does."""
    with silent_folder(bench, tmp_path) as (place, server):
        words = (helpers.PYTHON, "-c", LOCKS, folder / "hostile.so", place / "file")
        job = bench.process(*words, env=dict(os.environ, STEPFLAME_WATCH="1")).until_ready()
        watch = bench.process(helpers.STEPFLAME, "watch", "--state", tmp_path / "state", "--leave-free", "1K")
        watch.until_says("process %d %s" % (job.pid, SILENT), helpers.END_SECONDS, "stderr")
        server.kill()
        watch.until_says("process %d answers reads again" % job.pid, helpers.END_SECONDS, "stderr")
        watch.until_says("watches process %d" % job.pid, helpers.END_SECONDS, "stderr")


def processor_seconds(*command):
    """The result of a command, and the processor time that it took."""
    before = sum(os.times()[2:4])
    result = stepflame(*command, seconds=SECONDS)
    return result, sum(os.times()[2:4]) - before


@pytest.mark.parametrize("arguments", [("mappings", 65000), ("threads", 3000)], ids=lambda arguments: arguments[0])
def test_large(bench, folder, arguments):
    job = bench.process(folder / "hostile", "library", folder / "torch/lib/libtorch_cpu.so", *arguments).until_ready()
    result, seconds = processor_seconds("ps")
    assert str(job.pid) in result.stdout and seconds < 5, (result, seconds)


def test_huge_command_line(bench, folder):
    words = [word for _ in range(9) for word in ("threads", "0" * 100000)]
    job = bench.process(folder / "hostile", "library", folder / "torch/lib/libtorch_cpu.so", *words).until_ready()
    line, _ = listed(job.pid)
    assert line and len(line) < 10000, len(line)


def test_many_files(bench, folder, tmp_path):
    """More than any job maps: refused, without a look at each of them."""
    job = bench.process(folder / "hostile", "files", 5000, cwd=tmp_path).until_ready()
    result, seconds = processor_seconds("doctor", "-p", job.pid)
    assert "maps more than 4096 files as code" in result.stdout and seconds < 5, (result, seconds)
