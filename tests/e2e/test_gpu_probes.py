# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Calls of CUDA and NCCL, seen by probes, against what doubles of the libraries count themselves."""

import collections
import json
import os
import re
import shlex
import signal
import struct
import subprocess
import zlib
from pathlib import Path

import gpu
import helpers
import pytest
import recfile

pytestmark = [helpers.needs_bpf, gpu.needs_doubles]

# From our clock to that of the double: two probes, and two more where the runtime's double calls the driver's.
PER_CALL = 60e-6

# What these programs call besides, which is neither work for a GPU nor a wait for it.
UNWATCHED = {"cuInit", "cuModuleGetFunction", "cudaStreamCreateWithFlags"}
# The names of their numbers in a recording.
APIS = ["", *re.findall(r"X\((\w+), [A-Z_]+, \d, \d, \d, [A-Z]+\)", (helpers.ROOT / "include" / "gpu.h").read_text())]


@pytest.fixture(params=["", "events"])
def way(request, tmp_path, monkeypatch):
    """How probes are attached: as this kernel does it, and as those before 6.10 do."""
    if not request.param:
        return
    if subprocess.run([*helpers.WITH_TRACEFS, "test", "-w", helpers.EVENTS]).returncode:
        pytest.skip("tracefs cannot be mounted")
    program = tmp_path / "stepflame"
    program.write_text("#!/bin/sh\nexec %s %s \"$@\"\n" % (shlex.join(helpers.WITH_TRACEFS), helpers.STEPFLAME))
    program.chmod(0o755)
    monkeypatch.setattr(helpers, "STEPFLAME", str(program))
    monkeypatch.setenv("STEPFLAME_PROBES", request.param)


def events():
    """Those of stepflame in tracefs, by name."""
    said = subprocess.run([*helpers.WITH_TRACEFS, "cat", helpers.EVENTS], capture_output=True, text=True)
    return set(re.findall(r"^p:stepflame/(\w+) ", said.stdout, re.M))


def events_of(pid):
    return {name for name in events() if name.startswith("p%d_" % pid)}


class Recorded:
    """REC_GPU..., with names for numbers."""

    def __init__(self, file):
        names, rows, self.tiers, self.steps, self.calls = {0: ""}, {}, {}, [], []
        for kind, row in recfile.read_records(file):
            if kind == "NAME":
                names[row.id] = row.tail[: row.bytes].decode("latin-1")
            elif kind == "GPU":
                self.tiers[row.pid] = (row.tier, row.why)
            elif kind == "GPU_CALLS":
                key = (row.pid, row.api, row.direction, row.dtype, row.action, row.op, row.object)
                rows[key] = (row.calls, row.total_ns, row.max_ns, row.bytes)
            elif kind == "GPU_CALL":
                self.calls.append((APIS[row.api], row.direction, row.start_ns, row.duration_ns, row.tid, row.bytes))
            elif kind == "GPU_STEP":
                self.steps.append(row)
        self.rows = []
        for (pid, api, direction, dtype, action, op, thing), values in rows.items():
            thing = names[thing] if "Launch" in APIS[api] else thing
            self.rows.append((pid, APIS[api], direction, dtype, names[action], names[op], thing, *values))

    def sums(self, pid=None):
        """{(function, direction): [calls, bytes, seconds]}, as the doubles count."""
        found = collections.defaultdict(lambda: [0, 0, 0.0])
        for row_pid, api, direction, *_, calls, total_ns, _, size in self.rows:
            if pid in (None, row_pid):
                one = found[api, direction]
                one[:] = one[0] + calls, one[1] + size, one[2] + total_ns / 1e9
        return dict(found)


DIRECTIONS = {"HTOD": 1, "DTOH": 2, "DTOD": 3, "HTOH": 4, "": 5}


def counted(log, since=0):
    """The same of the doubles' log, of calls that are in no other: all but UNWATCHED."""
    found = collections.defaultdict(lambda: [0, 0, 0.0])
    for call in log.calls():
        name = gpu.plain(call["name"])
        if name not in UNWATCHED and call["start"] >= since:
            one = found[name, DIRECTIONS[call["text"]] if "Memcpy" in name else 0]
            one[:] = one[0] + 1, one[1] + call["bytes"], one[2] + (call["end"] - call["start"]) / 1e9
    return dict(found)


def numbers(sums):
    return {key: tuple(values[:2]) for key, values in sums.items()}


