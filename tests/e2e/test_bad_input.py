# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What users get wrong: one message each, that says what, why and the fix, and the exit code that scripts go by."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import helpers
import pytest
from helpers import ERROR, PERMISSION, TARGET, UNSUPPORTED, USAGE, check_message, stepflame


@pytest.mark.parametrize(
    "args",
    [
        ["--no-such-option"],
        ["no-such-command"],
        [],
        ["record"],
        ["record", "--no-such-option"],
        ["record", "-p"],
        ["record", "-p", "abc"],
        ["record", "-p", "-1"],
        ["record", "-p", "0"],
        ["record", "-p", "99999999999999999999"],
        ["record", "-p", "1,"],
        ["record", "-p", "1", "--", "true"],
        ["record", "-p", "1", "-d", "soon"],
        ["record", "-p", "1", "-d", "-5"],
        ["record", "-p", "1", "--steps", "0"],
        ["record", "-p", "1", "--steps", "5x"],
        ["record", "-p", "1", "--children", "some"],
        ["record", "--"],
        ["report", "--no-such-option"],
        ["report", "--sort", "beauty"],
        ["report", "--limit", "many"],
        ["report", "one.rec", "two.rec"],
    ],
    ids=" ".join,
)
def test_usage(args, tmp_path):
    result = stepflame(*args, cwd=tmp_path)
    assert result.returncode == USAGE, result
    assert result.stdout == ""
    assert "--help" in result.stderr


def test_report_of_nothing(tmp_path):
    check_message(stepflame("report", tmp_path / "none.rec"), ERROR)
    check_message(stepflame("report", cwd=tmp_path), ERROR)
    check_message(stepflame("report", tmp_path), ERROR)


@pytest.mark.parametrize("content", [b"", b"stepflam", b"#!/bin/sh\nexit 0\n" * 100, bytes(100000)])
def test_report_of_no_recording(tmp_path, content):
    file = tmp_path / "other.rec"
    file.write_bytes(content)
    check_message(stepflame("report", file), ERROR)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_report_to_a_full_disk(tmp_path):
    with open("/dev/full", "w") as full:
        result = subprocess.run([helpers.STEPFLAME, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == ERROR, result


def free_pid():
    """A process id that is nobody's."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


@helpers.needs_bpf
def test_no_such_process(tmp_path):
    for pid in (free_pid(), 4194303):
        check_message(stepflame("record", "-p", pid, "-o", tmp_path / "r"), TARGET)


@helpers.needs_bpf
def test_not_python(bench):
    sleep = bench.process("sleep", 60)
    result = stepflame("record", "-p", sleep.pid, "-o", bench.directory / "r")
    check_message(result, UNSUPPORTED)
    assert "sleep" in result.stderr or str(sleep.pid) in result.stderr
    assert sleep.running()


@helpers.needs_bpf
def test_python_without_torch(bench):
    idle = bench.process(sys.executable, "-u", "-c", "import time; print('ready', flush=True); time.sleep(60)")
    idle.until_says("ready", helpers.READY_SECONDS, "stdout")
    result = stepflame("record", "-p", idle.pid, "-F", 0, "-o", bench.directory / "r")
    check_message(result, UNSUPPORTED)
    assert "torch" in result.stderr
    # there is something to sample
    result = stepflame("record", "-p", idle.pid, "-d", "200ms", "-o", bench.directory / "r")
    assert result.returncode == helpers.OK and "has no torch" in result.stderr, result
    assert idle.running()


@helpers.needs_bpf
def test_kernel_thread(tmp_path):
    check_message(stepflame("record", "-p", 2, "-o", tmp_path / "r"), TARGET)


@pytest.fixture
def nobodys_copy():
    """The program where a user without rights can run it."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield shutil.copy(helpers.STEPFLAME, Path(directory) / "stepflame")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="becoming another user needs root and setpriv")
def test_no_permission(bench, nobodys_copy):
    job = bench.job("plain_loop.py", "--epochs", 1).until_ready()
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", nobodys_copy]
    for target in (["-p", str(job.pid)], ["--", sys.executable, "-c", "pass"]):
        command = [*nobody, "record", "-o", "/dev/null", *target]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        check_message(result, PERMISSION)
    job.release()
    job.truth()


@helpers.needs_bpf
@pytest.mark.parametrize("output", ["no/such/folder/r", "."])
def test_unwritable_output(bench, output):
    """Known before anything is attached: nobody finds out after an hour."""
    job = bench.job("plain_loop.py", "--epochs", 1).until_ready()
    result = stepflame("record", "-p", job.pid, "-o", bench.directory / output)
    check_message(result, ERROR)
    assert "armed" not in result.stderr
    job.release()
    job.truth()


@helpers.needs_bpf
def test_failed_start_keeps_the_old_recording(tmp_path):
    """A mistyped PID costs nobody a recording."""
    file = tmp_path / "r.rec"
    file.write_bytes(b"precious")
    check_message(stepflame("record", "-p", free_pid(), "-o", file), TARGET)
    assert file.read_bytes() == b"precious"


@helpers.needs_bpf
def test_full_disk(bench):
    """The disk is full when the recording is written: said, with exit code 1, and the job goes on."""
    job = bench.job("plain_loop.py").until_ready()
    record = bench.record("-p", job.pid, output="/dev/full")
    job.release()
    job.truth()
    assert record.wait() == ERROR, record.what()
    assert "No space left" in record.stderr and "fix:" in record.stderr


@helpers.needs_bpf
def test_launched_is_not_python(bench):
    """Nothing to see is no reason to keep a command from running, and its status is its own."""
    record = bench.record("--", "sh", "-c", "echo ran; exit 3")
    assert record.wait() == 3, record.what()
    assert "ran" in record.stdout
