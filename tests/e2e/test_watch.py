# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""watch finds the jobs of this host, and keeps what leads to an event, of the job alone. Truth: what the jobs were told to do."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import documented
import helpers
import pytest
import recfile
from eventful import Watched
from helpers import END_SECONDS, ERROR, OK, stepflame
from namespace import Host, needs_namespace
from test_budget import check_steps, start_of

SLOW_SECONDS = 3
TRIGGERS = ["--trigger", "slow=%ds" % (SLOW_SECONDS - 1), "--trigger", "stall=1h", "--trigger", "end"]
pytestmark = helpers.needs_bpf


class Watch:
    def __init__(self, bench, *options, state=None, **popen):
        self.state = state or bench.directory / "state"
        self.process = bench.process(helpers.STEPFLAME, "watch", "--state", self.state, "--last", "10s", "--leave-free", "1K", *options, **popen)
        self.says("watches the training jobs")

    def says(self, pattern):
        self.process.until_says(pattern, END_SECONDS, "stderr")

    def watches(self, *jobs):
        for job in jobs:
            self.says("watches process %d" % job.pid)
            job.job.release()
        return self

    def kept(self, kind, job):
        """The recording of the only event of that kind of a job."""
        self.says(r"job pid %d: .*Kept as \S+-%s\.rec" % (job.pid, kind))
        [file] = (self.state / "events").glob("*-pid-%d-%s.rec" % (job.pid, kind))
        return file

    def end(self):
        self.process.popen.send_signal(signal.SIGTERM)
        assert self.process.wait() == OK, self.process.what()


def pids_of(file):
    """Processes that have samples, steps or rows in a recording."""
    return {r.pid for kind, r in recfile.read_records(file) if kind in ("SAMPLE", "STEP", "AGG")}


def mains(file):
    """Jobs of other tests run beside this one; a job that imports torch may start a process for that."""
    return {target["pid"] for target in helpers.report(file)["target"] if target["role"] == "main"}


def unknown_ids(file):
    """Stacks, paths, functions and names to which records refer, and which a recording does not have."""
    known, used = set(), set()
    for kind, record in recfile.read_records(file):
        if kind in ("NAME", "CODE", "STACK", "PATH"):
            known.add(record.id)
        used |= {getattr(record, name) for name in ("stack", "path", "native", "kernel", "file", "name") if name in vars(record)} - {0}
    return {one for one in used if isinstance(one, int)} - known


def ask(watch, *words):
    return stepflame("watch", *words, "--state", watch.state)


def test_events(bench):
    """Of two jobs, one has a slow step, then the other is killed: each is kept, without the other job."""
    watch = Watch(bench, *TRIGGERS, "--per-hour", "1000")  # other tests kill their jobs, too
    one, other = Watched.pair(bench)
    watch.watches(one, other)
    for steps in (one, other):
        steps.job.until_ran(1)
    one.sleep(SLOW_SECONDS)
    slow = watch.kept("slow", one)
    other.job.kill()
    end = watch.kept("end", other)
    assert "process %d ended after step" % other.pid in watch.process.stderr and "killed by SIGKILL" in watch.process.stderr
    [index] = one.truth()["slow"]
    watch.end()

    assert mains(slow) == {one.pid} and mains(end) == {other.pid}
    assert one.pid in pids_of(slow) and other.pid not in pids_of(slow)
    report = helpers.report(slow, "--steps")
    [row] = [step for step in report["steps"] if step["duration_s"] >= SLOW_SECONDS]
    said = re.search(r"step (\d+) of process %d took [0-9.]+ s;" % one.pid, watch.process.stderr)
    assert row["index"] == int(said.group(1)) and abs(row["index"] - index) <= 1
    assert re.search(r"sleeping( in \w+)?, at events.py", slow.with_suffix(".txt").read_text())
    assert "was killed by SIGKILL" in end.with_suffix(".txt").read_text()
    for options in (["--simple"], ["--advanced"], ["--io"], ["--per-rank"]):
        assert stepflame("report", slow, *options).returncode == OK
    assert stepflame("flame", slow, "-o", bench.directory / "f.html").returncode == OK
    ring = watch.state / "ring.rec"
    assert unknown_ids(slow) <= unknown_ids(ring) and unknown_ids(end) <= unknown_ids(ring)
    assert slow.stat().st_size < ring.stat().st_size
    # the ring has both
    assert {one.pid, other.pid} <= pids_of(ring)


