# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What the owner of one process can do so that probes go to wrong places, in his own job or in another one's: nothing.

The library has a function of CUDA's name whose first instruction holds four bytes that are instructions themselves. A breakpoint on one of
those changes what the function returns, and the job sees that.
"""

import os
import re
import shutil
import signal
import struct
import subprocess

import helpers
import pytest

pytestmark = helpers.needs_bpf

LIBRARY = """
__asm__(".globl cudaDeviceSynchronize\\n.type cudaDeviceSynchronize, @function\\n"
        "cudaDeviceSynchronize:\\n.cfi_startproc\\n"
        "mov $0x90909090, %eax\\nnop\\npush %rbx\\npop %rbx\\nret\\n"
        ".cfi_endproc\\n.size cudaDeviceSynchronize, . - cudaDeviceSynchronize\\n");
"""

JOB = """
import ctypes, sys, time
function = ctypes.CDLL(sys.argv[1]).cudaDeviceSynchronize
exec(sys.argv[2])
print("ready", flush=True)
while True:
    assert function() & 0xffffffff == returns, hex(function())
    print("called", flush=True)
    time.sleep(0.001)
"""

# In a mount namespace of its own, it shows now the one file and now the other at the path of the library, which it has loaded.
FLIP = """
import threading
returns, libc = 0x90909090, ctypes.CDLL(None, use_errno=True)
def flip():
    path, other, flips = sys.argv[1].encode(), sys.argv[3].encode(), 0
    while True:
        assert libc.mount(other, path, None, 4096, None) == 0, ctypes.get_errno()  # MS_BIND
        time.sleep(0.0001)  # what comes after an unmount takes as long
        assert libc.umount2(path, 2) == 0, ctypes.get_errno()  # MNT_DETACH
        flips += 1
        if flips % 100 == 0:
            print("flips", flips, flush=True)
threading.Thread(target=flip, daemon=True).start()
"""

# It replaces the nop by an instruction of two bytes, and the push and pop with it.
PATCH = """
libc = ctypes.CDLL(None)
address = ctypes.cast(function, ctypes.c_void_p).value
assert libc.mprotect(ctypes.c_void_p(address & -4096), ctypes.c_size_t(8192), 7) == 0
ctypes.memmove(address + 5, b"\\x04\\x01\\x90", 3)  # add $1, %al; nop
assert libc.mprotect(ctypes.c_void_p(address & -4096), ctypes.c_size_t(8192), 5) == 0
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "library.c"
    source.write_text(LIBRARY)
    (tmp_path / "genuine").mkdir()
    return helpers.compiled(tmp_path / "genuine" / "libcudart.so.12", source, "-shared", "-fPIC")


def job(bench, library, setup="returns = 0x90909090"):
    return bench.process(helpers.PYTHON, "-c", JOB, library, setup).until_ready()


def until_calls(job, count=20):
    """Until it has called the function so many times more."""
    before = job.stdout.count("called\n")
    helpers.until(helpers.END_SECONDS, lambda: job.stdout.count("called\n") >= before + count, job.what, job.delayed)


def record(bench, job, calls=0):
    record = bench.record("-p", job.pid, "--gpu", "uprobe").until_armed()
    until_calls(job, calls)
    record.interrupt()
    record.wait()
    assert job.running(), job.what()
    return record


def symbol_at(library, name):
    """File offsets of the st_values of a symbol, and its value."""
    said = subprocess.check_output(["readelf", "-W", "-S", "-s", str(library)], text=True)
    sections = {}
    for line in said.splitlines():
        words = line.replace("[ ", "[").split()
        if len(words) > 5 and words[1] in (".dynsym", ".symtab"):
            sections[words[1]] = int(words[4], 16)
    offsets, table = [], None
    for line in said.splitlines():
        words = line.split()
        if line.startswith("Symbol table"):
            table = words[2].strip("'")
        elif words and words[-1] == name:
            offsets.append(sections[table] + int(words[0][:-1]) * 24 + 8)
            value = int(words[1], 16)
    return offsets, value


def poison(library, poisoned):
    """A copy whose symbol points one byte into the function's first instruction."""
    image = bytearray(library.read_bytes())
    offsets, value = symbol_at(library, "cudaDeviceSynchronize")
    for offset in offsets:
        struct.pack_into("<Q", image, offset, value + 1)
    poisoned.write_bytes(image)
    return value


def inside(found, library, value):
    """Breakpoints of a library that are in the function's first instruction, and whether there are any in the library."""
    probed = {offset - value for file, offset in found if file == str(library)}
    return probed & {1, 2, 3, 4}, bool(probed)


def test_poisoned_cache(bench, library, tmp_path):
    """A copy of a library, whose symbol points into an instruction, is recorded first: the job of the genuine one is safe."""
    poisoned = tmp_path / "libcudart.so.12"
    value = poison(library, poisoned)
    own = bench.process(helpers.PYTHON, "-c", "import ctypes, sys, time; ctypes.CDLL(sys.argv[1]); print('ready', flush=True); time.sleep(60)", poisoned)
    record(bench, own.until_ready())
    victim = job(bench, library)
    recording = bench.record("-p", victim.pid, "--gpu", "uprobe", "--steps", "100000").until_armed()
    found = helpers.breakpoints(victim.pid)
    until_calls(victim)
    recording.interrupt()
    recording.wait()
    assert victim.running(), victim.what()
    assert inside(found, library, value) == (set(), True), (found, recording.what())


