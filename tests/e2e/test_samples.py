# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Samples of real programs, against what these know of themselves, against their sources, and against py-spy."""

import json
import math
import os
import shutil
import subprocess
import sys

import helpers
import pytest
import pythons
import dumped_samples
from dumped_samples import CPU, WAIT

pytestmark = helpers.needs_bpf

HZ = 99
SHARE = 0.03  # of a function, where there are samples enough for that
WAITED = 0.02  # of a wait
APART_NS = 50000  # the clock that BPF reads from the one that programs read, on a virtual machine,
FAR_APART_NS = 1000000  # and where it was stopped for a moment, which its kernel does not see


def sampled_run(bench, script, *args, python=helpers.PYTHON, options=()):
    record, truth = bench.recorded(script, *args, python=python, options=options)
    return dumped_samples.Samples(record.file), truth, helpers.report(record.file), record


def check_lost(samples, lost):
    """A stack in a hundred may be met while it is made; no sample is lost, and no stack cut."""
    assert lost.get("stack_lost", 0) <= 1 + len(samples) / 100, lost
    assert not {"samples_lost", "ring_full", "stack_cut"} & set(lost), lost


def error_of(share, samples):
    """Four standard deviations of a share of so many samples: 1 run in 16,000 is beyond."""
    return max(SHARE, 4 * math.sqrt(share * (1 - share) / samples))


# ---- shares and waits ----

CAUSE_OF = {
    "sleeps": "sleep",
    "waits_for_a_lock": "lock",
    "reads_a_pipe": "pipe",
    "receives": "socket",
    "polls": "poll",
    "syncs": "fsync",
    "waits_for_a_child": "child_wait",
}


def check_waits(samples, truth):
    for thread, seconds in truth["waited"].items():
        waits = samples.of(pid=truth["pid"], tid=truth["tids"][thread], kind=WAIT)
        by_cause = dumped_samples.seconds_by(waits, lambda s: s.cause)
        got, others = by_cause[CAUSE_OF[thread]], by_cause["gil"] + by_cause["run_queue"]
        # its own clock goes on until it has the CPU and the GIL again
        assert (1 - WAITED) * seconds - others <= got <= (1 + WAITED) * seconds, (thread, seconds, by_cause)
        inside = [s for s in waits if s.cause == CAUSE_OF[thread] and any(f.name.split(".")[0] == thread for f in s.stack)]
        assert sum(s.seconds for s in inside) > 0.9 * got, (thread, by_cause)


def check_share(samples, name, truth):
    share = sum(s.seconds for s in samples if any(f.name == name for f in s.stack)) / sum(s.seconds for s in samples)
    assert share == pytest.approx(truth, abs=error_of(truth, len(samples))), name


def check_shares(samples, truth):
    main = samples.of(pid=truth["pid"], tid=truth["pid"])
    on_cpu = [s for s in main if s.kind == CPU]
    computing = [s for s in on_cpu if any(f.name == "compute" for f in s.stack)]
    spent = sum(truth["computed"].values())
    error = 4 * math.sqrt(sum(s.seconds**2 for s in computing))
    assert sum(s.seconds for s in computing) == pytest.approx(truth["cpu"], abs=error), truth
    assert len(computing) / HZ == pytest.approx(truth["cpu"], abs=error), truth  # -F is what it says
    for name, seconds in truth["computed"].items():
        check_share(computing, name, seconds / spent)
    inside = [s for s in main if any(f.name == "compute" for f in s.stack)]
    wall = sum(s.seconds for s in inside)
    assert wall == pytest.approx(truth["wall"], abs=error), (wall, truth["wall"])


@pytest.mark.alone
@pythons.on_few
def test_shares(bench, python):
    """What of the CPU's time each function had, and how long each thread waited for what."""
    seconds = 20 if helpers.LONG else 6 if python == pythons.NEWEST else 3
    samples, truth, found, _ = sampled_run(bench, "shares.py", "--seconds", seconds, python=python)
    check_shares(samples, truth)
    check_waits(samples, truth)
    dumped_samples.check_frames(samples, found["lost"])
    check_lost(samples, found["lost"])
    # the report's own sums, of the process
    (none,) = helpers.report(bench.started[-1].file, "--advanced")["actions"]
    own = [s for s in samples if s.pid == truth["pid"]]
    assert none["cpu_s"] == pytest.approx(sum(s.seconds for s in own if s.kind == CPU))
    by_cause = dumped_samples.seconds_by([s for s in own if s.kind == WAIT], lambda s: s.cause)
    assert {name: pytest.approx(s) for name, s in by_cause.items()} == none["waits"]


