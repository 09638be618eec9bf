# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Libraries come and go while stepflame records: it does not keep them all, and takes none for the one that was there before."""

import os
import subprocess

import helpers
import pytest
from helpers import OK
from test_attack_growth import memory_bytes

pytestmark = helpers.needs_bpf

LIBRARY = """
#include <unistd.h>

int cudaDeviceSynchronize(void)
{
	return getpid() < 0;
}
"""

# Maps the library until its standard input ends.
LOADER = """
#include <dlfcn.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char byte;

	return !dlopen(argv[1], RTLD_NOW) || read(0, &byte, 1);
}
"""

# Each process maps a library of its own until it has probes: stepflame takes a tenth of a second for each.
ROUNDS = """
import os, shutil, subprocess, sys, time
loader, library, rounds, cnt = *sys.argv[1:3], *map(int, sys.argv[3:])
sys.stdin.readline()
for number in range(rounds):
    for at in range(0, cnt, 20):
        own = ["%s.%d.%d" % (library, number, at + i) for i in range(20)]
        processes = [subprocess.Popen([loader, shutil.copy(library, path)], stdin=subprocess.PIPE) for path in own]
        time.sleep(2.2)
        for process, path in zip(processes, own):
            process.communicate()
            os.unlink(path)
    print("round", number, flush=True)
    time.sleep(2)
"""
ROUNDS_CNT, ROUND_LIBRARIES = 20 if helpers.LONG else 4, 160
MAPPED = 20
KEPT = 128 + 256  # user/session/file_probes.c: fewer than there are


@pytest.fixture
def programs(bench):
    """[loader, library]."""
    result = []
    for name, source, flags in ("loader", LOADER, ()), ("libown.so", LIBRARY, ("-shared", "-fPIC")):
        (bench.directory / (name + ".c")).write_text(source)
        result.append(helpers.compiled(bench.directory / name, bench.directory / (name + ".c"), *flags))
    return result


def started(bench, source, *args):
    """A process that reads lines, and a recording of it and its children."""
    job = bench.process(helpers.PYTHON, "-c", source, *args, stdin=subprocess.PIPE)
    return job, bench.record("-p", job.pid, "-F", 1, "--gpu", "uprobe").until_armed()


def tell(job):
    job.popen.stdin.write(b"\n")
    job.popen.stdin.flush()


def descriptors(process):
    return len(os.listdir("/proc/%d/fd" % process.pid))


def test_come_and_go(bench, programs):
    """Neither descriptors nor memory grow with the libraries that were mapped once."""
    job, record = started(bench, ROUNDS, *programs, ROUNDS_CNT, ROUND_LIBRARIES)
    before, seen = descriptors(record), []
    tell(job)
    for number in range(ROUNDS_CNT):
        job.until_says("^round %d\n" % number, 4 * helpers.END_SECONDS, "stdout")
        seen.append((descriptors(record), memory_bytes(record.pid)))
    print(before, seen)
    record.interrupt()
    assert record.wait() == OK, record.what()
    assert seen[0][0] > before + ROUND_LIBRARIES / 2  # they had probes, by descriptors
    assert seen[-1][0] <= before + KEPT + MAPPED
    assert seen[-1][1] - seen[0][1] < 2 << 20


# Each process maps the library until a line comes, and the next one begins with the next line.
AGAIN = """
import subprocess, sys
for number, _ in enumerate(sys.stdin):
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
    print("maps", number, process.pid, flush=True)
    sys.stdin.readline()
    process.communicate()
    print("ended", number, flush=True)
"""


def test_rewritten(bench, programs):
    """A library that was rewritten in place while nobody mapped it has probes again in the next process."""
    library = programs[1]
    job, record = started(bench, AGAIN, *programs)
    for number in range(2):
        tell(job)
        pid = int(job.until_says(r"^maps %d (\d+)\n" % number, helpers.END_SECONDS, "stdout").group(1))
        helpers.until(helpers.END_SECONDS, lambda: any(path == str(library) for path, _ in helpers.breakpoints(pid)), record.what)
        tell(job)
        job.until_says("^ended %d\n" % number, helpers.END_SECONDS, "stdout")
        with open(library, "ab") as file:
            file.write(b"more")
    record.interrupt()
    assert record.wait() == OK, record.what()


# Maps and unmaps each library, for some looks of stepflame at it.
ONE = """
import ctypes, _ctypes, shutil, sys, time
library, cnt = sys.argv[1], int(sys.argv[2])
sys.stdin.readline()
for number in range(cnt):
    mapped = ctypes.CDLL(shutil.copy(library, "%s.%d" % (library, number)))
    time.sleep(0.5)
    _ctypes.dlclose(mapped._handle)
    time.sleep(0.1)
    print("done", number, flush=True)
time.sleep(1000)
"""


def test_one_process(bench, programs):
    """A process that maps and unmaps libraries without end: their probes go with them."""
    job, record = started(bench, ONE, programs[1], 20)
    tell(job)
    [guardian] = helpers.guardians(record)
    links = []
    for number in 4, 19:
        job.until_says("^done %d\n" % number, helpers.END_SECONDS, "stdout")
        links.append(len(os.listdir("/proc/%d/fd" % guardian)))
    assert links[1] <= links[0] + 4, links
    record.interrupt()
    assert record.wait() == OK, record.what()