def check(found, truth, delayed, untimed=()):
    """Whoever is put off a processor between the double's clock and ours is so for us alone."""
    assert numbers(found) == numbers(truth)
    for key, (calls, _, seconds) in truth.items():
        if key[0] in untimed:
            continue
        assert found[key][2] >= seconds, key
        helpers.check_error(found[key][2] - seconds, 0.05 * seconds + PER_CALL * calls, delayed, (key, found[key], seconds, delayed))


def run(gpu_jobs, mode, program="calls"):
    """Attaches to tests/gpu/calls.c, and lets it make its calls. (job, record)"""
    job = gpu_jobs.train(mode, program=program).until_ready()
    record = gpu_jobs.bench.record("-p", job.pid, "--gpu", "uprobe").until_armed()
    job.release()
    return job, record


def ended(job, record):
    """(recorded, truth, delayed)"""
    helpers.until(helpers.END_SECONDS, job.out.exists, job.what)
    said = json.loads(job.out.read_text())
    if job.args[0] != "idle":  # names are looked for while the process is there
        helpers.until(helpers.END_SECONDS, lambda: has_rows(record.file), record.what)
    job.go.unlink()
    assert job.wait() == 0, job.what()
    assert record.wait() == helpers.OK, record.what()
    return Recorded(record.file), counted(job.log, said["begin"]), said["delayed"] / 1e9


def has_rows(file):
    try:
        return Recorded(file).rows
    except (OSError, struct.error, zlib.error):  # it is being written
        return False


@pytest.mark.alone
@pytest.mark.parametrize("program", ["calls", "calls-static"])
def test_threads(gpu_jobs, program, way):
    """Four threads, as fast as they can; the runtime in a library, or in the program itself."""
    job, record = run(gpu_jobs, "threads", program)
    found, truth, delayed = ended(job, record)
    assert sum(calls for calls, _, _ in truth.values()) == 4 * 500 * 10 + 4 * 50 * 2
    check(found.sums(), truth, delayed)
    names = {(api, name) for _, api, _, _, _, _, name, *_ in found.rows if "Launch" in api}
    # 16 is no function's address
    expected = {("cudaLaunchKernel", name) for name in ("_Z9layernormmPf", "_Z6hiddenPf", "")}
    assert names == expected | {("cuLaunchKernel", "_Z3getv")}
    (comm,) = [row for row in found.rows if row[1] == "ncclAllReduce"]
    assert (comm[3], comm[6]) == (7, 0x1234)
    (tier,) = found.tiers.values()
    assert tier == (1, "--gpu uprobe asks for calls alone")
    assert helpers.report(record.file)["lost"] == {"kernels_unnamed": 1}


def test_never_called(gpu_jobs):
    job, record = run(gpu_jobs, "idle")
    said = helpers.stepflame("doctor", "-p", job.pid).stdout
    (line,) = [line for line in said.splitlines() if re.match(r"OK +CUDA ", line)]
    assert "functions in 3 files" in line
    assert set(line.split(": ")[1].split(", ")) == {"libcuda.so.1", "libcudart.so.13", "libnccl.so.2"}
    assert re.search(r"^OK +GPU +tier 1: .*record --inject -p %d," % job.pid, said, re.M)
    loaded = os.path.exists("/proc/driver/nvidia/version")
    assert bool(re.search(r"^OK +NVIDIA driver +no driver is loaded", said, re.M)) != loaded
    found, truth, _ = ended(job, record)
    assert truth == {} and found.rows == []
    assert [tier for tier, _ in found.tiers.values()] == [1]


def test_fork(gpu_jobs, way):
    """A child that was forked when calls had been made. Its own fail, and so are not logged with what they are about."""
    job, record = run(gpu_jobs, "fork")
    found, truth, delayed = ended(job, record)
    (child,) = {row[0] for row in found.rows} - {job.pid}
    check(found.sums(job.pid), truth, delayed)
    assert numbers(found.sums(child)) == numbers(truth)
    path = str(job.out) + ".child"
    delayed = json.loads(open(path).read())["delayed"] / 1e9
    by_name = [collections.defaultdict(lambda: [0, 0, 0.0]) for _ in range(2)]
    for sums, rows in zip(by_name, (found.sums(child), counted(gpu.Log(job.log.path.rpartition(".")[0], child)))):
        for (name, _), (calls, _, seconds) in rows.items():
            sums[name][0] += calls
            sums[name][2] += seconds
    check(*by_name, delayed)


