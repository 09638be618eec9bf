# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`report --steps` of real jobs: planted causes are found in the steps in which they were, and nothing is blamed where none was."""

import os
import re
import statistics

import helpers
import pytest

pytestmark = helpers.needs_bpf

HELD = 0.06  # planted.py's HELD_SECONDS
PHASES = ("data", "forward", "backward", "optimizer")
# Between two perf_counter() of the job and our boundary: a few calls of Python, and torch's own around the label and the engine.
STEP_SECONDS = 0.0001
PHASE_SECONDS = 0.0003
STRAYS = 0.03  # of the steps, which the machine held up between both clocks
EXTRA_SHARE = 0.05  # of the time, in slow steps that were not planted
REMAINDER = 0.02
SANITY_STEPS = 2  # of validation, before Lightning's first epoch


def steps_of(record):
    found = helpers.report(record.file, "--steps")
    assert found["lost"] == {}, found["lost"]
    for step in found["steps"]:
        assert sum(step["phases"].values()) == pytest.approx(step["duration_s"], abs=1e-9)
        assert step["oncpu_s"] + sum(step["waits"].values()) == pytest.approx(step["duration_s"], abs=1e-9)
    assert found["remainder_s"] <= REMAINDER * found["all"]["total_s"]
    return found


def check_times(found, truth):
    """Each step's duration, and the sums of its phases, by the job's own clock."""
    log = truth["log"]
    assert [step["index"] for step in found["steps"]] == list(range(2, len(log) + 1))
    errors = [step["duration_s"] - (log[step["index"] - 1][0] - log[step["index"] - 2][0]) for step in found["steps"]]
    stray = [error for error in errors if abs(error) > STEP_SECONDS]
    assert len(stray) <= STRAYS * len(errors), stray
    assert abs(sum(errors)) <= STEP_SECONDS + truth["delayed"]
    for i, phase in enumerate(PHASES):
        ours = sum(step["phases"].get(phase, 0) for step in found["steps"])
        # forward begins with the end of the data, and what backward() does in Python is forward still
        assert ours == pytest.approx(sum(row[i + 1] for row in log[1:]), abs=PHASE_SECONDS * len(log) + truth["delayed"]), phase


def held_up(truth):
    """{planted step: seconds that it took longer than those that are not}, by the job's own clock."""
    ends = [row[0] for row in truth["log"]]
    seconds = {step: ends[step - 1] - ends[step - 2] for step in range(2, len(ends) + 1)}
    ordinary = statistics.median(s for step, s in seconds.items() if step not in truth["planted"])
    return {step: seconds[step] - ordinary for step in truth["planted"] if step > 1}


def slower_work(truth):
    """{step: seconds by which its operators took longer than in the one in the middle}, by the job's own clock."""
    worked = {step: sum(row[2:5]) for step, row in enumerate(truth["log"], 1)}
    ordinary = statistics.median(worked.values())
    return {step: seconds - ordinary for step, seconds in worked.items()}


def check_found(found, truth, cause):
    """The planted steps are slow for that cause, which costs most; what else was slow does not matter. The group of the cause."""
    causes = {step["index"]: step["cause"] for step in found["steps"] if step["cause"]}
    assert sorted(causes) == found["slow"]
    held = held_up(truth)
    # of a step that the machine held up for as long as we did, either is the cause; and a worker may have slept while others were waited for
    planted = [step for step, seconds in held.items() if seconds >= HELD / 4 and (cause == "run_queue" or truth["log"][step - 1][-1] < seconds / 4)]
    assert len(planted) > len(truth["planted"]) / 2, "the machine is too busy for this test"
    assert {step: causes.get(step) for step in planted} == dict.fromkeys(planted, cause)
    first = found["causes"][0]
    assert first["cause"] == cause
    ours = set(truth["planted"])
    others = [step for step in found["steps"] if step["index"] not in ours and step["cause"] not in (None, "unknown")]
    extra = {step["index"]: (step["cause"], step["duration_s"] - found["ordinary_s"]) for step in others}
    worked = slower_work(truth)
    extra = {step: (cause, seconds) for step, (cause, seconds) in extra.items() if cause != "op" or worked[step] < seconds / 2}
    assert sum(seconds for _, seconds in extra.values()) <= EXTRA_SHARE * found["all"]["total_s"] + truth["delayed"], extra
    every = truth["planted"][0]
    assert (first["rhythm"]["shortest"], first["rhythm"]["longest"]) == (every, every), first
    assert "(every %dth step)" % every in found["verdict"]["why"]
    return first


def planted(bench, plant, cause, verdict, **check):
    record, truth = bench.recorded("planted.py", "--plant", plant)
    found = steps_of(record)
    check_times(found, truth)
    group = check_found(found, truth, cause)
    assert found["verdict"]["class"] == verdict, found["verdict"]
    assert found["verdict"]["next"]
    assert group["where"][0]["file"].endswith("planted.py")
    where = "%s:%d %s" % ("planted.py", group["where"][0]["line"], group["where"][0]["name"])
    assert cause == "data_wait" or found["verdict"]["evidence"][0].startswith(where)
    assert where in helpers.report_text(record.file, "--steps")
    return found, truth, group


