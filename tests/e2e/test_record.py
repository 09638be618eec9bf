# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How recordings begin and end, and that nothing that happens to stepflame happens to the job."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import helpers
import pytest
import recfile

pytestmark = helpers.needs_bpf

STEP = "Optimizer.step#SGD.step"
LOOP = "plain_loop.py"
WAKE_SECONDS = 0.1  # between two looks at the clock
EPOCHS = 30  # of which it is known what they compute: a second or two


@pytest.fixture(scope="module")
def known_weights(tmp_path_factory):
    """What the loop computes when nobody watches, by epoch."""
    bench = helpers.Bench(tmp_path_factory.mktemp("alone"))
    job = bench.job(LOOP, "--epochs", EPOCHS, "--batches", 50).until_ready()
    job.release()
    yield job.truth()["weights"]
    bench.close()


class Endless:
    """The loop, which trains until it is told to end, and computes what it does when nobody watches."""

    def __init__(self, bench, known_weights, *args):
        self.stop, self.known = bench.directory / "stop", known_weights
        self.job = bench.job(LOOP, "--epochs", 10**6, "--batches", 50, "--stop", self.stop, *args).until_ready()
        self.pid = self.job.pid

    def release(self):
        self.job.release()
        return self

    def until_ran(self, *seconds):
        self.job.until_ran(*seconds)

    def check(self):
        assert self.job.running(), self.job.what()
        self.stop.touch()
        weights = self.job.truth()["weights"]
        assert weights[:EPOCHS] == self.known[: len(weights)]


@pytest.fixture
def endless(bench, known_weights):
    return Endless(bench, known_weights)


def steps_of(file):
    return helpers.actions(helpers.report(file, "--all"))[STEP]["count"]


def release(record, go):
    """What a command does that `record --` has started: once its probes are there."""
    pid = int(record.until_says(r"^ready (\d+)", helpers.READY_SECONDS, "stdout")[1])
    helpers.until(helpers.ARMED_SECONDS, lambda: any("libtorch_cpu" in file for file, _ in helpers.breakpoints(pid)), record.what, record.delayed)
    go.touch()


@pytest.mark.parametrize("waits", [True, False], ids=["waits", "at once"])
def test_launched(bench, waits):
    """`record -- CMD` sees the first call, and leaves the command's own output alone."""
    out, go = bench.directory / "truth", bench.directory / "go"
    record = bench.record("--", helpers.COLD_PYTHON, helpers.JOBS / LOOP, "--labels", "--out", out, *(["--wait", go] if waits else []))
    if waits:
        release(record, go)
    assert record.wait() == helpers.OK, record.what()
    truth = json.loads(out.read_text())
    rows = helpers.actions(helpers.report(record.file, "--all"))
    assert rows[STEP]["count"] == truth["steps"]
    assert rows["my label"]["count"] == truth["steps"]
    assert "ready %d" % truth["pid"] in record.stdout


@pytest.mark.parametrize(
    "how, code", [("exit", 7), ("SIGKILL", 128 + 9), *(pytest.param(*of, marks=pytest.mark.long) for of in (("raise", 1), ("SIGTERM", 128 + 15)))]
)
def test_launched_exit_status(bench, how, code):
    go = bench.directory / "go"
    record = bench.record("--", helpers.COLD_PYTHON, helpers.JOBS / "dies.py", "--how", how, "--batches", 50, "--wait", go)
    release(record, go)
    assert record.wait() == code, record.what()
    assert steps_of(record.file) == 50


def test_launched_not_there(bench):
    record = bench.record("--", bench.directory / "no such program")
    assert record.wait() == 127, record.what()  # as a shell has it
    assert "no such program" in record.stderr and "fix:" in record.stderr


def test_launched_outlives_the_recording(bench):
    """-d ends the recording, not the command."""
    out = bench.directory / "truth"
    record = bench.record("-d", "500ms", "--", helpers.COLD_PYTHON, helpers.JOBS / LOOP, "--out", out)
    assert record.wait() == helpers.OK, record.what()
    assert json.loads(out.read_text())["steps"] == 200


def test_duration(bench, endless):
    endless.release()
    for time_given, seconds in (("1s", 1), ("1500ms", 1.5), ("1", 1)):
        record = bench.record("-p", endless.pid, "-d", time_given).until_armed()
        due = time.monotonic() + seconds - WAKE_SECONDS  # at the latest
        before = behind = record.delayed()
        while record.running():
            behind = max(behind, record.delayed())
            if time.monotonic() < due:
                before = behind
            time.sleep(0.01)
        assert record.wait() == helpers.OK, record.what()
        found = helpers.report(record.file)
        # it cannot end before it has a CPU
        assert 0 <= found["window"]["seconds"] - seconds <= WAKE_SECONDS + behind - before, (found["window"], before, behind)
        assert found["window"]["steps"] > 0
    endless.check()