def metrics_of(path):
    """{name{labels}: value}"""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines)}


def test_metrics(bench):
    """Steps as the jobs count them; all of them in the histogram, but for the first, whose begin nobody saw."""
    watch = Watch(bench)
    one, other = Watched.pair(bench, env={"TORCHELASTIC_RUN_ID": 'a"b\\\n\x1b', "RANK": "3"})
    path = watch.state / "metrics.prom"
    watch.watches(one, other)
    labels = {one: 'job="pid %d",rank="pid %d"' % (one.pid, one.pid), other: 'job="a_b___",rank="3"'}
    for steps in (one, other):
        steps.job.until_ran(1)
    truth = {steps: steps.truth()["steps"] for steps in (one, other)}

    def complete():
        found = metrics_of(path) if path.exists() else {}
        return found if all(found.get("stepflame_steps_total{%s}" % labels[steps]) == truth[steps] for steps in truth) else None

    found = helpers.until(END_SECONDS, complete, lambda: "%s\n%s" % (truth, path.read_text()))
    for steps, count in truth.items():
        values = {key: value for key, value in found.items() if labels[steps] in key}
        assert len(values) <= 50
        assert values["stepflame_step_duration_seconds_count{%s}" % labels[steps]] == count - 1
        buckets = [value for key, value in values.items() if "_bucket" in key]
        assert buckets == sorted(buckets) and buckets[-1] == count - 1 and len(buckets) == 13
        phases = sum(value for key, value in values.items() if "phase_seconds" in key)
        assert abs(phases - values["stepflame_step_duration_seconds_sum{%s}" % labels[steps]]) <= 0.02 * phases + 0.2
        assert abs(values["stepflame_last_step_timestamp_seconds{%s}" % labels[steps]] - time.time()) < 60
    assert not [key for key, value in found.items() if not re.fullmatch(r'[a-z_]+(\{([a-z]+="[ -~]*",?)+\})?', key)]
    if shutil.which("promtool"):
        check = subprocess.run(["promtool", "check", "metrics"], input=path.read_bytes(), capture_output=True)
        assert check.returncode == 0, check.stdout + check.stderr
    watch.end()
    assert not path.exists()


def test_metrics_in_rests(bench):
    """With a budget, steps in rests count, too; one may count twice where a rest begins or ends in it."""
    watch = Watch(bench, "--budget", "4")
    steps = Watched(bench)
    path = watch.state / "metrics.prom"
    watch.watches(steps)
    labels = '{job="pid %d",rank="pid %d"}' % (steps.pid, steps.pid)

    def value(name):
        return metrics_of(path).get("stepflame_%s%s" % (name, labels), 0) if path.exists() else 0

    helpers.until(END_SECONDS, lambda: value("rested_seconds_total") > 1, path.read_text, steps.job.delayed)
    steps.job.until_ran(0.5)
    truth = steps.truth()["steps"]
    helpers.until(END_SECONDS, lambda: truth <= value("steps_total") <= truth + 1, lambda: "%s\n%s" % (truth, path.read_text()))
    assert truth - value("step_duration_seconds_count") < 20  # those over the ends of rests
    watch.end()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def get(port, path):
    with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, path), timeout=END_SECONDS) as answer:
        return answer.read().decode()


def test_listen(bench):
    """What the file has, over HTTP; the address is told to be in use, and is free at once after a kill; hanging clients change nothing for the jobs."""
    port = free_port()
    address = "127.0.0.1:%d" % port
    watch = Watch(bench, "--listen", address)
    steps = Watched(bench)
    watch.watches(steps)
    key = 'stepflame_steps_total{job="pid %d",rank="pid %d"}' % (steps.pid, steps.pid)

    def scraped():
        return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in get(port, "/metrics").splitlines() if line[0] != "#")}

    hanging = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    helpers.until(END_SECONDS, lambda: scraped().get(key, 0) > 3, watch.process.what, steps.job.delayed)
    truth = steps.truth()["steps"]
    helpers.until(END_SECONDS, lambda: scraped().get(key) == truth, watch.process.what)
    assert set(scraped()) == set(metrics_of(watch.state / "metrics.prom")) and get(port, "/healthz") == "ok\n"
    for client in hanging:
        client.close()
    other = stepflame("watch", "--state", bench.directory / "other", "--listen", address)
    assert other.returncode == ERROR and "cannot listen on %s: Address already in use\n  fix: choose another port" % address in other.stderr, other
    watch.process.popen.kill()
    watch.process.wait()
    again = Watch(bench, "--listen", address)
    assert ask(again, "pause").returncode == OK
    with pytest.raises(urllib.error.HTTPError, match="503"):
        helpers.until(END_SECONDS, lambda: get(port, "/metrics") is None, again.process.what)
    again.end()


