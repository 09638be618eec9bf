# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What goes on for long, or is made up without end, takes neither the disk nor the memory; what is left out is counted, and said."""

import json
import os
import re
import signal
import statistics
import sys
import time
from pathlib import Path

import helpers
import pytest
import recfile
from helpers import ERROR, OK, stepflame

MB = 1 << 20
TEMPORARY = ".stepflame-*"
NAMES_OF_A_RING = 65536  # user/session/sources/gpu_reader.c


def on_disk(path):
    """Bytes of a recording and of its copy."""
    sizes = []
    for name in (path, *path.parent.glob(TEMPORARY)):
        try:
            sizes.append(name.stat().st_size)
        except FileNotFoundError:
            pass
    return sum(sizes)


def memory_bytes(pid):
    return int(re.search(r"VmRSS:\s*(\d+)", Path("/proc/%d/status" % pid).read_text()).group(1)) * 1024


MANY = ("--batches", 400000, "--work", 1000)  # steps of almost a MB in a recording: it is trimmed twice at least


def recorded_short(bench, *options):
    """(record, truth, the most that was on the disk) of a job of short steps."""
    job = bench.job("short_steps.py", *MANY).until_ready()
    record = bench.record("-p", job.pid, *options).until_armed()
    job.release()
    most = 0
    while record.running():
        most = max(most, on_disk(record.file))
        time.sleep(0.002)
    return record, job.truth(), max(most, on_disk(record.file))


@helpers.needs_bpf
def test_max_size(bench):
    """At no time more than that is on the disk; counts are those of all, steps and samples of the rest, and every report can be made."""
    record, truth, most = recorded_short(bench, "--max-size", "1M")
    assert record.wait() == OK, record.what()
    assert 0.15 * MB < most <= MB
    assert not list(record.file.parent.glob(TEMPORARY))

    report = helpers.report(record.file, "--all")
    dropped = report["window"]["events_from_seconds"]
    assert 0 < dropped < report["window"]["seconds"]
    assert report["window"]["steps"] == truth["steps"]
    assert helpers.actions(report)["Optimizer.step#SGD.step"]["count"] == truth["steps"]

    records = list(recfile.read_records(record.file))
    [marks] = [r for kind, r in records if kind == "DROPPED"]
    for text in (record.stdout, helpers.report_text(record.file)):
        assert "%d events of the first %.4g s (record --max-size, --last)" % (marks.events, dropped) in re.sub(r"\s+", " ", text)
    steps = [r for kind, r in records if kind == "STEP"]
    assert marks.states == 0 and marks.events >= 1000
    # a lost one is counted: what is there begins where the rest was dropped, and ends with the job
    assert steps[-1].index == truth["steps"] and len(steps) < truth["steps"] - 1000
    assert min(s.time_ns for s in steps) >= marks.time_ns
    # all steps are in the histogram or in the list, but for the first, the one at the cut, and those of lost boundaries
    found = helpers.report(record.file, "--steps")
    missing = truth["steps"] - found["dropped"]["steps"] - len(found["steps"])
    assert 1 <= missing <= 2 + 2 * report["lost"].get("ring_full", 0)
    seconds = found["dropped"]["seconds"] + sum(step["duration_s"] for step in found["steps"])
    assert 0.5 * report["window"]["seconds"] < seconds <= report["window"]["seconds"]
    assert abs(sum(found["dropped"]["phases"].values()) - found["dropped"]["seconds"]) <= 0.01 * found["dropped"]["seconds"]
    assert "before: %d steps" % found["dropped"]["steps"] in helpers.report_text(record.file, "--steps")
    for options in (["--advanced"], ["--io"], ["--per-rank"]):
        assert stepflame("report", record.file, *options).returncode == OK
    assert stepflame("flame", record.file, "-o", bench.directory / "f.html").returncode == OK
    assert stepflame("export", record.file, "-f", "pprof", "-o", bench.directory / "p.pb.gz").returncode == OK
    assert stepflame("diff", record.file, record.file).returncode == OK