def slowed(truth):
    """Seconds by which steps took longer than the one in the middle, by the job's own clock: nothing was planted."""
    ends = [row[0] for row in truth["log"]]
    lasted = [b - a for a, b in zip(ends, ends[1:])]
    return sum(max(0, seconds - statistics.median(lasted)) for seconds in lasted)


def test_nothing(bench):
    """A healthy job is not blamed; a machine that was slower for a while shows on the job's own clock, too."""
    record, truth = bench.recorded("planted.py", "--plant", "none")
    found = steps_of(record)
    check_times(found, truth)
    total = found["all"]["total_s"]
    # a virtual machine that is stopped sees no cause
    blamed = [group for group in found["causes"] if group["cause"] != "unknown"]
    over = sum(group["over_s"] for group in blamed)
    assert over <= max(EXTRA_SHARE * total + truth["delayed"], slowed(truth)), (found["causes"], slowed(truth))
    starved = truth["delayed"] > EXTRA_SHARE * total
    assert found["verdict"]["class"] in ("CPU-op-bound", "CPU-starved" if starved else ""), found["verdict"]
    assert starved or "no cause of delay stands out" in found["verdict"]["why"]
    assert found["straggler"] is None
    text = helpers.report_text(record.file, "--steps")
    assert "the first Optimizer.step after a batch" in text
    # operators are what it does, by its own phases too
    share = found["all"]["cpu"]["op"]
    assert share["share"] + share["error"] > 0.8


def test_sleeping_dataset(bench):
    found, truth, group = planted(bench, "sleep", "sleep", "input-bound")
    assert group["phase"] == "data"
    assert group["where"][0]["name"].endswith("in_dataset")
    slept = sum(step["waits"].get("sleep", 0) for step in found["steps"])
    assert slept == pytest.approx(HELD * len(truth["planted"]), rel=0.02)


def test_cold_file(bench):
    found, _, group = planted(bench, "cold", "disk_read", "input-bound")
    assert group["phase"] == "data"
    assert group["where"][0]["name"].endswith("in_dataset")
    assert os.path.basename(group["where"][0]["path"]) == "cold"


@pytest.mark.alone
def test_fsync(bench):
    _, _, group = planted(bench, "fsync", "fsync", "checkpoint")
    assert os.path.basename(group["where"][0]["path"]) == "checkpoint"


def test_garbage(bench):
    found, truth, group = planted(bench, "gc", "gc", "Python-bound")
    assert group["gc_generation"] == 2
    assert "gc.freeze" in found["verdict"]["next"][0]


def test_lock(bench):
    found, truth, group = planted(bench, "lock", "lock", "lock-bound")
    assert (group["waker"]["pid"], group["waker"]["tid"]) == (truth["pid"], truth["holder"])
    held = sum(step["waits"].get("lock", 0) for step in found["steps"])
    assert held == pytest.approx(HELD * len(truth["planted"]), rel=0.05)


def test_cpu_hog(bench):
    found, truth, group = planted(bench, "hog", "run_queue", "CPU-starved")
    assert group["cause_s"] == pytest.approx(HELD * len(truth["planted"]), rel=0.2, abs=truth["delayed"] / 2)


def test_slow_worker(bench):
    found, truth, group = planted(bench, "worker", "data_wait", "input-bound")
    assert group["phase"] == "data"
    assert group["waker"]["pid"] == truth["worker"]
    assert group["waker"]["share"] > 0.5
    verdict = found["verdict"]
    assert verdict["place"].endswith(", in its workers") and "Worker.in_dataset" in verdict["place"], verdict
    assert "process %d" % truth["worker"] in verdict["next"][0], verdict


SLOW_ITEMS = ("--workers", 1, "--slow-every", 10, "--slow", 0.1, "--load", 0.0001, "--batches", 100)


@pytest.mark.parametrize("args", [("--workers", 2, "--load", 0.02, "--batches", 100), SLOW_ITEMS], ids=["two", "one"])
def test_slow_workers(bench, args):
    """All of them are, or there is but one: it is no single one's fault, and what they do is the place."""
    record, truth = bench.recorded("workers.py", *args)
    verdict = helpers.report(record.file, "--steps")["verdict"]
    assert verdict["class"] == "input-bound" and "loads_a_row" in verdict["place"], verdict
    assert verdict["next"][0].startswith("more DataLoader workers"), verdict
    assert "(sleep)" in verdict["evidence"][0] and not any("% of that wait" in line for line in verdict["evidence"]), verdict