@pytest.mark.parametrize("periods", (1, *(pytest.param(n, marks=pytest.mark.long) for n in (1.5, 2))))
def test_rhythm(bench, periods):
    """A job that goes round as the timer does, or twice as slowly."""
    samples, truth, found, _ = sampled_run(bench, "rhythm.py", "--period", periods / HZ)
    on_cpu = [s for s in samples.of(pid=truth["pid"], tid=truth["pid"], kind=CPU) if any(f.name == "spin" for f in s.stack)]
    for name, seconds in truth["computed"].items():
        check_share(on_cpu, name, seconds / sum(truth["computed"].values()))
    check_lost(samples, found["lost"])


@pytest.mark.parametrize("idle", (0, 0.6, pytest.param(0.3, marks=pytest.mark.long)))
def test_time_on_the_cpu(bench, idle):
    """The weights of a thread's samples add up to its CPU time, also where its CPU idles in between."""
    samples, truth, found, _ = sampled_run(bench, "rhythm.py", "--seconds", 4, "--idle", idle, options=("-F", 499))
    on_cpu = [s for s in samples.of(pid=truth["pid"], tid=truth["pid"], kind=CPU) if any(f.name == "spin" for f in s.stack)]
    computed = sum(truth["computed"].values())
    # four standard deviations of samples that come or not, whose weights vary by half
    error = 4 * 1.25**0.5 * math.sqrt(computed * (4 - computed if idle else 0.1) / 4 / 499)
    assert sum(s.seconds for s in on_cpu) == pytest.approx(computed, abs=error + 0.02 * computed)
    check_lost(samples, found["lost"])


def seconds_in(waits, function):
    return sum(s.seconds for s in waits if function in [f.name.rpartition(".")[2] for f in s.stack])


@pythons.on_few
def test_waits_already(bench, python):
    """Threads that wait when the recording begins, and never ran since: where they do is known."""
    samples, truth, found, _ = sampled_run(bench, "waiters.py", python=python)
    dumped_samples.check_frames(samples, found["lost"])
    for function in ("waits_for_work", "waits_for_a_lock", "child"):
        tid = truth["tids"].get(function, truth["child"])
        waits = samples.of(tid=tid, kind=WAIT)
        assert sum(s.seconds for s in waits) > 2.5, function
        assert seconds_in(waits, function) == pytest.approx(sum(s.seconds for s in waits), abs=0.05), function
    # one that goes on: that wait alone has what was seen then
    waits = samples.of(tid=truth["tids"]["waits_once"], kind=WAIT)
    assert seconds_in(waits, "waits_once") == pytest.approx(sum(s.seconds for s in waits), abs=0.05)
    once, sleeps, wait = truth["once"], seconds_in(waits, "sleeps"), seconds_in(waits, "wait")
    assert sleeps + wait == pytest.approx(sum(s.seconds for s in waits), abs=0.05)
    assert sleeps > once["sleeps"] - once["delayed"] - 0.2 and wait > once["waits"] - once["delayed"] - 0.2, once


# ---- what is named is there ----


@pythons.on_few
def test_frames(bench, python):
    """Threads by the hundred, tasks, generators, functions that come and go, names of all kinds: nothing is named that is not there."""
    samples, truth, found, _ = sampled_run(bench, "python_shapes.py", python=python)
    assert dumped_samples.check_frames(samples, found["lost"]) > 30
    check_generated(samples)
    seen = {frame.name.rsplit(".", 1)[-1] for frame in samples.frames()}
    assert set(truth["functions"]) <= seen, set(truth["functions"]) - seen
    for chain in truth["chains"]:
        found_chains = {tuple(f.name.rsplit(".", 1)[-1] for f in s.stack) for s in samples}
        assert any(chain == list(c[i : i + len(chain)]) for c in found_chains for i in range(len(c))), chain
    assert len({s.tid for s in samples if s.pid == truth["pid"]}) >= 100
    check_lost(samples, {name: cnt for name, cnt in found["lost"].items() if name != "stack_cut"})
    assert any(s.cut and len(s.stack) == 512 for s in samples)


