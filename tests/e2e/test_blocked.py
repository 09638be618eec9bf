# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Threads that block in system calls: what samples and `dump` say that they wait for is the same, and what it is."""

import contextlib
import json
import shutil
import subprocess

import dumped_samples
import helpers
import pytest

pytestmark = helpers.needs_bpf

CAUSES = {"writes_file": "disk_write", "writes_pipe": "pipe", "reads_pipe": "pipe", "sends_file": "socket", "locks_file": "lock"}
TOOLS = ["mkfs.ext4", "mount", "umount", "fsfreeze"]


def run(*command):
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True)


@pytest.fixture
def file_system(tmp_path):
    """A directory with a file system of its own, which can be frozen."""
    if not all(map(shutil.which, TOOLS)):
        pytest.skip("not all of these are here: " + " ".join(TOOLS))
    image, directory = tmp_path / "image", tmp_path / "mounted"
    directory.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    for command in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, directory]):
        result = run(*command)
        if result.returncode != 0:
            pytest.skip("%s: %s" % (command[0], result.stderr.strip()))
    yield directory
    run("fsfreeze", "-u", directory)
    run("umount", "-l", directory)


@contextlib.contextmanager
def frozen(directory):
    result = run("fsfreeze", "-f", directory)
    if result.returncode != 0:
        pytest.skip("fsfreeze: " + result.stderr.strip())
    try:
        yield
    finally:
        run("fsfreeze", "-u", directory)


def blocked_on(pid):
    threads = json.loads(helpers.stepflame("dump", "-p", pid, "--json").stdout)["threads"]
    return {thread["tid"]: thread["blocked_on"] for thread in threads}


def test_samples_and_dump(bench, file_system):
    job = bench.process(helpers.PYTHON, helpers.JOBS / "blocks.py", file_system, stdin=subprocess.PIPE)
    tids = json.loads(job.until_says(r"^\{.*\}$", helpers.READY_SECONDS, "stdout").group())
    with frozen(file_system):
        job.popen.stdin.write(b"\n")
        job.popen.stdin.flush()
        job.until_says("^writing$", helpers.READY_SECONDS, "stdout")
        writer = "/proc/%d/task/%d/stat" % (job.pid, tids["writes_file"])
        helpers.until(30, lambda: open(writer).read().rpartition(")")[2].split()[0] == "D", job.what, job.delayed)
        dumped = blocked_on(job.pid)
        record = bench.record("-p", job.pid, "-d", "0.5s")
        assert record.wait() == helpers.OK, record.what()
    sampled = {}
    for sample in dumped_samples.Samples(record.file):
        if sample.kind == dumped_samples.WAIT and sample.cause != "run_queue":
            sampled.setdefault(sample.tid, set()).add(sample.cause)
    assert {name: dumped[tid] for name, tid in tids.items()} == CAUSES
    assert {name: sampled[tid] for name, tid in tids.items()} == {name: {cause} for name, cause in CAUSES.items()}