@pytest.mark.long
def test_hangs(bench):
    """A watch that hangs for a minute has no metrics: those of before would say that all jobs stand still."""
    port = free_port()
    watch = Watch(bench, "--listen", "127.0.0.1:%d" % port)

    def status(path):
        try:
            return "200 " + get(port, path)
        except urllib.error.HTTPError as error:
            return "%d %s" % (error.code, error.read().decode())

    helpers.until(END_SECONDS, lambda: status("/metrics").startswith("200 "), watch.process.what)
    watch.process.popen.send_signal(signal.SIGSTOP)
    for path in "/metrics", "/healthz":
        helpers.until(2 * END_SECONDS, lambda path=path: re.match("503 stepflame watch has said nothing for [67][0-9] s", status(path)), watch.process.what)
    watch.process.popen.send_signal(signal.SIGCONT)
    helpers.until(END_SECONDS, lambda: status("/metrics").startswith("200 ") and status("/healthz") == "200 ok\n", watch.process.what)
    watch.end()



@pytest.mark.long
def test_straggler(bench):
    """Of two ranks that wait for each other, one works 15 % longer from some time on: it is named, with its line; nothing is before."""
    watch = Watch(bench, "--trigger", "straggler")
    late, stop, meet = (bench.directory / name for name in ("late", "stop", "meet"))
    args = ["--late", late, "--stop", stop, "--meet", meet]
    env = {"TORCHELASTIC_RUN_ID": "run-a", "STEPFLAME_WATCH": "1"}
    ranks = [bench.job("late.py", *args, "--rank", rank, cold=True, env={**env, "RANK": str(rank)}) for rank in (0, 1)]
    for rank in ranks:
        rank.until_ready()
        watch.says("watches process %d, rank" % rank.pid)
    for rank in ranks:
        rank.release()
    time.sleep(30)
    assert "holds up" not in watch.process.stderr
    late.touch()
    watch.says(r"Kept as \S+-run-a-straggler\.rec: .")
    begun = time.time() - late.stat().st_mtime
    stop.touch()
    for rank in ranks:
        rank.truth()
    watch.end()
    said = re.search(r"job run-a: process (\d+) holds up the other ranks of its job since step \d+: its own work takes ([\d.]+) ms of a step, theirs ([\d.]+) ms\. Kept as (\S+): (.*)", watch.process.stderr)
    assert int(said[1]) == ranks[1].pid and 4 < float(said[2]) - float(said[3]) < 8, said
    assert re.match(r"rank 1: it is in collectives for .*waiting: sleep in (data|forward), at late.py:\d+ work$", said[5]), said
    assert mains(Path(said[4])) == {rank.pid for rank in ranks}
    print("named after %.0f s" % begun)


LEAVES = """
import os, pathlib, sys, time, torch
model, go, stop = torch.nn.Linear(8, 1), pathlib.Path(sys.argv[1]), time.monotonic() + 60
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
forked = False
while go.parent.exists() and time.monotonic() < stop:
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
    if go.exists() and not forked:
        forked = True
        if os.fork():
            break
        print("forked", os.getpid(), flush=True)
        stop = time.monotonic() + 10
"""


def test_leaves_to_child(bench):
    """A child that a job forks, and that trains when the job has ended, is a job that nobody gave twice."""
    watch, go = Watch(bench), bench.directory / "go"
    job = bench.process(helpers.PYTHON, "-c", LEAVES, go, env=dict(os.environ, STEPFLAME_WATCH="1"))
    watch.says("watches process %d" % job.pid)
    go.touch()
    helpers.until(END_SECONDS, lambda: re.search(r"forked (\d+)$", job.stdout, re.M), job.what)
    watch.says("watches process %s" % re.search(r"forked (\d+)", job.stdout)[1])
    watch.end()
    assert "given twice" not in watch.process.stderr, watch.process.stderr