def has_ended(pid):
    """Its descriptors are closed, too: one that is killed has no command any more while that goes on."""
    try:
        return Path("/proc/%d/stat" % pid).read_text().rpartition(") ")[2][0] in "ZX"
    except OSError:
        return True


@pytest.mark.parametrize("way", ["events"], indirect=True)
def test_killed_with_events(bench, gpu_jobs, way):
    """The guardian takes the definitions away. If it is killed too, they are left, do nothing, and the next recording takes them away."""
    job = gpu_jobs.train("idle", program="calls").until_ready()
    for killed in ("record", "guardian"):
        first = bench.record("-p", job.pid, "--gpu", "uprobe").until_armed()
        (guardian,) = helpers.guardians(first)
        left = events_of(guardian)
        assert len(left) >= 6  # ends and beginnings of three files
        if killed == "guardian":
            os.kill(guardian, signal.SIGKILL)
        first.kill()
        helpers.until(helpers.END_SECONDS, lambda: has_ended(guardian), lambda: "guardian %d" % guardian)
        assert (left <= events()) == (killed == "guardian")
    second = bench.record("-p", job.pid, "--gpu", "uprobe").until_armed()
    (guardian,) = helpers.guardians(second)
    assert events_of(guardian) and not left & events()
    second.interrupt()
    assert second.wait() == helpers.OK, second.what()
    assert not events_of(guardian)


def test_collectives_since_2_28(bench):
    """All-to-all, gather and scatter, each with its bytes and its communicator."""
    script = """
import ctypes, os, sys, time
cuda, nccl = ctypes.CDLL("libcudart.so.13"), ctypes.CDLL("libnccl.so.2")
assert cuda.cudaFree(None) == 0
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
count, half, root, comm = ctypes.c_size_t(1000), 6, (3,), ctypes.c_void_p(0xABCD0)
for name, more in (("ncclAlltoAll", ()), ("ncclGather", root), ("ncclScatter", root)):
    assert getattr(nccl, name)(None, None, count, half, *more, comm, None) == 0
"""
    go = bench.directory / "go"
    program = bench.process(helpers.PYTHON, "-c", script, go, env=dict(os.environ, LD_LIBRARY_PATH=str(gpu.DOUBLES))).until_ready()
    record = bench.record("-p", program.pid, "--gpu", "uprobe").until_armed()
    go.touch()
    assert program.wait() == 0 and record.wait() == helpers.OK, record.what()
    rows = helpers.report(record.file, "--gpu")["collectives"]
    found = {(row["name"], row["count"], row["bytes"], row["dtype"], row["communicator"]) for row in rows}
    assert found == {(name, 1, 2000, "float16", "0xabcd0") for name in ("ncclAlltoAll", "ncclGather", "ncclScatter")}


def test_left_by_longjmp(gpu_jobs):
    """The calls that are left are counted; those behind them are whole."""
    found, truth, delayed = ended(*run(gpu_jobs, "longjmp"))
    check(found.sums(), truth, delayed, untimed=("cudaEventQuery",))
    assert found.sums()["cudaEventQuery", 0][0] == 100


def test_detached_in_the_middle(bench, gpu_jobs, way):
    """Attached and detached again and again while calls are made; nothing is logged, for it to make more of them."""
    job = gpu_jobs.train("forever", program="calls", GPU_DOUBLE_LOG="").until_ready()
    job.release()
    each = {("cudaLaunchKernel", 0): 3, ("cudaMemcpyAsync", 1): 2}
    each.update({(name, 0): 1 for name in ("cuMemsetD32Async", "cudaMemset", "cudaMemsetAsync", "ncclAllReduce")})
    seen = collections.Counter()
    for _ in range(4):
        record = bench.record("-p", job.pid, "--gpu", "uprobe").until_armed()
        job.until_ran()
        record.interrupt()
        assert record.wait() == helpers.OK, record.what()
        found = Recorded(record.file).sums()
        seen.update({key: values[0] for key, values in found.items()})
        # the driver's part of the call in which we came
        assert sum(values[0] for key, values in found.items() if key not in each) <= 2
        # Each round makes one of these, two of those.
        assert abs(found["cudaMemcpyAsync", 1][0] - 2 * found["cuMemsetD32Async", 0][0]) <= 2
        assert abs(found["cudaLaunchKernel", 0][0] - 3 * found["ncclAllReduce", 0][0]) <= 3
    job.go.unlink()
    rounds = job.truth()["rounds"]
    assert all(0 < seen[key] < calls * rounds for key, calls in each.items())


