# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
`stepflame restore`: what a stepflame left that was killed together with its guardian. A breakpoint is made by hand where the job runs no code: how many
the kernel leaves depends on the instant of the kill (test_killed.py).
"""

import ctypes
import json
import os
import signal
import struct
import subprocess
from pathlib import Path

import documented
import helpers

pytestmark = helpers.needs_bpf

EXACT = ["--exact", "-d", "60s"]
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
UNUSED = "PyUnicode_Tailmatch"  # no job calls it
IDLE = "import time\nprint('ready', flush=True)\nwhile True:\n    time.sleep(0.01)"  # it calls nothing that is written in Python


def start(bench):
    return bench.process(helpers.PYTHON, "-c", IDLE).until_ready()


def place_of(pid, symbol):
    """(file, file offset, address) of a function of the interpreter."""
    lines = [line.split(None, 5) for line in Path("/proc/%d/maps" % pid).read_text().splitlines()]
    path = next((line[5] for line in lines if len(line) > 5 and "libpython" in line[5]), os.path.realpath("/proc/%d/exe" % pid))
    table = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    vaddr = next(int(line.split()[0], 16) for line in table.splitlines() if line.split()[-1] == symbol)
    headers = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True).stdout
    loads = [line.split() for line in headers.splitlines() if line.split()[:1] == ["LOAD"]]
    offset = next(vaddr - int(at, 16) + int(off, 16) for _, off, at, _, size, *_ in loads if 0 <= vaddr - int(at, 16) < int(size, 16))
    for line in lines:
        low, high = (int(word, 16) for word in line[0].split("-"))
        if len(line) > 5 and line[5] == path and "x" in line[1] and 0 <= offset - int(line[2], 16) < high - low:
            return path, offset, low + offset - int(line[2], 16)
    raise LookupError(symbol)


def poke(pid, address, data):
    with open("/proc/%d/mem" % pid, "r+b", 0) as memory:
        os.pwrite(memory.fileno(), data, address)


def restore(*options, code=helpers.OK):
    result = helpers.stepflame("restore", *options)
    assert result.returncode == code, result
    return result


def rows(result):
    """{file: [found, removed, left, why]}"""
    found = [line.split(None, 4) for line in result.stdout.splitlines()[1:]]
    return {words[4].split(" (")[0]: [*map(int, words[1:4]), words[4].partition(" (")[2]] for words in found}


def kill_both(record):
    """At the same moment, as when their container ends: neither learns of the other's end."""
    (guardian,) = helpers.guardians(record)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (guardian, record.pid):
            os.kill(pid, number)
    record.popen.wait()
    helpers.until(helpers.END_SECONDS, lambda: not Path("/proc/%d" % guardian).exists(), lambda: "the guardian runs")


def test_nothing_left(bench):
    job = start(bench)
    assert "nothing was left: no breakpoint in 1 process" in restore("-p", job.pid).stderr


def test_breakpoint_beside_a_recording(bench):
    """The one that nobody uses goes; those of the recording that runs stay."""
    job = start(bench)
    record = bench.record("-p", job.pid).until_armed()
    used = helpers.breakpoints(job.pid)
    path, offset, address = place_of(job.pid, UNUSED)
    poke(job.pid, address, b"\xcc")
    assert helpers.breakpoints(job.pid) == used | {(path, offset)} and (path, offset) not in used
    listed = restore("-n", "-p", job.pid)
    assert sum(int(line.split()[1]) for line in listed.stdout.splitlines()[1:]) == len(used) + 1
    assert helpers.breakpoints(job.pid) == used | {(path, offset)}
    as_json = json.loads(restore("-n", "-j", "-p", job.pid).stdout)
    assert (as_json["report"], as_json["dry_run"], as_json["searched"], as_json["words"]) == ("restore", True, 1, 0)
    assert sum(file["found"] for file in as_json["files"]) == len(used) + 1 and {file["pid"] for file in as_json["files"]} == {job.pid}
    result = restore("-p", job.pid)
    ((_, _, shown),) = [sample for sample in documented.samples() if sample[1] == "stepflame restore -p PID"]
    assert documented.shapes(shown) <= documented.shapes(result.stdout.splitlines())
    found = rows(result)
    assert found[path][1] == 1 and "a tracer that runs uses them" in found[path][3]
    assert sum(row[2] for row in found.values()) == len(used)
    assert helpers.breakpoints(job.pid) == used
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()
    assert not helpers.breakpoints(job.pid) and job.running()


