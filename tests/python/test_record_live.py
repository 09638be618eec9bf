# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stepflame.record and stepflame.attach on real loops of torch: the recording has the steps that the job counted, and the job noticed nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import helpers
import pytest
from test_capabilities import as_user

import stepflame

pytestmark = helpers.needs_bpf
SCRIPT = Path(__file__).parent / "jobs/self_recorded.py"
STEPS = 20  # of the script


def left_behind(word):
    """Processes of stepflame, or those that watch it, that have the word in their command line."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if any("supervisor.py" in part or part == "stepflame" for part in helpers.command_of(pid)) and any(str(word) in part for part in helpers.command_of(pid))]


def until_nothing_is_left(word):
    helpers.until(helpers.END_SECONDS, lambda: not left_behind(word), lambda: "still there: %s" % [helpers.command_of(pid) for pid in left_behind(word)])


MODES = ["plain", "plain,attach_seconds=0", "plain,no_such_option=true", "raises", "exits", "thread", "forks", "kills", "kills,required=true", "orphans", "plain,duration=0.01"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """What the script says of each mode: {name: (what it said, the file)}."""
    bench = helpers.Bench(tmp_path_factory.mktemp("recorded"))
    try:
        job = bench.process(helpers.PYTHON, SCRIPT, bench.directory / "%s.rec", *MODES)
        assert job.wait(helpers.READY_SECONDS) == 0, job.what()
        until_nothing_is_left(bench.directory)
        return {said["name"]: (said, bench.directory / (said["name"] + ".rec")) for said in map(json.loads, job.stdout.splitlines())}
    finally:
        bench.close()


def check(said, file):
    """It has the steps inside the block, and of stepflame there is nothing in the job: no child, no handler, nothing logged."""
    summary = stepflame.load(file).summary
    assert summary["window"]["steps"] == said["steps"] > 0
    assert [(target["pid"], target["role"]) for target in summary["target"] if target["role"] == "main" or said["mode"] != "forks"] == [(said["pid"], "main")]
    assert said["same_handlers"] and not said["children"] and not said["logged"]


@pytest.mark.parametrize("mode, ended_by", [("plain", None), ("raises", "KeyError('of the job')"), ("exits", "SystemExit(3)"), ("thread", None), ("forks", None)])
def test_block(recorded, mode, ended_by):
    """It raises, exits, is in a thread that gets no signals, or is left by a fork, too, which does not end the recording."""
    said, file = recorded[mode]
    check(said, file)
    assert said["ended_by"] == ended_by
    assert said["inside"].startswith("%s is still being recorded" % file)


def test_shorter_than_the_block(recorded):
    said, file = recorded["plain-duration=0.01"]
    assert stepflame.load(file).summary["window"]["seconds"] < 1 and not said["logged"] and not said["ended_by"]


def test_recorder_killed(recorded):
    """The block goes on, that is logged, and what was written can be read."""
    said, file = recorded["kills"]
    assert said["steps"] == 2 * STEPS and said["ended_by"] is None and said["same_handlers"]
    (message,) = said["logged"]
    assert message == "stepflame: %s ended before the block did: stepflame record was killed by SIGKILL" % file
    assert stepflame.load(file).summary["window"]["steps"] >= STEPS
    said, _ = recorded["kills-required=true"]
    assert "killed by SIGKILL" in said["ended_by"] and not said["logged"]


def test_supervisor_killed(recorded):
    """The recorder ends with it, and writes its last part."""
    said, file = recorded["orphans"]
    assert "was killed by SIGKILL" in said["logged"][0]
    assert stepflame.load(file).summary["window"]["steps"] >= STEPS


def test_not_armed(recorded):
    """The block goes on, and that is logged."""
    said, _ = recorded["plain-attach_seconds=0"]
    assert said["logged"] and "nothing is recorded: stepflame has not attached within 0 s" in said["logged"][0] and said["steps"] == STEPS
    said, _ = recorded["plain-no_such_option=true"]
    assert said["logged"] == ["stepflame: nothing is recorded: unrecognized option '--no-such-option'\n  fix: stepflame help record lists the options"]


def test_job_killed(bench, tmp_path):
    """The recorder notices, ends its file, and is gone."""
    file = tmp_path / "killed.rec"
    job = bench.process(helpers.PYTHON, SCRIPT, file, "waits")
    job.until_says("^recording", helpers.READY_SECONDS, "stdout")
    job.popen.send_signal(signal.SIGKILL)
    job.wait()
    until_nothing_is_left(file)
    summary = stepflame.load(file).summary
    (end,) = summary["ended"]
    assert (end["pid"], end["signal"]) == (job.pid, signal.SIGKILL)
    assert summary["window"]["steps"] == STEPS


def test_interrupted_at_a_terminal(bench, tmp_path):
    """Ctrl-C is for all of the terminal's process group: the job ends by KeyboardInterrupt, and the recording is whole."""
    file = tmp_path / "interrupted.rec"
    job = bench.process(helpers.PYTHON, SCRIPT, file, "waits", start_new_session=True)
    job.until_says("^recording", helpers.READY_SECONDS, "stdout")
    os.killpg(job.pid, signal.SIGINT)
    assert job.wait() != 0 and "KeyboardInterrupt" in job.stderr and "stepflame:" not in job.stderr
    until_nothing_is_left(file)
    assert stepflame.load(file).summary["window"]["steps"] == STEPS