def check_generated(samples):
    """Functions g0, g1, ... of files <generated 0>, <generated 1>, ..., at those lines: none is mixed with another."""
    generated = [f for f in samples.frames() if f.file.startswith("<generated ")]
    assert generated
    for frame in generated:
        number = int(frame.file[11:-1])
        if frame.name != "<module>":
            assert (frame.name, frame.first_line) == ("g%d" % number, number + 1), frame
            assert frame.line in (0, number + 1, number + 2, number + 3), frame


@pythons.on_few
@pytest.mark.parametrize("often", (False, True))
def test_functions_made_again(bench, python, often):
    """Functions at the address of one that has ended: each sample is of the one that ran then; also where more end than stepflame wants to be told of."""
    phases = ("--seconds", 1, 2.5, 1, "--each", 0.015, 0.0002, 0.015) if often else ()
    samples, truth, found, _ = sampled_run(bench, "remade.py", *phases, python=python, options=("-F", 299))
    if python not in pythons.FREE_THREADED.values():  # which rarely give an address again so soon
        assert truth["again"] > len(truth["calls"]) / 2
    apart = []
    for sample in samples.of(pid=truth["pid"]):
        for number in [int(f.name[5:]) for f in sample.stack if f.name.startswith("made_")]:
            start_ns, end_ns = truth["calls"][number]
            apart.append((max(start_ns - sample.time_ns, sample.time_ns - end_ns), number))
    assert len({number for _, number in apart}) > 20
    stray = [off for off in apart if off[0] > APART_NS]
    assert len(stray) <= len(apart) * helpers.STRAY_PERCENT / 100 and max(apart)[0] <= FAR_APART_NS, (len(apart), stray)
    check_lost(samples, found["lost"])


def test_frames_lightning(bench):
    samples, truth, found, record = sampled_run(bench, "lightning_fit.py", "--workers", 2, "--batches", 600)
    assert dumped_samples.check_frames(samples, found["lost"]) > 30
    workers = {t["pid"] for t in found["target"] if t["role"] == "worker"}
    assert {s.pid for s in samples if any(f.name == "_worker_loop" for f in s.stack)} & workers
    actions = {a["name"] for a in helpers.report(record.file, "--advanced", "--all")["actions"]}
    assert actions & set(truth["actions"])
    kernel = {s.kernel for s in samples if not s.kernel.startswith("bpf_prog_")} - {""}  # which are gone by now
    with open("/proc/kallsyms") as f:
        assert kernel and kernel <= {" ".join(line.split()[2:]) for line in f}


def test_frames_plain(bench):
    samples, _, found, _ = sampled_run(bench, "plain_loop.py", "--epochs", 4)
    assert dumped_samples.check_frames(samples, found["lost"]) > 10
    check_lost(samples, found["lost"])


# ---- py-spy ----


PY_SPY = shutil.which("py-spy", path=os.pathsep.join([os.environ.get("PATH", ""), os.path.dirname(sys.executable)]))


@pytest.mark.alone
@pytest.mark.skipif(not PY_SPY, reason="there is no py-spy: tools/setup.sh python --readers, or pip install py-spy")
def test_py_spy(bench):
    """Two watchers of one run: the same functions have the CPU, by the same shares."""
    job = bench.job("shares.py", "--seconds", 6).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    spied = bench.directory / "spied"
    spy = bench.process(PY_SPY, "record", "-p", job.pid, "-f", "raw", "-r", 100, "-d", 5, "-t", "-o", spied)
    job.release()
    truth = job.truth()
    assert spy.wait() == 0, spy.what()
    assert record.wait() == helpers.OK, record.what()
    theirs = {name: 0 for name in truth["computed"]}
    for line in spied.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        for name in theirs:
            if "compute (shares.py" in stack and ";%s (shares.py" % name in stack:
                theirs[name] += int(count)
    computing = [s for s in dumped_samples.Samples(record.file).of(kind=CPU) if any(f.name == "compute" for f in s.stack)]
    ours = {name: sum(any(f.name == name for f in s.stack) for s in computing) for name in theirs}
    assert sorted(ours, key=ours.get) == sorted(theirs, key=theirs.get), (ours, theirs)
    for name in ours:
        one, other = ours[name] / sum(ours.values()), theirs[name] / sum(theirs.values())
        assert one == pytest.approx(other, abs=error_of(one, sum(ours.values())) + error_of(other, sum(theirs.values())))