@pytest.mark.long
def test_launcher(bench):
    """torchrun, which a watch sees from its first import on, is no process of its job."""
    watch = Watch(bench)
    go = bench.directory / "go"
    script = [helpers.JOBS / "ranks.py", "--ddp", "--batches", 60, "--wait", go, "--out", bench.directory / "truth"]
    words = [helpers.PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, *script]
    launcher = bench.process(*words, env=dict(os.environ, PYTHONUNBUFFERED="1", STEPFLAME_WATCH="1"))
    helpers.until(helpers.READY_SECONDS, lambda: len(re.findall(r"ready \d+$", launcher.stdout, re.M)) == 2, launcher.what)
    for pid in re.findall(r"ready (\d+)$", launcher.stdout, re.M):
        watch.says("watches process %s, rank" % pid)
    go.touch()
    assert launcher.wait() == 0, launcher.what()
    watch.end()
    assert "watches process %d:" % launcher.pid not in watch.process.stderr, watch.process.stderr


def test_left_out(bench):
    """STEPFLAME_WATCH=0, and a second watch."""
    watch = Watch(bench)
    alone = Watched(bench, "alone", env={"STEPFLAME_WATCH": "0"})
    watch.says(r"process %d \(\S+\) is left out" % alone.pid)
    result = stepflame("watch", "--state", watch.state)
    assert result.returncode == ERROR and "another stepflame watches already" in result.stderr, result
    alone.job.release()
    alone.job.until_ran(0.5)
    alone.job.kill()
    watch.end()
    assert alone.pid not in pids_of(watch.state / "ring.rec")


@pytest.mark.alone
def test_child_left_out(bench):
    """A program that a job starts with STEPFLAME_WATCH=0 has no samples but for the first moments; the job has."""
    watch = Watch(bench)
    spin = "import os, time\nwhile time.process_time() < 3: pass\nopen(%r, 'w').write(str(os.getpid()))" % str(bench.directory / "spun")
    steps = Watched(bench, args=["--start", spin])
    watch.watches(steps)
    helpers.until(END_SECONDS, lambda: (bench.directory / "spun").exists() and (bench.directory / "spun").read_text(), watch.process.what, steps.job.delayed)
    child = int((bench.directory / "spun").read_text())
    steps.truth()
    watch.end()
    samples = [r.pid for kind, r in recfile.read_records(watch.state / "ring.rec") if kind == "SAMPLE"]
    assert samples.count(child) < 19 < samples.count(steps.pid)  # of 57 and more


def test_killed(bench):
    """The job goes on; the next watch finds it again, and keeps what the killed one had."""
    steps = Watched(bench, "job")
    watch = Watch(bench).watches(steps)
    steps.job.until_ran(1)
    watch.process.popen.kill()
    watch.process.wait()
    again = Watch(bench)
    again.says("watches process %d" % steps.pid)
    steps.job.until_ran(1)
    assert steps.pid in pids_of(again.state / "ring-before.rec")
    again.end()
    steps.truth()
    assert steps.pid in pids_of(again.state / "ring.rec")