BLOCK = """
import logging, sys
sys.path.insert(0, sys.argv[1])
import stepflame
logging.basicConfig(format="%(message)s")
for _ in range(2):
    with stepflame.record(sys.argv[2], required=len(sys.argv) > 3):
        print("inside")
"""


def test_rights():
    """Without them the block runs as without it, and the program's message is logged once, with its fix; or raised."""
    with tempfile.TemporaryDirectory(prefix="stepflame-") as folder:
        os.chmod(folder, 0o777)
        shutil.copy(helpers.STEPFLAME, folder)
        shutil.copytree(Path(stepflame.__file__).parent, folder + "/package/stepflame")
        file = folder + "/x.rec"
        block = [helpers.SYSTEM_PYTHON, "-c", BLOCK, folder + "/package", file]
        job, required, program, granted = (
            subprocess.run(as_user(rights, *words), capture_output=True, text=True, env={"STEPFLAME": folder + "/stepflame"}, timeout=helpers.END_SECONDS)
            for rights, words in (
                ([], block),
                ([], [*block, "required"]),
                ([], [folder + "/stepflame", "record", "-p", str(os.getpid()), "-o", file]),
                (["bpf", "perfmon"], [*block, "required"]),
            )
        )
        assert stepflame.load(file).summary["window"]["seconds"]
    (why,) = re.findall("CAP_BPF.*", program.stderr)
    assert job.returncode == 0 and job.stdout == "inside\ninside\n"
    assert job.stderr.count("nothing is recorded") == 1 and why in job.stderr and "fix: " in job.stderr
    assert granted.returncode == 0 and granted.stdout == job.stdout and not granted.stderr
    assert required.returncode == 1 and not required.stdout and why in required.stderr


def test_other_process(bench, tmp_path):
    """record(pid=) and attach(pid): as many steps as that job made, and as were asked for."""
    job = bench.job("plain_loop.py", "--epochs", 1).until_ready()
    with stepflame.record(tmp_path / "other.rec", pid=job.pid, required=True) as recording:
        job.release()
        truth = job.truth()
    assert recording.summary["window"]["steps"] == truth["steps"]
    parts = {row["name"]: row["count"] for row in json.loads(recording.report("simple", all=True, json=True))["actions"]}
    assert parts["backward"] == truth["parts"]["backward"]["count"]


def test_attach(bench, tmp_path):
    job = bench.job("plain_loop.py", "--epochs", 10_000).until_ready()
    job.release()
    recording = stepflame.attach(job.pid, duration=None, steps=25, frequency=19)
    assert recording.summary["window"]["steps"] == 25
    folder = Path(recording.path).parent
    del recording
    assert not folder.exists()
    with pytest.raises(stepflame.StepflameError, match="'--frequenzy'; did you mean '--frequency'") as raised:
        stepflame.attach(job.pid, frequenzy=19)
    assert raised.value.status == helpers.USAGE and raised.value.fix
    kept = stepflame.attach(job.pid, 0.5, tmp_path / "kept.rec", ops=True)
    assert "aten::linear" in kept.report("ops")
    job.kill()
    with pytest.raises(stepflame.StepflameError, match="there is no process %d" % job.pid) as raised:
        stepflame.attach(job.pid)
    assert raised.value.status == helpers.TARGET


def test_attacher_killed(bench, tmp_path):
    """Nobody waits for the recording any more: it ends, and the job runs on."""
    job = bench.job("plain_loop.py", "--epochs", 10_000).until_ready()
    job.release()
    attacher = bench.process(sys.executable, "-c", "import stepflame; stepflame.attach(%d, None, %r)" % (job.pid, str(tmp_path / "left.rec")))
    helpers.until(helpers.END_SECONDS, lambda: (tmp_path / "left.rec").exists() and (tmp_path / "left.rec").stat().st_size > 4096, attacher.what)
    attacher.popen.send_signal(signal.SIGKILL)
    until_nothing_is_left(tmp_path)
    assert stepflame.load(tmp_path / "left.rec").summary["window"]["steps"] and job.running()


@pytest.mark.long
def test_torchrun(bench, tmp_path):
    """Each rank records itself."""
    command = [helpers.PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    job = bench.process(*command, SCRIPT, tmp_path / "%s.rec", "rank", env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert job.wait(helpers.READY_SECONDS) == 0, job.what()
    until_nothing_is_left(tmp_path)
    for said in map(json.loads, job.stdout.splitlines()):
        check(said, tmp_path / (said["name"] + ".rec"))


CELL = """
import stepflame, torch
model = torch.nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with stepflame.record("cell.rec", required=True) as run:
    for _ in range(%d):
        model(torch.randn(64, 32)).sum().backward()
        optimizer.step()
run
"""


@pytest.mark.long
def test_notebook(tmp_path):
    """A cell records its kernel, and shows it."""
    for name in ("nbclient", "nbformat", "ipykernel"):
        pytest.importorskip(name, reason="no %s" % name)
    import nbclient
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL % STEPS)])
    nbclient.NotebookClient(notebook, timeout=helpers.READY_SECONDS, resources={"metadata": {"path": tmp_path}}).execute()
    assert stepflame.load(tmp_path / "cell.rec").summary["window"]["steps"] == STEPS
    (output,) = notebook.cells[0].outputs
    assert output.data["text/html"].startswith("<pre>Recorded ") and "<iframe sandbox=" in output.data["text/html"]
    until_nothing_is_left(tmp_path)