def test_steps_lightning(bench):
    job = bench.job("lightning_fit.py", "--batches", 300).until_ready()
    record = bench.record("-p", job.pid, "--steps", 20).until_armed()
    job.release()
    assert record.wait() == helpers.OK, record.what()
    found = helpers.report(record.file)
    assert found["window"]["steps"] == 20
    assert helpers.actions(found)["run_training_batch"]["count"] == 20
    job.truth()


def test_steps_plain(bench, endless):
    record = bench.record("-p", endless.pid, "--steps", 20).until_armed()
    endless.release()
    assert record.wait() == helpers.OK, record.what()
    assert helpers.report(record.file)["window"]["steps"] == 20
    assert steps_of(record.file) == 20
    endless.check()


def test_in_the_middle(bench, endless):
    """Attached while it trains: what had begun before is counted, and no call has a time from before."""
    endless.release()
    endless.until_ran()
    record = bench.record("-p", endless.pid).until_armed()
    endless.until_ran(0.5)
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()
    found = helpers.report(record.file, "--all")
    assert found["window"]["steps"] > 0
    assert all(row["max_s"] <= found["window"]["seconds"] for row in found["actions"])
    endless.check()


def test_interrupt(bench, endless):
    record = bench.record("-p", endless.pid).until_armed()
    endless.release()
    endless.until_ran()
    record.interrupt()
    assert record.wait(10) == helpers.OK, record.what()
    assert steps_of(record.file) > 0
    endless.check()


def test_second_interrupt(bench, endless):
    endless.release()
    for pause in (0, 0.01, 0.1):
        record = bench.record("-p", endless.pid).until_armed()
        endless.until_ran()
        record.interrupt()
        time.sleep(pause)  # clock: any moment will do
        record.interrupt()
        # that the second came too late is no error; nor is it that what was recorded is there
        assert record.wait(10) == helpers.OK, record.what()
        helpers.report(record.file)
    endless.check()


def has_actions(file):
    result = helpers.stepflame("report", file, "--all", "--json")
    return result.returncode == helpers.OK and json.loads(result.stdout)["actions"]


def test_killed(bench, endless):
    """kill -9 at many moments of its life, the arming among them: the job runs on, with no probe left in it, to the same end."""
    endless.release()
    assert not helpers.breakpoints(endless.pid)
    for pause in (0.0, 0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5):
        record = bench.record("-p", endless.pid)
        time.sleep(pause)  # clock: any moment will do
        record.popen.send_signal(signal.SIGKILL)
        record.wait()
    record = bench.record("-p", endless.pid).until_armed()
    assert helpers.breakpoints(endless.pid)
    # what was flushed while it recorded is there
    helpers.until(helpers.END_SECONDS, lambda: has_actions(record.file), record.what)
    record.kill()
    # probes are taken away behind us when the process was killed
    helpers.until(10, lambda: not helpers.breakpoints(endless.pid), lambda: str(helpers.breakpoints(endless.pid)))
    assert helpers.report(record.file, "--all")["actions"]
    endless.check()


@pytest.mark.parametrize("how", ["exit", "_exit", "raise", "SIGKILL", "SIGABRT"])
def test_target_ends(bench, how):
    """A target that ends, however and in whatever, ends the recording."""
    job = bench.job("dies.py", "--how", how, "--inside").until_ready()
    record = bench.record("-p", job.pid).until_armed()
    job.release()
    job.wait()
    assert record.wait(10) == helpers.OK, record.what()
    assert steps_of(record.file) == 199


def test_several_targets(bench):
    """Of one -p or of several, one of them twice; and two stepflames on one job do not disturb each other."""
    jobs = [bench.job(LOOP, "--seed", seed).until_ready() for seed in (1, 2)]
    first, second = (job.pid for job in jobs)
    ways = (["-p", "%d,%d" % (first, second)], ["-p", first, "-p", second, "-p", first])
    records = [bench.record(*way).until_armed() for way in ways]
    for job in jobs:
        job.release()
    steps = sum(job.truth()["steps"] for job in jobs)
    for record in records:
        assert record.wait() == helpers.OK, record.what()
        found = helpers.report(record.file, "--all")
        assert {target["pid"] for target in found["target"]} == {first, second}
        assert helpers.actions(found)[STEP]["count"] == steps


def test_another_job_is_not_seen(bench):
    """A process with the same libraries that is no target: probes are on the file, rows are not."""
    job, other = (bench.job(LOOP).until_ready() for _ in range(2))
    record = bench.record("-p", job.pid).until_armed()
    other.release()
    other.truth()
    job.release()
    steps = job.truth()["steps"]
    assert record.wait() == helpers.OK, record.what()
    assert steps_of(record.file) == steps


