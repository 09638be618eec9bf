# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The advanced report of real runs against Lightning's own AdvancedProfiler, that is cProfile, in the same process; and pstats of a recording."""

import json
import math
import pstats

import helpers
import pytest

pytestmark = [helpers.needs_bpf, pytest.mark.alone]

HZ = 499
LISTED = 0.05  # of an action's time: a function with more is in both tables, or in none
OTHERWISE = 0.03  # of an action's time: what cProfile itself costs


def error_of(share, samples):
    """Four standard deviations of a share of so many samples."""
    return OTHERWISE + 4 * math.sqrt(max(share * (1 - share), LISTED) / samples)


def advanced(file, action, *args):
    (found,) = json.loads(helpers.report_text(file, "--advanced", "--json", "--action", action, *args))["actions"]
    return found


def shares(rows, seconds):
    """{(file, line, name): (own, total)} of Python functions."""
    return {(file, line, name): (own / seconds, total / seconds) for file, line, name, own, total in rows if file != "~"}


@pytest.mark.parametrize(
    "action, planted",
    [
        ("[Strategy]SingleDeviceStrategy.training_step", {"augment", "scale", "turns", "score", "training_step"}),
        ("run_training_batch", {"augment", "scale", "turns", "score", "training_step", "on_before_zero_grad"}),
        ("[_TrainingEpochLoop].train_dataloader_next", {"decode", "turns", "__getitem__"}),
    ],
)
def test_functions_of_an_action(bench, action, planted):
    record, truth = bench.recorded("profiled_action.py", "--action", action, options=("-F", HZ))
    found = advanced(record.file, action, "--cpu")
    assert found["callers"] == 0 and found["cpu_s"] == pytest.approx(truth["seconds"], rel=0.15)
    theirs = shares(truth["functions"], truth["seconds"])
    ours = shares([(f["file"], f["line"], f["name"], f["tottime_s"], f["cumtime_s"]) for f in found["functions"]], found["cpu_s"])
    assert planted <= {key[2] for key, (_, total) in theirs.items() if total > LISTED}
    for key in theirs.keys() | ours.keys():
        for one, other in zip(ours.get(key, (0, 0)), theirs.get(key, (0, 0))):
            assert one == pytest.approx(other, abs=error_of(other, found["samples"])), (key, ours.get(key), theirs.get(key))
        # told apart by name: what one has in plenty the other lists
        if max(ours.get(key, (0, 0))[1], theirs.get(key, (0, 0))[1]) > LISTED + error_of(LISTED, found["samples"]):
            assert key in ours and key in theirs, key


def test_pstats_is_no_longer_than_the_recording(bench):
    """One thread's time is at most that which went by, and no call was counted."""
    record, _ = bench.recorded("lightning_fit.py", "--workers", 2, "--profiler", "none", options=("-d", "1s"))  # not its end, which has no Python
    window, out = helpers.report(record.file)["window"]["seconds"], bench.directory / "out.pstats"
    for args, least in (([], 0.9), (["--cpu"], 0.01)):
        assert helpers.stepflame("export", record.file, "-f", "pstats", "-o", out, *args).returncode == helpers.OK
        stats = pstats.Stats(str(out))
        assert least * window < stats.total_tt <= 1.001 * window and stats.total_calls == 0
    assert helpers.stepflame("export", record.file, "-f", "pstats", "--all-threads", "-o", out).returncode == helpers.OK
    assert pstats.Stats(str(out)).total_tt > 1.001 * window