@pytest.mark.alone  # beside another that watches all jobs there would be breakpoints
def test_asked(bench):
    """status, trigger, pause and resume."""
    watch = Watch(bench, "--trigger", "stall=2s")
    steps = Watched(bench, "job")
    watch.watches(steps)
    steps.job.until_ran(1)

    def status():
        result = ask(watch, "status", "--json")
        assert result.returncode == OK and not result.stderr, result
        return json.loads(result.stdout)

    def mine():
        return [process for job in status()["jobs"] for process in job["processes"] if process["pid"] == steps.pid]

    [before] = mine()
    assert before["steps"] > 0 and before["last_step_s"] >= 0 and before["rank"] is None
    said = ask(watch, "status").stdout
    assert re.search(r"^pid %d +%d +- +\d+  \d+\.\d s ago$" % (steps.pid, steps.pid), said, re.M)
    (shown,) = [lines for _, command, lines in documented.samples(helpers.ROOT / "docs/watch.md") if command == "stepflame watch status"]
    assert documented.shapes(shown) <= documented.shapes(said.splitlines())
    files = set()  # also those of one second
    for name in steps.pid, "pid %d" % steps.pid:
        result = ask(watch, "trigger", name)
        kept = Path(result.stdout.strip())
        assert result.returncode == OK and kept.parent == watch.state / "events" and mains(kept) == {steps.pid}, result
        assert kept not in files
        files.add(kept)
        assert kept.with_suffix(".txt").read_text().startswith("Recorded")
    for name, says in ((os.getpid(), "no job that runs goes by"), ("\x1b[31m", "goes by '\\x1b[31m'"), ("x" * 300, "no job has a name of that length")):
        result = ask(watch, "trigger", name)
        assert result.returncode == ERROR and says in result.stderr and "\x1b" not in result.stderr, result
    assert "fix: stepflame watch --state %s status shows the jobs" % watch.state in ask(watch, "trigger", os.getpid()).stderr
    assert helpers.breakpoints(steps.pid)
    (watch.state / "events").rename(watch.state / "elsewhere")
    result = ask(watch, "trigger", steps.pid)
    assert result.returncode == ERROR and "could not be kept" in result.stderr, result
    (watch.state / "elsewhere").rename(watch.state / "events")

    assert ask(watch, "pause").stdout == "paused: all jobs are left alone\n"
    time.sleep(3)  # longer than what makes a stall
    assert ask(watch, "resume").stdout == "resumed\n"
    helpers.until(END_SECONDS, lambda: mine() and mine()[0]["steps"], watch.process.what)
    [first] = mine()
    helpers.until(END_SECONDS, lambda: mine()[0]["steps"] > first["steps"], watch.process.what)
    assert "ended no" not in watch.process.stderr and not status()["events"]["stall"]["kept"] + status()["events"]["stall"]["not_kept"]
    assert ask(watch, "pause").stdout == "paused: all jobs are left alone\n"
    assert status()["paused"] and not helpers.breakpoints(steps.pid) and not mine()
    assert "the watch is paused" in ask(watch, "trigger", steps.pid).stderr
    assert "no job is watched (stepflame watch --state %s resume)" % watch.state in ask(watch, "status").stdout
    watch.end()
    again = Watch(bench)
    again.says("leaves all jobs alone, while there is")
    (again.state / "paused").unlink()  # by hand, as `touch` pauses
    again.says("watches process %d" % steps.pid)
    steps.job.until_ran(0.5)
    helpers.until(END_SECONDS, lambda: [row for row in json.loads(ask(again, "status", "--json").stdout)["jobs"] if row["processes"][0]["steps"]], again.process.what)
    (again.state / "paused").touch()
    again.says("has left all jobs")
    assert ask(again, "resume").stdout == "resumed\n"
    again.process.until_says(r"(?s)left all jobs.*watches process %d" % steps.pid, END_SECONDS, "stderr")
    again.end()
    assert "slow" not in again.process.stderr  # the pause is no step
    steps.truth()
    result = ask(watch, "status")
    assert result.returncode == ERROR and "nobody watches" in result.stderr and "fix: start it: stepflame watch --state %s;" % watch.state in result.stderr, result


def children_of(pid):
    return [int(child) for thread in Path("/proc/%d/task" % pid).iterdir() for child in (thread / "children").read_text().split()]