def test_ps_shows_what_a_program_started(bench):
    """A program that another one with torch has started is none of its workers; what that one forked is."""
    inner = "import os, sys, torch; child = os.fork(); print('ready' if child else 'forked', flush=True); sys.stdin.read()"
    outer = "import subprocess, sys, torch; subprocess.run([sys.executable, '-c', %r])" % inner
    job = bench.process(helpers.PYTHON, "-c", outer, stdin=subprocess.PIPE).until_ready()
    job.until_says(r"^forked$", helpers.READY_SECONDS, "stdout")
    (started,) = Path("/proc/%d/task/%d/children" % (job.pid, job.pid)).read_text().split()
    rows = {row[0]: row for row in map(str.split, helpers.stepflame("ps").stdout.splitlines()) if row}
    assert rows[str(job.pid)][2] == "0" and rows[started][2] == "1"


@pytest.mark.parametrize("early", [False, True], ids=["under the tracer", "before it"])
def test_children(bench, early):
    record, truth = bench.recorded("fork_job.py", *(["--early"] if early else []), options=["--children", "all"], cold=not early)
    found = helpers.report(record.file, "--all", "--per-rank")
    processes = {process["pid"]: process for process in found["processes"]}
    assert processes[truth["pid"]]["role"] == "main"
    assert helpers.actions(processes[truth["pid"]])[STEP]["count"] == truth["steps"]
    for kind in ("fork", "multiprocessing"):
        child = processes[truth["children"][kind]]
        assert child["role"] != "main"
        assert helpers.actions(child)[STEP]["count"] == truth["child_steps"][kind]
    # the table of the job is that of its main process
    assert helpers.actions(found)[STEP]["count"] == truth["steps"]


CHILDREN = """
import os, sys, time
import torch
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
for _ in range(%d):
    pid = os.fork()
    if not pid:
        time.sleep(0.02)
        os._exit(0)
    os.waitpid(pid, 0)
print("over", flush=True)
time.sleep(60)
"""


def processes_known(record):
    """How many processes BPF knows: of its map `procs`, found by its size among those that are open in stepflame."""
    for fd in Path("/proc/%d/fdinfo" % record.pid).iterdir():
        info = dict(line.split(":\t") for line in fd.read_text().splitlines() if ":\t" in line)
        if (info.get("map_type"), info.get("key_size"), info.get("max_entries")) == ("1", "4", "4096"):
            command = [shutil.which("bpftool", path="/usr/sbin:/sbin:" + os.environ["PATH"]), "-j", "map", "dump", "id"]
            return len(json.loads(subprocess.check_output([*command, info["map_id"]])))
    raise AssertionError("no map of processes")


def test_children_that_ended_are_forgotten(bench):
    """There is room for 4,096, and a job may have any number of them, one after the other."""
    go = bench.directory / "go"
    job = bench.process(helpers.PYTHON, "-c", CHILDREN % 30, go).until_ready()
    record = bench.record("-p", job.pid, "-F", "0").until_armed()
    go.touch()
    job.until_says("over", helpers.END_SECONDS, "stdout")
    helpers.until(5, lambda: processes_known(record) == 1, lambda: "%d are known" % processes_known(record))
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()


def test_no_children(bench):
    record, truth = bench.recorded("fork_job.py", options=["--children", "none"])
    assert [target["pid"] for target in helpers.report(record.file)["target"]] == [truth["pid"]]
    assert steps_of(record.file) == truth["steps"]


def test_live_is_later(shared):
    """The table that record prints is the one that report prints of its file."""
    record, _ = shared.recorded("lightning_fit.py")
    assert record.stdout == helpers.report_text(record.file)
    assert "stepflame report" in record.stderr


def test_default_file(bench):
    """Without -o and without FILE: stepflame.rec."""
    job = bench.job(LOOP, "--epochs", 1).until_ready()
    record = bench.process(helpers.STEPFLAME, "record", "-p", job.pid, cwd=bench.directory)
    record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
    job.release()
    job.truth()
    assert record.wait() == helpers.OK, record.what()
    assert (bench.directory / "stepflame.rec").stat().st_size > 0
    assert helpers.stepflame("report", cwd=bench.directory).stdout == record.stdout


HOW_IT_ENDS = ("is cut off after", "is damaged behind its first", "goes on behind its last snapshot")


def report_of(file):
    """(what is printed with --json, whether it is said that the file does not end as it should)"""
    result = helpers.stepflame("report", file, "--all", "--json")
    assert result.returncode == helpers.OK, result
    return result.stdout, any(how in result.stderr for how in HOW_IT_ENDS)