WITHOUT_MAP_FILES = ["setpriv", "--bounding-set=-sys_admin,-checkpoint_restore"]


def flips(job):
    return int(re.findall(r"flips (\d+)\n", job.stdout)[-1])  # its other thread may print between the two words


@pytest.mark.skipif(not shutil.which("unshare") or not shutil.which("setpriv"), reason="needs unshare and setpriv")
@pytest.mark.parametrize("opened_by", ["map_files", "path"])
def test_flipped_mount(bench, library, tmp_path, opened_by):
    """
    The path of the mapped library leads to a poisoned copy in half of all moments, while stepflame attaches again and again.

    Who looks at the path and then opens it has the copy in some of the attaches: either its probes are in a file that nobody maps,
    and the attacker has none, or they are in the mapped file by the copy's symbols, in the middle of an instruction, also in the
    victim, which maps the same file. stepflame opens the mapped inode (map_files), so that each attach has its probes, or, where
    only the path is left, looks at what it has opened, and takes nothing from another file. Nor does that keep the victim, whose
    path is right, from its probes. The cache is the same throughout.
    """
    copy = tmp_path / "copy.so"
    value = poison(library, copy)
    victim = job(bench, library)
    attacker = bench.process("unshare", "-m", helpers.PYTHON, "-c", JOB, library, FLIP, copy)
    attacker.until_says(r"flips \d+\n", helpers.READY_SECONDS, "stdout")
    how = WITHOUT_MAP_FILES if opened_by == "path" else []
    rounds, attached = 200 if helpers.LONG else 12, 0
    for number in range(rounds):
        before = flips(attacker)
        recording = bench.process(*how, helpers.STEPFLAME, "record", "-p", attacker.pid, "-p", victim.pid, "--gpu", "uprobe", "-o", tmp_path / "out.rec")
        recording.until_says("armed", helpers.ARMED_SECONDS, "stderr")
        in_attacker, in_victim = (inside(helpers.breakpoints(one.pid), library, value) for one in (attacker, victim))
        recording.interrupt()
        assert recording.wait() == helpers.OK, recording.what()
        assert attacker.running() and victim.running(), (attacker.what(), victim.what(), recording.what())
        assert flips(attacker) > before, attacker.what()
        assert in_victim == (set(), True) and not in_attacker[0], (in_attacker, in_victim, recording.what())
        attached += in_attacker[1]
    print("%s: attached %d times of %d, %d flips" % (opened_by, attached, rounds, flips(attacker)))
    assert attached == rounds or opened_by == "path"


def test_patched_code(bench, library):
    """The job has patched the function: the kernel would execute what the file says there."""
    patched = job(bench, library, PATCH + "returns = 0x90909091")
    refused = record(bench, patched)
    assert "its code in memory is not that of the file" in refused.stderr, refused.what()
    assert "detach the debugger" in refused.stderr


def test_two_recordings(bench, library):
    """Another recording's breakpoints are no patches."""
    both = job(bench, library)
    first = bench.record("-p", both.pid, "--gpu", "uprobe", "--steps", "100000").until_armed()
    second = record(bench, both, calls=20)
    assert "not that of the file" not in second.stderr, second.what()
    assert "cudaDeviceSynchronize" in helpers.report_text(second.file, "--gpu")
    first.interrupt()
    first.wait()


def sparse_elf(path, size):
    """One executable segment, a note segment and a symbol table, all of zeros, up to `size`."""
    sections = b"".join(
        struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, 1 << 20, size - (1 << 20), link, 0, 8, entry) for kind, link, entry in ((0, 0, 0), (11, 2, 24), (3, 0, 0))
    )
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 4096, 4096, 4096)
    segments += struct.pack("<IIQQQQQQ", 4, 4, 1 << 20, 1 << 20, 0, min(size, 1 << 33) - (1 << 20), 4096, 4)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 64 + len(segments), 0, 64, 56, 2, 64, 3, 0)
    path.write_bytes(header + segments + sections)
    os.truncate(path, size)


def used(*command):
    """Seconds of CPU and bytes of memory that stepflame takes, and what it says."""
    pid = os.fork()
    if not pid:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        os.execv(helpers.STEPFLAME, [helpers.STEPFLAME, *map(str, command)])
    try:
        _, _, usage = helpers.until(helpers.END_SECONDS, lambda: (ended := os.wait4(pid, os.WNOHANG))[0] and ended, lambda: "it hangs")
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


MAPS = """
import mmap, sys, time
file = open(sys.argv[1], "rb")
map = mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("size", [8 << 30, 1 << 40], ids=["8 GB", "1 TB"])
def test_sparse_file(bench, library, tmp_path, size):
    """A file that costs its owner nothing costs stepflame nothing either."""
    sparse = tmp_path / "libcudart.so.12"
    sparse_elf(sparse, size)
    plain = bench.process(helpers.PYTHON, "-c", MAPS, library).until_ready()
    hostile = bench.process(helpers.PYTHON, "-c", MAPS, sparse).until_ready()
    seconds, memory = used("doctor", "-p", plain.pid)
    more_seconds, more_memory = used("doctor", "-p", hostile.pid)
    assert more_seconds - seconds < 1 and more_memory - memory < 100 << 20, (seconds, more_seconds, memory, more_memory)