@pytest.mark.alone  # beside another that watches all jobs there would be breakpoints
def test_one_paused(bench):
    """Of two jobs, one is left alone with its workers, also by the next watch, until it is resumed; the steps of the other go on."""
    stop = bench.directory / "stop"
    one = bench.job("ticking.py", "--stop", stop, "--workers", 2, cold=True, env={"STEPFLAME_WATCH": "1"})
    watch = Watch(bench, "--last", "5m", "--trigger", "stall=2s", "--trigger", "slow=2s")
    other = Watched(bench)
    one.until_ready()
    watch.watches(other)
    watch.says("watches process %d" % one.pid)
    one.release()

    def probed():
        return [pid for pid in [one.pid, *children_of(one.pid)] if helpers.breakpoints(pid)]

    def jobs(of):
        status = json.loads(ask(of, "status", "--json").stdout)["jobs"]
        return {process["pid"]: (job["paused"], process["steps"]) for job in status for process in job["processes"]}

    def steps_go_on(of, pid):
        before = jobs(of).get(pid, (False, 0))[1]
        helpers.until(END_SECONDS, lambda: jobs(of).get(pid, (False, 0))[1] > before + 3, of.process.what)

    steps_go_on(watch, one.pid)
    steps_go_on(watch, other.pid)
    assert len(probed()) == 3
    said = ask(watch, "pause", one.pid)
    assert said.returncode == OK and said.stdout == "paused: job pid %d is left alone\n" % one.pid, said
    assert not probed() and helpers.breakpoints(other.pid)
    paused = jobs(watch)
    assert paused[one.pid][0] and not paused[other.pid][0]
    assert re.search(r"^pid %d +%d +- +\d+  paused$" % (one.pid, one.pid), ask(watch, "status").stdout, re.M)
    one.until_ran(3)
    steps_go_on(watch, other.pid)
    assert jobs(watch)[one.pid] == paused[one.pid] and not probed()
    series = {}
    helpers.until(END_SECONDS, lambda: series.update(metrics_of(watch.state / "metrics.prom")) or 'stepflame_rested_seconds_total{job="pid %d",rank="pid %d"}' % (one.pid, one.pid) in series, watch.process.what)
    assert 'stepflame_last_step_timestamp_seconds{job="pid %d",rank="pid %d"}' % (one.pid, one.pid) not in metrics_of(watch.state / "metrics.prom")
    assert ask(watch, "resume", "pid %d" % one.pid).stdout == "resumed: job pid %d\n" % one.pid
    steps_go_on(watch, one.pid)
    assert len(probed()) == 3 and not jobs(watch)[one.pid][0]
    kept = Path(ask(watch, "trigger", one.pid).stdout.strip())

    ask(watch, "pause", one.pid)
    ask(watch, "pause", other.pid)
    ask(watch, "pause")
    ask(watch, "resume")
    for steps in (one, other):
        watch.says("job pid %d, which is paused: watches process" % steps.pid)
    watch.end()
    again = Watch(bench)
    for steps in (one, other):
        again.says("job pid %d, which is paused: watches process" % steps.pid)
    assert not helpers.breakpoints(other.pid)
    ask(again, "resume", other.pid)
    steps_go_on(again, other.pid)
    assert not probed() and jobs(again)[one.pid][0]
    assert "goes by '1'" in ask(again, "pause", 1).stderr
    ask(again, "resume", one.pid)
    steps_go_on(again, one.pid)
    again.end()
    assert not probed() and not helpers.breakpoints(other.pid)
    events = [line for line in watch.process.stderr.splitlines() if re.search("job pid %d: .*( took |ended no)" % one.pid, line)]
    assert not events, events  # the pause is neither
    stop.touch()
    ticks = one.truth()["ticks"]
    other.truth()
    report = helpers.report(kept, "--steps")
    assert report["window"]["rests"] == 1 and "Paused" in helpers.report_text(kept)
    check_steps(report, start_of(kept), ticks)


@pytest.mark.alone
def test_renewed(bench):
    """When no job runs, a new ring begins; the next job is found, and is alone in it."""
    watch = Watch(bench, "--renew", "1s")
    first = Watched(bench, "first")
    watch.watches(first)
    first.job.until_ran(1)
    first.truth()
    before = watch.state / "ring-before.rec"
    helpers.until(END_SECONDS, before.exists, watch.process.what)
    assert first.pid in pids_of(before)
    second = Watched(bench, "second")
    watch.watches(second)
    second.job.until_ran(1)
    second.job.kill()  # its end is kept before the ring goes
    assert mains(watch.kept("end", second)) == {second.pid}
    helpers.until(END_SECONDS, lambda: second.pid in pids_of(before), watch.process.what)
    assert first.pid not in pids_of(before)
    watch.end()


@pytest.mark.alone
def test_enough(bench):
    """One event of a job is kept; the next is too soon. At most so many an hour."""
    watch = Watch(bench, *TRIGGERS[:2], "--trigger", "end", "--per-hour", "1", "--quiet", "1h")
    steps = Watched(bench, "job")
    watch.watches(steps)
    steps.job.until_ran(1)
    steps.sleep(SLOW_SECONDS)
    watch.kept("slow", steps)
    steps.sleep(SLOW_SECONDS)
    watch.says("process %d took [0-9.]+ s;.*Not kept" % steps.pid)
    steps.job.kill()
    watch.says("process %d ended after step.*Not kept" % steps.pid)
    watch.end()
    assert len(os.listdir(watch.state / "events")) == 2


