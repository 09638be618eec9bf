# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What users get wrong: one message each, that says what, why and the fix, and the exit code that scripts go by."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import helpers
import pytest
import recfile as r
from helpers import ERROR, PERMISSION, TARGET, UNSUPPORTED, check_message, stepflame
from replay.test_bad_input import piped

NOBODY = 65534


@helpers.needs_bpf
def test_recording_to_standard_output(bench):
    """The recording, whole, and nothing else; the report goes to standard error."""
    job = bench.job("plain_loop.py", "--epochs", 1).until_ready()
    record = bench.process(helpers.STEPFLAME, "record", "-p", job.pid, "-o", "-", cwd=bench.directory)
    record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
    job.release()
    truth = job.truth()
    assert record.wait() == helpers.OK, record.what()
    result = piped("report", "-", "--all", data=record.out_path.read_bytes())
    assert result.returncode == helpers.OK and b"cut" not in result.stderr, result
    steps = re.search(r"window: .* s, (\d+) steps", result.stdout.decode())
    assert steps and int(steps[1]) in (truth["steps"], truth["steps"] - 1)
    assert "\nSteps       " in record.stderr and "\nNext        stepflame report FILE" in record.stderr and not (bench.directory / "-").exists()


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
    assert str(sleep.pid) in result.stderr, result
    assert sleep.running()


@helpers.needs_bpf
def test_other_implementation(bench):
    shutil.copy("/bin/sleep", bench.directory / "pypy3.10")
    sleep = bench.process(bench.directory / "pypy3.10", 60)
    result = stepflame("record", "-p", sleep.pid, "-o", bench.directory / "r")
    check_message(result, UNSUPPORTED)
    assert "process %d runs PyPy, which is not supported" % sleep.pid in result.stderr, result


@pytest.fixture
def unreadable(bench):
    """Debian's Python in a mounted file system that root may not read."""
    if not os.path.exists("/dev/fuse"):
        pytest.skip("no FUSE here")
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    server = bench.process(sys.executable, Path(__file__).with_name("silent_fs.py"), place, Path("/usr/bin/python3").resolve(), NOBODY)
    server.until_ready()
    yield place / "file"
    subprocess.run(["umount", "-l", place], check=True)
    place.rmdir()


@helpers.needs_bpf
def test_unreadable_interpreter(bench, unreadable):
    command = [unreadable, "-u", "-c", "import time; print('ready', flush=True); time.sleep(60)"]
    idle = bench.process("setpriv", "--reuid=%d" % NOBODY, "--regid=0", "--clear-groups", *command, cwd="/").until_ready()
    for command in (["record", "-o", bench.directory / "r"], ["dump"]):
        result = stepflame(*command, "-p", idle.pid)
        assert result.returncode == PERMISSION and "may not read the program or the libpython of process %d" % idle.pid in result.stderr, result
        assert "fix: its file system refuses" in result.stderr, result


@helpers.needs_bpf
def test_main_thread_has_ended(bench):
    """It trains on, but the kernel shows its memory no more."""
    code = """
import ctypes, threading, time
thread = threading.Thread(target=lambda: [print(time.sleep(0.01) or "ready", flush=True) for _ in range(6000)])
thread.start()
ctypes.CDLL(None).syscall(60, 0)  # exit, of this thread alone
"""
    half = bench.process(sys.executable, "-u", "-c", code).until_ready()
    helpers.until(helpers.END_SECONDS, lambda: "zombie" in Path("/proc/%d/status" % half.pid).read_text(), half.what)
    for command in (["record", "-o", bench.directory / "r"], ["dump"]):
        result = stepflame(*command, "-p", half.pid)
        check_message(result, TARGET)
        assert "the main thread of process %d has ended" % half.pid in result.stderr, result


@helpers.needs_bpf
def test_python_without_torch(bench):
    idle = bench.process(sys.executable, "-u", "-c", "import time; print('ready', flush=True); time.sleep(60)").until_ready()
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
def test_full_from_the_start(bench):
    """Said, with exit code 1, before anything is recorded; and the job goes on."""
    job = bench.job("plain_loop.py").until_ready()
    record = bench.record("-p", job.pid, output="/dev/full")
    assert record.wait() == ERROR, record.what()
    assert "No space left" in record.stderr and "fix:" in record.stderr and "armed" not in record.stderr
    job.release()
    job.truth()


DISK_BYTES = 16 << 10
ON_A_DISK = 'mount -t tmpfs -o size=%d none "$0" && "$@"; status=$?; cp "$0"/* "$0.kept"; exit $status'


@helpers.needs_bpf
def test_full_disk(bench):
    """The disk fills up while the recording is written: said, with exit code 1; what was written is there, and the job goes on."""
    disk, kept = bench.directory / "disk", bench.directory / "disk.kept"
    for folder in (disk, kept):
        folder.mkdir()
    job = bench.job("lightning_fit.py").until_ready()
    command = [helpers.STEPFLAME, "record", "-p", job.pid, "-o", disk / "r.rec"]
    record = bench.process("unshare", "-m", "sh", "-c", ON_A_DISK % DISK_BYTES, disk, *command)
    record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
    job.release()
    job.truth()
    assert record.wait() == ERROR, record.what()
    assert "No space left" in record.stderr and "fix:" in record.stderr, record.stderr
    assert 0 < (kept / "r.rec").stat().st_size <= DISK_BYTES
    result = stepflame("report", kept / "r.rec", "--all", "--json")
    # nothing, where not even its first chunk found room
    assert result.returncode == (helpers.OK if len(list(r.chunk_ends(kept / "r.rec"))) > 1 else ERROR), result


@helpers.needs_bpf
def test_launched_is_not_python(bench):
    """Nothing to see is no reason to keep a command from running, and its status is its own."""
    record = bench.record("--", "sh", "-c", "echo ran; exit 3")
    assert record.wait() == 3, record.what()
    assert "ran" in record.stdout