def test_actions_operators_steps(bench, gpu_jobs):
    job = gpu_jobs.python("gpu_loop.py").until_ready()
    options = ["--gpu", "auto", "--ops", "--timeline", "--step-at", "loss to host"]
    record = bench.record("-p", job.pid, *options).until_armed()
    job.release()
    truth = job.truth()
    assert record.wait() == helpers.OK, record.what()
    found = Recorded(record.file)
    batches = truth["uploads"]
    begin = truth["steps"][0][0]
    check(found.sums(job.pid), counted(job.log, begin), truth["delayed"])
    # each launch, by what it lies in
    actions = {"backward": "backward"}
    launches = collections.Counter((actions.get(part, ""), op, kernel) for _, part, op, kernel, *_ in truth["launches"])
    where = collections.Counter()
    for _, api, _, _, action, op, name, calls, *_ in found.rows:
        where[api, action, op.partition(".")[0], name] += calls
    assert {key[1:]: calls for key, calls in where.items() if key[0] == "cudaLaunchKernel"} == launches
    rest = {key: calls for key, calls in where.items() if key[0] != "cudaLaunchKernel"}
    assert rest == {
        ("cudaMemcpyAsync", "", "", 0): 2 * batches,
        ("cudaStreamSynchronize", "", "", 0): batches,
    }
    # each by itself, and in sum
    calls = [call for call in job.log.calls() if call["start"] >= begin and call["name"] not in UNWATCHED]
    assert [api for api, *_ in found.calls] == [call["name"] for call in calls]
    assert {tid for _, _, _, _, tid, _ in found.calls} == {call["tid"] for call in calls}
    # each step, from label to label: the end of one turn of the loop, and most of the next
    in_turn = collections.Counter(turn for turn, *_ in truth["launches"])
    assert len(found.steps) == batches - 1
    for turn, step in enumerate(found.steps, 1):
        assert (step.pid, step.launches, step.copies, step.copied_bytes) == (job.pid, in_turn[turn], 2, truth["bytes"] + 4)
        assert step.api_ns > 0 and step.sync_ns > 0
    # waits are spans as well
    rows = helpers.actions(helpers.report(record.file, "--all"))
    assert rows["cudaStreamSynchronize"]["count"] == batches and rows["cudaStreamSynchronize"]["kind"] == "sync"


def build_id(path):
    said = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout
    return re.search(r"Build ID: (\w+)", said).group(1)


@pytest.mark.alone
def test_kept(gpu_jobs, tmp_path, monkeypatch):
    """Functions are looked for once; of the libraries that have none nothing is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    seen = []
    for _ in range(2):
        job, record = run(gpu_jobs, "threads")
        found, truth, delayed = ended(job, record)
        check(found.sums(), truth, delayed)
        job.out.unlink()
        files = (tmp_path / "stepflame").glob("*.gpu")
        seen.append({file.name.partition(".")[0]: file.read_bytes() for file in files})
    libraries = ("libcuda.so.1", "libcudart.so.13", "libnccl.so.2")
    inodes = {int(name.rpartition("-")[2], 16) for name in seen[0]}
    assert inodes == {os.stat(os.path.join(gpu.DOUBLES, name)).st_ino for name in libraries}
    assert seen[0] == seen[1]


@pytest.mark.alone
def test_kept_of_a_stripped_copy(gpu_jobs, tmp_path, monkeypatch):
    """Which has the same build id, and none of the functions."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sums = []
    for program in ("calls-static-stripped", "calls-static"):
        job, record = run(gpu_jobs, "threads", program)
        found, truth, delayed = ended(job, record)
        sums.append({api: values[0] for (api, _), values in found.sums().items()})
    assert build_id(os.path.join(gpu.DOUBLES, "calls-static")) == build_id(os.path.join(gpu.DOUBLES, "calls-static-stripped"))
    assert not [api for api in sums[0] if api.startswith("cuda")]
    check(found.sums(), truth, delayed)


def test_real_runtime(bench):
    """That which torch brings; or none at all."""
    job = bench.job("gpu_waits.py").until_ready()
    record = bench.record("-p", job.pid, "--gpu", "uprobe").until_armed()
    job.release()
    truth = job.truth()
    assert record.wait() == helpers.OK, record.what()
    found = Recorded(record.file)
    if not truth["calls"]:
        assert found.tiers == {} and found.rows == []
        assert "mapped no functions of CUDA" in helpers.report_text(record.file, "--simple")
        return
    # the real runtime, which fails for want of a driver: calls all the same
    counts = {api: values[0] for (api, _), values in found.sums().items()}
    assert counts == {name: call["count"] for name, call in truth["calls"].items()}