@helpers.needs_bpf
@pytest.mark.long
def test_week(bench):
    """As many steps as a week has seconds: neither the memory nor the file grows."""
    job = bench.job("short_steps.py", "--batches", 604800, "--work", 2000).until_ready()
    record = bench.record("-p", job.pid, "--max-size", "1M").until_armed()
    job.release()
    sizes = [0]

    def is_trimmed():
        sizes.append(on_disk(record.file))
        return sizes[-1] < sizes[-2]

    helpers.until(helpers.END_SECONDS, is_trimmed, record.what, lambda: job.delayed() + record.delayed())
    before, most, seen = memory_bytes(record.pid), max(sizes), []
    while record.running():
        most = max(most, on_disk(record.file))
        try:
            seen.append(memory_bytes(record.pid))
        except (FileNotFoundError, AttributeError):
            break
        time.sleep(0.01)
    truth = job.truth()
    assert record.wait() == OK, record.what()
    after = statistics.median(seen[-len(seen) // 3 :])  # the end of a recording takes some for a moment
    print("%d bytes more; at most %.2f MB on the disk" % (after - before, most / MB))
    assert most <= MB and after - before < 4 * MB
    assert helpers.actions(helpers.report(record.file, "--all"))["Optimizer.step#SGD.step"]["count"] == truth["steps"]


DISK_BYTES = 256 << 10
ON_A_DISK = 'mount -t tmpfs -o size=%d none "$0" && "$@"; status=$?; ls -A "$0" > "$0.names"; cp "$0"/* "$0.kept"; exit $status'


@helpers.needs_bpf
def test_full_disk_while_trimming(bench):
    """The disk has less room than --max-size says: told, with exit code 1; what was written can be read, and the job goes on."""
    disk, kept = bench.directory / "disk", bench.directory / "disk.kept"
    for folder in (disk, kept):
        folder.mkdir()
    job = bench.job("short_steps.py", *MANY).until_ready()
    command = [helpers.STEPFLAME, "record", "-p", job.pid, "-o", disk / "r.rec", "--max-size", "1M"]
    record = bench.process("unshare", "-m", "sh", "-c", ON_A_DISK % DISK_BYTES, disk, *command)
    record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
    job.release()
    job.truth()
    assert record.wait() == ERROR, record.what()
    assert "No space left" in record.stderr and "fix:" in record.stderr, record.stderr
    assert (bench.directory / "disk.names").read_text().split() == ["r.rec"]
    assert json.loads(stepflame("report", kept / "r.rec", "--all", "--json").stdout)["window"]["steps"] > 0


@pytest.mark.parametrize("size", ["", "1", "1023K", "-1G", "12X", "1GB", "nan", "inf", "1e99"])
def test_size(size):
    result = stepflame("record", "-p", "1", "--max-size", size)
    assert result.returncode == helpers.USAGE and ("size" in result.stderr or "1M" in result.stderr)


def test_not_to_standard_output():
    result = stepflame("record", "-p", "1", "--max-size", "1M", "-o", "-")
    assert result.returncode == helpers.USAGE and "standard output" in result.stderr


@helpers.needs_bpf
def test_stopped(bench):
    """stepflame is stopped until the job is over: counts are right, lost steps are counted and told, and the job knows nothing of it."""
    job = bench.job("short_steps.py", "--work", 0).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    record.popen.send_signal(signal.SIGSTOP)
    job.release()
    try:
        truth = job.truth()
    finally:
        record.popen.send_signal(signal.SIGCONT)
    assert record.wait() == OK, record.what()
    report = helpers.report(record.file, "--all")
    assert helpers.actions(report)["Optimizer.step#SGD.step"]["count"] == truth["steps"]
    came = sum(kind == "STEP" for kind, _ in recfile.read_records(record.file))
    assert 0 < came < truth["steps"] == report["window"]["steps"]
    assert report["lost"]["ring_full"] >= truth["steps"] - came
    assert "ring_full=" in helpers.report_text(record.file, "--simple")


@helpers.needs_bpf
def test_ring_names(bench):
    """A process that sends each name of a kernel anew has a budget: the rest is counted, and takes neither memory nor disk."""
    job = bench.job("hostile_ring.py", command=[helpers.PYTHON, helpers.JOBS / "hostile_ring.py"]).until_ready()
    record = bench.record("-p", job.pid, "--gpu", "cupti", "--no-syscalls").until_armed()
    before = memory_bytes(record.pid)
    job.release()
    sent = job.truth()["sent"]
    assert record.wait() == OK, record.what()
    texts = {recfile.text_of(r) for kind, r in recfile.read_records(record.file) if kind == "NAME"}
    came = {text for text in texts if re.fullmatch(r"\d{40}", text)}
    assert len(came) == NAMES_OF_A_RING < sent
    assert helpers.report(record.file)["lost"]["gpu_bad"] == sent - NAMES_OF_A_RING
    assert before < 64 * MB


@helpers.needs_bpf
@pytest.mark.parametrize("children", [300, pytest.param(3000, marks=pytest.mark.long)])
def test_children(bench, children):
    """A job that forks without end: stepflame's memory stays what it was after the first hundred."""
    job = bench.job("many_children.py", "--batches", children, command=[helpers.PYTHON, helpers.JOBS / "many_children.py"]).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    job.release()
    job.until_says(r"^100 ", helpers.END_SECONDS, "stdout")
    time.sleep(0.5)
    before = memory_bytes(record.pid)
    files = len(os.listdir("/proc/%d/fd" % record.pid))
    job.until_says(r"^%d " % children, helpers.END_SECONDS, "stdout")
    time.sleep(0.5)
    grown = memory_bytes(record.pid) - before
    assert len(os.listdir("/proc/%d/fd" % record.pid)) <= files + 4
    job.truth()
    assert record.wait() == OK, record.what()
    print("%.0f bytes a child" % (grown / (children - 100)))
    assert grown < 1 * MB + children * 1000


# Writes the bytes of stepflame's heap that are in use, again and again; its other processes are forks, without this thread.
HEAP = """
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *tell(void *unused)
{
	int out = open(getenv("HEAP_OUT"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	char text[32];

	for (;; usleep(20000))
		pwrite(out, text, snprintf(text, sizeof(text), "%020zu", mallinfo2().uordblks), 0);
}

__attribute__((constructor)) static void begin(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, tell, NULL);
}
"""

# Prints a line after each so many children, and then forks none for a while. Those of a trainer make steps: main processes, for a report.
ROUNDS = """
import os, sys, time
trains = sys.argv[4] == "trains"
if trains:
    import torch
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    optimizer = torch.optim.SGD([parameter], lr=0.01)
    optimizer.step()
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
for round in range(int(sys.argv[2])):
    for i in range(int(sys.argv[3])):
        if not os.fork():
            for step in range(5 * trains):
                optimizer.step()
                time.sleep(0.02)
            os._exit(0)
        os.wait()
        time.sleep(0.0005)
    print("round", round, flush=True)
    time.sleep(4)
"""
MAINS_KEPT, MAIN_BYTES = 64, 13000  # user/session/targets.c; struct target, with the state of each source
ROUND_CHILDREN = {"": 20000 if helpers.LONG else 3000, "trains": 2000 if helpers.LONG else 150}


@helpers.needs_bpf
@pytest.mark.parametrize("children", ROUND_CHILDREN)
def test_heap_of_children(bench, children):
    """
    What stepflame has allocated does not grow with the children that have come and gone: by 10 bytes for each at most; by 1 KB for those that
    train, of which the summary at the end has rows, and by the last ones, which stay whole: it depends on how many were seen in the first round.
    """
    (bench.directory / "heap.c").write_text(HEAP)
    preload = helpers.compiled(bench.directory / "heap.so", bench.directory / "heap.c", "-shared", "-fPIC", "-pthread")
    out, go, cnt = bench.directory / "heap", bench.directory / "go", ROUND_CHILDREN[children]
    job = bench.process(helpers.PYTHON, "-c", ROUNDS, go, 2, cnt, children)
    job.until_says("ready", helpers.READY_SECONDS, "stdout")
    command = [helpers.STEPFLAME, "record", "-p", job.pid, "-F", 1, "--children", "all", "-o", bench.directory / "out.rec"]
    record = bench.process(*command, env={**os.environ, "LD_PRELOAD": str(preload), "HEAP_OUT": str(out)})
    record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
    go.touch()
    used = []
    for number in range(2):
        job.until_says("^round %d" % number, (40 if children else 4) * helpers.END_SECONDS, "stdout")
        least = None
        for _ in range(25):  # until what has ended is forgotten, and a snapshot is taken
            time.sleep(0.1)
            least = min(int(out.read_text()), least or sys.maxsize)
        used.append(least)
    assert job.wait() == 0 and record.wait() == OK, record.what()
    grown = used[1] - used[0]
    print("%d bytes more, %.1f a child" % (grown, grown / cnt))
    report = helpers.report(bench.directory / "out.rec", "--all")
    if children:
        steps = helpers.actions(report)["Optimizer.step#SGD.step"]["count"]
        assert 0 < steps <= 5 * 2 * cnt and report["window"]["steps"] in range(1, 6)
    else:
        assert "%d child processes" % (2 * cnt) in helpers.report_text(bench.directory / "out.rec", "--simple")
    assert grown < 64 * 1024 + (1000 * cnt + MAINS_KEPT * MAIN_BYTES if children else 10 * cnt)