def test_own_changes_are_no_breakpoints(bench):
    """A page that differs from the file in other bytes too was changed by the process itself."""
    job = start(bench)
    address = place_of(job.pid, UNUSED)[2]
    poke(job.pid, address, b"\xcc\x01\x02\xcc")
    assert "nothing was left" in restore("-p", job.pid).stderr


def trace(pid):
    """Traces a process, without stopping it, until this process ends or untrace() is called."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert not libc.ptrace(PTRACE_SEIZE, pid, None, None), os.strerror(ctypes.get_errno())

    def untrace():
        assert not libc.ptrace(PTRACE_INTERRUPT, pid, None, None)
        os.waitpid(pid, 0)
        assert not libc.ptrace(PTRACE_DETACH, pid, None, None)

    return untrace


def test_traced(bench):
    """A debugger's breakpoint looks the same: it stays."""
    job = start(bench)
    path, offset, address = place_of(job.pid, UNUSED)
    record = bench.record("-p", job.pid).until_armed()
    poke(job.pid, address, b"\xcc")
    untrace = trace(job.pid)
    result = restore("-p", job.pid)
    assert "is traced by process %d" % os.getpid() in result.stderr and rows(result)[path][1] == 0
    assert (path, offset) in helpers.breakpoints(job.pid)
    untrace()
    restore("-p", job.pid)
    assert (path, offset) not in helpers.breakpoints(job.pid)
    record.interrupt()
    record.wait()


def word_of(record, pid):
    """(address, value) of what --exact has written."""
    address = int(record.until_says(r"8 bytes at (0x[0-9a-f]+)", helpers.ARMED_SECONDS, "stderr")[1], 16)

    def value():
        with open("/proc/%d/mem" % pid, "rb", 0) as memory:
            return struct.unpack("Q", os.pread(memory.fileno(), 8, address))[0]

    return address, value


def killed_with_word(bench, job):
    record = bench.record("-p", job.pid, *EXACT).until_armed()
    address, value = word_of(record, job.pid)
    assert value()
    kill_both(record)
    assert value()
    return address, value


def test_word(bench):
    """A killed pod leaves it; it is put back, and forgotten."""
    job = start(bench)
    address, value = killed_with_word(bench, job)
    assert "0x%x in process %d is still set" % (address, job.pid) in restore("-n", "-p", job.pid).stderr and value()
    assert "0x%x in process %d was still set" % (address, job.pid) in restore("-p", job.pid).stderr
    assert not value() and job.running()
    assert "nothing was left" in restore("-p", job.pid).stderr


def test_word_of_a_recording(bench):
    """Of one that runs, it is left alone."""
    job = start(bench)
    record = bench.record("-p", job.pid, *EXACT).until_armed()
    value = word_of(record, job.pid)[1]
    assert "word" not in restore("-p", job.pid).stderr.replace("word of --exact\n", "") and value()
    record.interrupt()
    assert record.wait() == helpers.OK and not value()


def test_word_of_the_job(bench):
    """What the job has set since stays."""
    job = start(bench)
    address, value = killed_with_word(bench, job)
    mine = value()
    poke(job.pid, address, struct.pack("Q", mine + 16))
    assert "has changed the word" in restore("-p", job.pid).stderr and value() == mine + 16
    poke(job.pid, address, struct.pack("Q", 0))


def test_word_of_an_ended_job(bench):
    job = start(bench)
    killed_with_word(bench, job)
    job.kill()
    assert "process %d" % job.pid not in restore().stderr


def journals():
    return [file for folder in ("/run/stepflame", "/dev/shm/stepflame-0") for file in Path(folder).glob("words.*")]


def test_journal(bench):
    """Nobody else can read it, and it is gone with the recording."""
    before = set(journals())
    job = start(bench)
    record = bench.record("-p", job.pid, *EXACT).until_armed()
    (journal,) = set(journals()) - before
    assert journal.stat().st_mode & 0o777 == 0o600 and journal.parent.stat().st_mode & 0o777 == 0o700
    record.interrupt()
    assert record.wait() == helpers.OK and not journal.exists()


def test_no_such_process():
    helpers.check_message(restore("-p", 2**22 + 1, code=helpers.TARGET), helpers.TARGET)
