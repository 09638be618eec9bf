# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""record --last keeps what was last, and --until ends the recording where something happens. Truth: the steps that the job was told to make slow."""

import re
import signal

import helpers
import pytest
from eventful import Steps
from helpers import OK, stepflame

SLOW_SECONDS = 3  # also on a machine on which other steps take a second


def text_of(report):
    return re.sub(r"\s+", " ", report)


@helpers.needs_bpf
def test_slow(bench):
    """The recording ends by itself, and has the slow step and those before it; counts are those of all steps."""
    steps = Steps(bench)
    record = bench.record("-p", steps.pid, "--last", "1s", "--until", "slow=%ds" % (SLOW_SECONDS - 1)).until_armed()
    steps.release_for(3)
    steps.sleep(SLOW_SECONDS)
    assert record.wait() == OK, record.what()
    [slow] = steps.truth()["slow"]
    assert re.search(r"step %d of process %d took [0-9.]+ s;" % (slow + 1, steps.pid), record.stderr), record.what()

    report = helpers.report(record.file, "--steps")
    assert report["window"]["events_from_seconds"] > 0.5
    indexes = [step["index"] for step in report["steps"]]
    # a second before the slow one, and one behind it
    assert indexes[0] > 1 and indexes[0] < slow + 1 < indexes[-1]
    assert report["steps"][indexes.index(slow + 1)]["duration_s"] >= SLOW_SECONDS
    assert report["dropped"]["steps"] + len(indexes) >= slow
    found = helpers.report(record.file, "--all")
    assert helpers.actions(found)["Optimizer.step#SGD.step"]["count"] == found["window"]["steps"] >= max(indexes)
    text = text_of(helpers.report_text(record.file))
    assert "(record --max-size, --last)" in text and "this has ended the recording" in text


@helpers.needs_bpf
def test_stall(bench):
    """The time before the stall is kept, however long the stall is, and the summary says what the job waits for."""
    steps = Steps(bench)
    record = bench.record("-p", steps.pid, "--last", "1s", "--until", "slow=1h", "--until", "stall=4s").until_armed()
    steps.release_for(2)
    steps.sleep(1000)
    assert record.wait() == OK, record.what()
    [said] = re.findall(r"process %d has ended no step for ([0-9.]+) s, since step (\d+)" % steps.pid, record.stderr)
    assert float(said[0]) >= 4
    assert re.search(r"Stalled +no step has ended in the last [0-9.]+ s, since step %s: mostly sleeping, at events.py:\d+ main" % said[1], text_of(record.stdout))
    report = helpers.report(record.file, "--steps")
    assert report["steps"][-1]["index"] == int(said[1]) and report["outside"]["after"]["seconds"] >= 4
    assert report["window"]["events_from_seconds"] > 0
    stall = helpers.report(record.file, "--summary")["stall"]
    assert stall["since_step"] == int(said[1]) and stall["cause"] == "sleep" and stall["seconds"] >= 4
    steps.job.popen.kill()


@helpers.needs_bpf
def test_interrupted(bench):
    """Without --until it keeps the last ones until Ctrl-C."""
    steps = Steps(bench)
    record = bench.record("-p", steps.pid, "--last", "1s").until_armed()
    steps.release_for(4)
    record.popen.send_signal(signal.SIGINT)
    assert record.wait() == OK, record.what()
    report = helpers.report(record.file, "--steps")
    assert report["window"]["events_from_seconds"] > 0
    assert 0 < len(report["steps"]) < report["dropped"]["steps"] <= steps.truth()["steps"]
    for options in (["--advanced"], ["--io"], ["--per-rank"]):
        assert stepflame("report", record.file, *options).returncode == OK
    assert stepflame("flame", record.file, "-o", bench.directory / "f.html").returncode == OK


@helpers.needs_bpf
@pytest.mark.parametrize("until", ["slow=1h", "stall=1h", "end"])
def test_nothing_happens(bench, until):
    steps = Steps(bench)
    record = bench.record("-p", steps.pid, "-F", 0, "-d", "1s", "--until", until).until_armed()
    steps.release_for(0.5)
    assert record.wait() == OK and "nothing of what --until waits for" in record.stderr, record.what()
    steps.truth()


# Steps of 20 ms of sleep; of 28 from the one on that it says, once the file is there.
PACE = """
import os, sys, time, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
print("ready", flush=True)
step = since = 0
while True:
    if not since and os.path.exists(sys.argv[1]):
        since = step
        print("since", since, flush=True)
    time.sleep(0.028 if since else 0.02)
    model(torch.ones(8, 8)).sum().backward()
    optimizer.step()
    step += 1
"""


@pytest.mark.long
@helpers.needs_bpf
def test_slower(bench):
    """The steps become longer for good: the recording ends by itself, and says since which step, by how much, and why."""
    go = bench.directory / "slower"
    job = bench.process(helpers.COLD_PYTHON, "-c", PACE, go).until_ready()
    record = bench.record("-p", job.pid, "--last", "2m", "--until", "slower").until_armed()
    record.until_says(r"^stepflame: 2 min", 200, "stderr")
    assert record.running(), record.what()
    go.touch()
    assert record.wait() == OK, record.what()
    [since] = map(int, re.findall(r"^since (\d+)", job.stdout, re.M))
    assert re.search(r"the steps of process %d take \S+ ms since step \d+, \d+ %% longer than before" % job.pid, record.stderr), record.what()
    found = helpers.report(record.file, "--summary")["slowdown"]
    before = since - found["since_step"]  # of the job's steps, the recording has missed those before it was armed
    assert 0 <= before < 1000 and (found["cause"], found["place"]) == ("sleep", "<string>:11 <module>"), found
    assert 0.02 <= found["before_s"] < 0.028 <= found["after_s"] and found["seconds"] >= 20, found


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--last", "500ms"], "1s or more"),
        (["--last", "1s", "-o", "-"], "standard output"),
        (["--last", "soon"], "not a time"),
        (["--until", "fast"], "--until wants"),
        (["--until", "slowly"], "--until wants"),
        (["--until", "slow="], "not a time"),
        (["--until", "stall=0"], "not a time"),
        (["--until", "slower=0"], "percentage of 1 to 1000"),
        (["--until", "slower=-3"], "percentage of 1 to 1000"),
        (["--until", "slower=9x"], "percentage of 1 to 1000"),
    ],
)
def test_usage(options, says):
    result = stepflame("record", "-p", "1", *options)
    assert result.returncode == helpers.USAGE and says in result.stderr, result