def say(job):
    job.popen.stdin.write(b"\n")
    job.popen.stdin.flush()


def test_functions_that_jump_on(bench, tmp_path):
    """
    Stubs that jump to the driver, and a driver that jumps through its table: each call is counted once, and waits end when
    they are over. A launch of the driver's, whose end would be stepped, has no time.
    """

    def build(name, *args):
        helpers.compiled(tmp_path / name, helpers.JOBS / "gpu_forwards.c", "-O2", *args, "-Wl,-rpath," + str(tmp_path))

    build("libcuda.so.1", "-shared", "-fPIC", "-DDRIVER")
    build("libstub.so", "-shared", "-fPIC", "-DSTUB", "-Wl,-soname,libstub.so", "-ldl")
    build("program", tmp_path / "libstub.so")
    out = tmp_path / "truth"
    job = bench.process(tmp_path / "program", out, stdin=subprocess.PIPE).until_ready()
    record = bench.record("-p", job.pid, "--gpu", "uprobe").until_armed()
    say(job)
    helpers.until(helpers.END_SECONDS, lambda: out.exists() and out.read_text().endswith("\n"), job.what)
    truth = json.loads(out.read_text())
    helpers.until(helpers.END_SECONDS, lambda: has_rows(record.file), record.what)
    say(job)
    assert job.wait() == 0 and record.wait() == helpers.OK, record.what()
    found = Recorded(record.file)
    calls = {api: values[0] for (api, _), values in found.sums().items()}
    assert calls == {"cuLaunchKernel": truth["launches"], "cuStreamSynchronize": truth["waits"]}
    seconds = found.sums()["cuStreamSynchronize", 0][2]
    assert 2e-3 * truth["waits"] <= seconds <= truth["waited"]
    assert {row[6] for row in found.rows if row[1] == "cuLaunchKernel"} == {"axpy"}
    rows = helpers.actions(helpers.report(record.file, "--all"))
    assert rows["cuStreamSynchronize"]["count"] == truth["waits"]
    assert helpers.report(record.file)["lost"] == {"gpu_untimed": truth["launches"]}


def real_runtimes():
    """The libcudart that the environment's torch brings, or that of CUDA's toolkit."""
    places = [Path(helpers.PYTHON).parents[1] / "lib", Path("/usr/local/cuda/lib64")]
    found = [path for place in places for path in sorted(place.glob("**/libcudart.so.[0-9]*"))]
    return [str(path) for path in found if not path.is_symlink()]


def test_real_runtime_throws(bench, tmp_path):
    """Eight threads at once; and exceptions pass through those who called it."""
    libraries = os.environ.get("STEPFLAME_CUDART", "").split() or real_runtimes()
    if not libraries:
        pytest.skip("no libcudart is here")
    subprocess.run(["g++", "-O2", "-pthread", "-o", tmp_path / "real", helpers.JOBS / "gpu_real.cpp", "-ldl"], check=True)
    for i, library in enumerate(libraries):
        out = tmp_path / ("truth%d" % i)
        job = bench.process(tmp_path / "real", library, out, stdin=subprocess.PIPE).until_ready()
        record = bench.record("-p", job.pid, "--gpu", "uprobe").until_armed()
        say(job)
        helpers.until(helpers.END_SECONDS, lambda: out.exists() and out.read_text().endswith("\n"), job.what)
        say(job)
        assert job.wait() == 0 and record.wait() == helpers.OK, (library, job.what(), record.what())
        truth, sums = json.loads(out.read_text()), Recorded(record.file).sums()
        calls = sum(count for count, _ in truth["calls"].values())
        assert truth["thrown"] == calls // 10, "a GPU is here"
        assert {api: values[0] for (api, _), values in sums.items()} == {n: count for n, (count, _) in truth["calls"].items()}
        assert all(values[2] <= truth["calls"][api][1] for (api, _), values in sums.items()), library


def test_options():
    result = helpers.stepflame("record", "-p", 1, "--gpu", "all")
    assert result.returncode == helpers.USAGE and "--gpu is off, auto, uprobe or cupti" in result.stderr