def test_not_kept(bench):
    """What cannot be kept counts as not kept, and the next event of the job is kept, however soon it comes."""
    watch = Watch(bench, *TRIGGERS, "--quiet", "1h")
    steps = Watched(bench, "job")
    watch.watches(steps)
    steps.job.until_ran(1)
    (watch.state / "events").rmdir()
    steps.sleep(SLOW_SECONDS)
    watch.says("process %d took [0-9.]+ s;.*cannot be kept as .*No such file" % steps.pid)
    (watch.state / "events").mkdir()

    def counted():
        events = json.loads(ask(watch, "status", "--json").stdout)["events"]["slow"]
        return events if sum(events.values()) else None

    assert helpers.until(END_SECONDS, counted, watch.process.what) == {"kept": 0, "not_kept": 1}
    steps.sleep(SLOW_SECONDS)
    watch.kept("slow", steps)
    steps.truth()
    watch.end()


def test_kept_without_event(bench):
    """--keep-every: each job, again and again, as a recording of its own."""
    watch = Watch(bench, *TRIGGERS, "--keep-every", "10s")
    steps = Watched(bench, "job")
    watch.watches(steps)
    kept = helpers.until(END_SECONDS, lambda: [file for file in sorted((watch.state / "events").glob("*-pid-%d-regular.rec" % steps.pid)) if file.with_suffix(".txt").exists()][1:], watch.process.what)
    assert mains(kept[0]) == {steps.pid} and stepflame("diff", kept[0], kept[0]).returncode == OK
    # what it says that it takes has the children that kept them
    ticks = [int(field) for field in Path("/proc/%d/stat" % watch.process.pid).read_text().rpartition(")")[2].split()[11:15]]
    assert sum(ticks[2:]) > 0 and json.loads(ask(watch, "status", "--json").stdout)["cpu_s"] >= sum(ticks) / os.sysconf("SC_CLK_TCK") - 0.05
    steps.truth()
    watch.end()


@pytest.mark.alone
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
def test_full_disk(bench):
    """--leave-free: what others need of the disk is left to them, and the watch goes on when there is room again."""
    disk = bench.directory / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64M", "none", disk], check=True)
    try:
        watch = Watch(bench, "--leave-free", "16M", state=disk / "state")
        steps = Watched(bench, "job")
        watch.watches(steps)
        (disk / "big").write_bytes(bytes(50 << 20))
        watch.says("pauses, and has left all jobs: the disk of .* is nearly full")
        assert not helpers.breakpoints(steps.pid) and not (watch.state / "metrics.prom").exists()
        assert "until its disk has room again" in ask(watch, "status").stdout
        (disk / "big").unlink()
        watch.process.until_says(r"(?s)has room again.*watches process %d" % steps.pid, END_SECONDS, "stderr")
        steps.truth()
        watch.end()
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.alone
def test_room_for_events(bench):
    """--keep-size: the oldest go, the last stays."""
    watch = Watch(bench, *TRIGGERS[:2], "--keep-size", "1K", "--quiet", "1ms", "--per-hour", "9")
    events = watch.state / "events"
    for name in ("20200101-000000-old-slow.rec", "20200101-000000-old-slow.txt", "README"):
        (events / name).write_text("x" * 2000)
    steps = Watched(bench, "job")
    watch.watches(steps)
    steps.job.until_ran(1)
    steps.sleep(SLOW_SECONDS)
    kept = watch.kept("slow", steps)
    steps.truth()
    watch.end()
    assert {file.name for file in events.iterdir()} == {kept.name, kept.with_suffix(".txt").name, "README"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--last", "10ms"], "1s or more"),
        (["--ring-size", "1K"], "1M or more"),
        (["--trigger", "never"], "--trigger wants"),
        (["--per-hour", "0"], "--per-hour wants"),
        (["--keep-every", "1s"], "10s or more"),
        (["--leave-free", "much"], "is not a size"),
        (["-F", "x"], "-F wants"),
        (["more"], "takes no argument"),
        (["status", "more"], "takes no argument"),
        (["pause", "a", "b"], "takes no argument"),
        (["--config", "/nonexistent"], "cannot use /nonexistent"),
        (["trigger", "a", "b"], "takes no argument"),
        (["--json"], "--json is for"),
    ],
)
def test_usage(tmp_path, options, says):
    result = stepflame("watch", "--state", tmp_path / "state", *options)
    assert result.returncode == helpers.USAGE and says in result.stderr, result
    assert not (tmp_path / "state").exists()