def test_cut_recording(shared, tmp_path):
    """Cut anywhere, a recording reports what it holds up to its last whole snapshot, and says that it is cut; with none it is an error."""
    record, _ = shared.recorded("lightning_fit.py")
    whole = record.file.read_bytes()
    header, *ends = recfile.chunk_ends(record.file)
    marks = list(recfile.snapshot_ends(record.file))
    assert header == 24 and marks[-1] == ends[-1] == len(whole) and len(marks) > 1
    file, sound = tmp_path / "cut.rec", tmp_path / "sound.rec"
    for cut in (0, 1, 7, 8, 16, header - 1, header, header + 16, ends[0] - 1):
        file.write_bytes(whole[:cut])
        helpers.check_message(helpers.stepflame("report", file), helpers.ERROR)
    near_ends = {end + i for end in ends for i in (-1, 0, 1, 16)}
    for cut in sorted({len(whole) // 3, len(whole) // 2, len(whole) - 100, *near_ends}):
        if marks[0] <= cut <= len(whole):
            file.write_bytes(whole[:cut])
            before = max(end for end in marks if end <= cut)
            sound.write_bytes(whole[:before])
            assert report_of(sound) == (report_of(sound)[0], False)
            assert report_of(file) == (report_of(sound)[0], cut != before), cut
    # damage in the last chunk keeps the snapshots before it
    file.write_bytes(whole[:-20] + bytes(20))
    sound.write_bytes(whole[: marks[-2]])
    assert report_of(file) == (report_of(sound)[0], True)


def test_owner_under_sudo(bench):
    job = bench.job(LOOP, "--epochs", 1).until_ready()
    file = bench.directory / "owned.rec"
    command = [helpers.STEPFLAME, "record", "-p", job.pid, "-o", file]
    record = bench.process(*command, env=dict(os.environ, SUDO_UID="1234", SUDO_GID="2345"))
    record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
    job.release()
    job.truth()
    assert record.wait() == helpers.OK, record.what()
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 2345)


def test_launched_with_nowhere_to_write(bench):
    """Known before anything runs, so the command is not started."""
    out = bench.directory / "truth"
    record = bench.record("--", helpers.COLD_PYTHON, helpers.JOBS / LOOP, "--out", out, output="/dev/full")
    assert record.wait() == helpers.ERROR, record.what()
    assert not out.exists()


NAMESPACE = ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "sh", "-c"]


def test_job_in_a_pid_namespace(bench):
    """Recorded from outside: the job is process 1 to itself."""
    out, go = bench.directory / "truth", bench.directory / "go"
    script = 'exec "%s" "%s" --wait "%s" --out "%s"' % (helpers.COLD_PYTHON, helpers.JOBS / LOOP, go, out)
    job = bench.process(*NAMESPACE, script).until_ready()
    pid = int(open("/proc/%d/task/%d/children" % (job.pid, job.pid)).read())
    record = bench.record("-p", pid).until_armed()
    go.touch()
    assert record.wait() == helpers.OK, record.what()
    assert json.loads(out.read_text())["steps"] == steps_of(record.file)
    assert helpers.report(record.file)["target"][0]["pid"] == pid


def test_record_in_a_pid_namespace(bench):
    """stepflame and the job both in it: the kernel's numbers are not theirs."""
    out, file = bench.directory / "truth", bench.directory / "inside.rec"
    go, err, said = bench.directory / "go", bench.directory / "err", bench.directory / "said"
    script = """
        "%s" "%s" --wait "%s" --out "%s" >"%s" & job=$!
        until grep -q ready "%s"; do sleep 0.2; done
        "%s" record -p $job -o "%s" >/dev/null 2>"%s"
        wait""" % (helpers.PYTHON, helpers.JOBS / LOOP, go, out, said, said, helpers.STEPFLAME, file, err)
    shell = bench.process(*NAMESPACE, script)
    helpers.until(helpers.END_SECONDS, lambda: err.exists() and "armed" in err.read_text(), shell.what)
    go.touch()
    assert shell.wait() == helpers.OK, shell.what()
    assert json.loads(out.read_text())["steps"] == steps_of(file)


def test_launched_by_a_launcher(bench):
    """A shell, or torchrun, that starts what trains: its rows are those of the job."""
    out, go = bench.directory / "truth", bench.directory / "go"
    command = "'%s' '%s' --labels --wait '%s' --out '%s'; true" % (helpers.COLD_PYTHON, helpers.JOBS / LOOP, go, out)
    record = bench.record("--", "sh", "-c", command)
    release(record, go)
    assert record.wait() == helpers.OK, record.what()
    truth = json.loads(out.read_text())
    found = helpers.report(record.file, "--all", "--per-rank")
    assert helpers.actions(found)[STEP]["count"] == truth["steps"]
    (trains,) = [process for process in found["processes"] if process["pid"] == truth["pid"]]
    assert trains["role"] == "main"