@pytest.mark.alone
@pytest.mark.skipif(not PY_SPY, reason="there is no py-spy: tools/setup.sh python --readers, or pip install py-spy")
def test_own_time_as_py_spy_has_it(bench):
    """What the interpreter does is the own time of the Python function that it runs: in the flame, and in the tables."""
    job = bench.job("python_bound.py", "--seconds", 7).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    spied = bench.directory / "spied"
    spy = bench.process(PY_SPY, "record", "-p", job.pid, "-f", "raw", "-r", 100, "-d", 6, "-F", "-o", spied)
    job.release()
    computed = job.truth()["computed"]
    assert spy.wait() == 0, spy.what()
    assert record.wait() == helpers.OK, record.what()
    # by the innermost frame: of the flame on the CPU alone
    theirs, flame, table = dict.fromkeys(computed, 0), dict.fromkeys(computed, 0), {}
    for line in spied.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        name = stack.rpartition(";")[2].partition(" ")[0]
        if name in theirs:
            theirs[name] += int(count)
    for line in helpers.stepflame("flame", "--folded", record.file).stdout.splitlines():
        stack, _, count = line.rpartition(" ")
        name = stack.rpartition(";")[2].split(":")[1:2]
        if name and name[0] in flame:
            flame[name[0]] += int(count)
    (none,) = helpers.report(record.file, "--advanced", "--leaf", "--cpu")["actions"]
    table = {f["name"]: f["tottime_s"] for f in none["functions"] if f["name"] in computed}
    for name in computed:
        of = [counts[name] / sum(counts.values()) for counts in (flame, table, theirs, computed)]
        errors = error_of(of[0], none["samples"]), error_of(of[2], sum(theirs.values()))
        assert of[0] == pytest.approx(of[1], abs=0.001) and of[0] == pytest.approx(of[3], abs=errors[0]), (name, of)
        assert of[0] == pytest.approx(of[2], abs=sum(errors)), (name, of)
    # of the interpreter's own rows there is what it does without Python: as it ends
    rows = {f["name"]: f for f in none["functions"]}
    own = sum(f["tottime_s"] for name, f in rows.items() if "(python" in name or "(libpython" in name)
    assert own <= rows.get("<no Python frames>", {"cumtime_s": 0})["cumtime_s"] + 1e-9
    native = helpers.report(record.file, "--advanced", "--native", "--cpu")["actions"][0]["functions"]
    assert sum(f["tottime_s"] for f in native if f["name"] in computed) < 0.2 * none["cpu_s"]


# ---- programs that make it difficult ----


@pythons.on_few
def test_churn(bench, python):
    """Threads and processes by the hundred that begin and end, exec, and an end in the middle of all that: the program does not notice."""
    samples, truth, found, _ = sampled_run(bench, "churn.py", python=python)
    assert truth["threads"] == truth["threads_done"] and truth["forks"] == truth["forks_ok"] and truth["execs"] == truth["execs_ok"]
    dumped_samples.check_frames(samples, found["lost"])
    check_generated(samples)
    assert any(s.stack for s in samples if s.pid == truth["pid"])
    check_lost(samples, found["lost"])


def test_stopped(bench):
    """Stopped by a signal, a thread waits for nothing of its own."""
    job = bench.job("shares.py", "--seconds", 4).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    job.release()
    helpers.time.sleep(1)
    job.popen.send_signal(helpers.signal.SIGSTOP)
    helpers.time.sleep(1)
    job.popen.send_signal(helpers.signal.SIGCONT)
    truth = job.truth()
    assert record.wait() == helpers.OK, record.what()
    main = dumped_samples.Samples(record.file).of(pid=truth["pid"], tid=truth["pid"], kind=WAIT)
    by_cause = dumped_samples.seconds_by(main, lambda s: s.cause)
    assert by_cause["pauses"] == pytest.approx(1, abs=0.1), by_cause
    assert by_cause["page_fault"] < 0.1, by_cause


def test_execs_another_program(bench):
    """The target becomes another program, which is no Python: recorded until then, and left alone."""
    job = bench.process(helpers.PYTHON, "-u", helpers.JOBS / "execs.py", stdin=subprocess.PIPE).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    job.popen.stdin.close()
    assert job.wait() == 7, job.what()
    assert record.wait() == helpers.OK, record.what()
    samples, found = dumped_samples.Samples(record.file), helpers.report(record.file)
    assert any(f.name == "before" for f in samples.frames())
    dumped_samples.check_frames(samples, found["lost"])
    assert json.loads(helpers.report_text(record.file, "--advanced", "--json"))["actions"]