def test_service(bench):
    """What sd_notify(3) would tell systemd."""
    path = bench.directory / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(END_SECONDS)
        watch = Watch(bench, env=dict(os.environ, NOTIFY_SOCKET=str(path)))
        assert manager.recv(64) == b"READY=1"
        watch.end()
        assert manager.recv(64) == b"STOPPING=1"


def test_duration(tmp_path):
    result = stepflame("watch", "--state", tmp_path, "-d", "300ms")
    assert result.returncode == OK and (tmp_path / "ring.rec").stat().st_size > 0, result


def test_bad_folder(tmp_path):
    (tmp_path / "file").touch()
    result = stepflame("watch", "--state", tmp_path / "file")
    assert result.returncode != OK and "fix:" in result.stderr, result


@pytest.mark.parametrize("name", ["lock", "control", "ring-before.rec"])
def test_name_in_the_way(tmp_path, name):
    """What is no file of a watch is told by name, and left as it is."""
    (tmp_path / "ring.rec").write_bytes(b"x")
    (tmp_path / name).mkdir()
    result = stepflame("watch", "--state", tmp_path, "-d", "300ms")
    assert result.returncode == ERROR and "cannot use %s/%s: " % (tmp_path, name) in result.stderr and "fix: move it away" in result.stderr, result
    assert (tmp_path / name).is_dir() and (tmp_path / "ring.rec").read_bytes() == b"x"


def test_folder_of_another_version(bench):
    """Its files are taken over or left alone, and nothing of them is waited for."""
    state = bench.directory / "state"
    state.mkdir(mode=0o700)
    (state / "ring.rec").write_bytes(b"of another version")
    (state / "unknown").write_text("to another version")
    (state / "control").write_text("no socket")
    (state / "metrics.prom").mkdir()
    os.mkfifo(state / "paused-jobs")
    watch = Watch(bench, state=state)
    steps = Watched(bench)
    watch.watches(steps)
    watch.says("cannot write .*metrics.prom: Is a directory")
    [job] = [job for job in json.loads(ask(watch, "status", "--json").stdout)["jobs"] if job["processes"][0]["pid"] == steps.pid]
    assert not job["paused"]
    steps.truth()
    watch.end()
    assert (state / "ring-before.rec").read_bytes() == b"of another version" and (state / "unknown").read_text() == "to another version"
    refused = stepflame("report", state / "ring-before.rec")
    assert refused.returncode != OK and "is not a stepflame recording" in refused.stderr, refused


@pytest.mark.alone
@needs_namespace
def test_brief_processes(bench):
    """As many as the machine forks, each with a library of torch's name, for half of a second: none is attached to; those that were seen are counted; a job beside them is watched."""
    library, stop, truth = bench.directory / "libtorch_cpu.so", bench.directory / "stop", bench.directory / "brief"
    library.write_bytes(bytes(8192))
    state = bench.directory / "state"
    brief = [sys.executable, helpers.JOBS / "brief.py", "--library", library, "--live", 0.5, "--stop", stop, "--out", truth]
    watch = [helpers.STEPFLAME, "watch", "--state", state, "--leave-free", "1K"]
    host = Host(bench, "STEPFLAME_WATCH=1", script=helpers.JOBS / "paced.py", args=["--stop", stop], beside=[watch, brief])
    [pid] = host.pids
    host.process.until_says("watches process %d" % pid, END_SECONDS, "stderr")
    host.go.touch()

    def value(name):
        return metrics_of(state / "metrics.prom").get(name, 0) if (state / "metrics.prom").exists() else 0

    helpers.until(END_SECONDS, lambda: value("stepflame_missed_processes_total") > 10, host.process.what)
    helpers.until(END_SECONDS, lambda: value('stepflame_steps_total{job="pid %d",rank="pid %d"}' % (pid, pid)) > 100, host.process.what)
    stop.touch()
    helpers.until(END_SECONDS, truth.exists, host.process.what)
    told = json.loads(truth.read_text())
    assert value("stepflame_missed_processes_total") <= told["started"]
    assert re.findall(r"watches process (\d+)", host.process.stderr) == [str(pid)] and "ended before it could be recorded" not in host.process.stderr
    print("%.0f a second" % (told["started"] / told["seconds"]))