def test_lightning(bench):
    """Validation and checkpoints fall into the step behind them, and are named there."""
    record, truth = bench.recorded("lightning_fit.py", "--epochs", 3, "--batches", 40)
    found = steps_of(record)
    assert found["window"]["step_rule"] == "lightning"
    assert len(found["steps"]) == 3 * 40 - 1
    phases = {phase for step in found["steps"] for phase in step["phases"]}
    assert phases >= {"data", "forward", "backward", "optimizer", "validation", "checkpoint"}
    by_name = {phase["name"]: phase["total_s"] for phase in found["all"]["phases"]}
    durations = truth["actions"]["[Strategy]SingleDeviceStrategy.training_step"]
    # the first one lies before the first boundary, and so in no step
    off = by_name["forward"] - sum(durations[1:])
    helpers.check_error(off, 0.02 * sum(durations) + PHASE_SECONDS * len(durations), truth["delayed"], (by_name, sum(durations)))
    causes = {step["index"]: step["cause"] for step in found["steps"]}
    if not {causes[41], causes[81]} <= {"validation", "checkpoint"} and truth["delayed"] > found["ordinary_s"]:
        raise helpers.Busy(causes)
    validated = truth["actions"]["[Strategy]SingleDeviceStrategy.validation_step"][SANITY_STEPS:]
    saving = {hook: seconds for name, seconds in truth["actions"].items() for _, _, hook in [name.partition("}.")] if "ModelCheckpoint" in name}
    for epoch, step in enumerate((41, 81)):
        # all that the callback does there is a checkpoint at most, and what else validation does besides its steps is not in its favour here
        saved = saving["on_validation_end"][1 + epoch] + saving["on_train_epoch_end"][epoch]
        longer = sum(validated[10 * epoch : 10 * (epoch + 1)]) > saved * 1.2
        assert causes[step] in ("validation", *([] if longer else ["checkpoint"])), (causes, found["steps"][step - 2], saved)


def test_two_ranks(bench, tmp_path, monkeypatch):
    """The rank that comes late is the one that the others wait for."""
    meet, jobs = tmp_path / "meet", []
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        jobs.append(bench.job("ranks.py", "--rank", rank, "--meet", meet, "--ddp", "--late", 0.02, "--batches", 60))
    for job in jobs:
        job.until_ready()
    record = bench.record("-p", ",".join(str(job.pid) for job in jobs)).until_armed()
    for job in jobs:
        job.release()
    for job in jobs:
        job.truth()
    assert record.wait() == helpers.OK, record.what()
    found = helpers.report(record.file, "--steps", "--per-rank")
    assert found["straggler"]["rank"] == 1, found["straggler"]
    assert "sleep" in found["straggler"]["why"]
    by_rank = {process["rank"]: process for process in found["processes"]}
    assert sorted(by_rank) == [0, 1]
    assert all(len(process["steps"]) == 59 for process in by_rank.values())
    assert by_rank[0]["verdict"]["class"] == "comm-bound", by_rank[0]["verdict"]
    assert "straggler: rank 1" in helpers.report_text(record.file, "--steps")
    # the headline of the job is its straggler, and where it is late
    verdict = helpers.report(record.file, "--steps")["verdict"]
    assert (verdict["class"], verdict["cause"], verdict["phase"]) == ("straggler", "sleep", "data"), verdict  # it stands in front of the model
    assert "rank 1 holds the others up" in verdict["why"] and verdict["place"].endswith(" train"), verdict


def test_torchrun(bench):
    """Ranks that torchrun started, each recorded by a stepflame of its own; merged, the one that comes late is named."""
    go, out = bench.directory / "go", bench.directory / "truth"
    script = [helpers.JOBS / "ranks.py", "--ddp", "--late", 0.02, "--batches", 60, "--wait", go, "--out", out]
    launcher = bench.process(
        helpers.PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, *script, env=dict(os.environ, PYTHONUNBUFFERED="1")
    )

    def pids():
        return re.findall(r"ready (\d+)$", launcher.stdout, re.M)

    helpers.until(helpers.READY_SECONDS, lambda: len(pids()) == 2 or not launcher.running(), launcher.what)
    records = [bench.record("-p", pid).until_armed() for pid in pids()]
    go.touch()
    assert launcher.wait() == 0, launcher.what()
    assert [record.wait() for record in records] == [helpers.OK] * 2, [record.what() for record in records]
    merged = bench.directory / "merged.rec"
    done = helpers.stepflame("merge", *(record.file for record in records), "-o", merged)
    assert done.returncode == helpers.OK, done.stderr
    found = helpers.report(merged, "--steps", "--per-rank")
    assert sorted(target["rank"] for target in found["target"] if target["role"] == "main") == [0, 1]
    assert found["straggler"]["rank"] == 1 and "sleep" in found["straggler"]["why"], found["straggler"]
    # each rank has what its own recording says
    for record in records:
        alone = helpers.report(record.file, "--steps")
        rank = alone["target"][0]["rank"]
        (of_rank,) = [process for process in found["processes"] if process["rank"] == rank]
        assert [step["duration_s"] for step in of_rank["steps"]] == [step["duration_s"] for step in alone["steps"]]
