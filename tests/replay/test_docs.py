# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every command that the README and docs/ show runs as it stands there, and prints what they show, but for the figures. tests/e2e/ has those on a job, tests/fleet/ those of the Python package."""

import shlex

import helpers
import pytest
import recfile
import stepped
from documented import commands, samples, shapes

from . import recordings
from .test_resources import growing

SLOWER = 6  # diff's exit code
LIVE = ("record", "top", "watch", "dump", "doctor", "ps", "restore")
OTHER = 777


def is_live(command):
    return command.split()[0] in LIVE


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With every recording that the texts name."""
    folder = tmp_path_factory.mktemp("docs")
    job = stepped.in_every_report(OTHER)
    job.targets[-1] = recfile.target(OTHER)  # without a rank: all recordings may be merged
    job.extra.append(recfile.gpu_calls(recfile.gpu_key(OTHER, "cudaLaunchKernel", action=903), 3, 7 * 10**6))
    names = {word for command in commands() for word in command.split() if word.endswith(".rec")}
    for job.host in names | {"stepflame.rec"}:
        (folder / job.host).parent.mkdir(exist_ok=True)
        job.write(folder / job.host)
    return folder


@pytest.mark.parametrize("command", [command for command in commands() if not is_live(command) and command.split()[0] != "fleet"])
def test_command(folder, command):
    words = shlex.split(command)
    action = "forward" if "--advanced" in words else "fit"  # that has samples; that is in all other reports
    words = [str(stepped.PID) if word == "WORKER" else action if word in ("run_training_batch", "training_step") else word for word in words]
    result = helpers.stepflame(*words, cwd=folder)
    assert result.returncode == helpers.OK, result


PRINTED = [(page, command, lines) for page, command, lines in samples() if command.split()[1] in ("report", "diff") and not page.startswith("walk-")]


@pytest.mark.parametrize("page, command, lines", PRINTED, ids=["%s-%d" % (page, number) for number, (page, _, _) in enumerate(PRINTED)])
def test_sample(folder, tmp_path, page, command, lines):
    """Each line of a sample is one that stepflame prints: of some recording of a real job, of one with a row in every report, or of one whose memory grows."""
    words = [word for word in shlex.split(command)[1:] if not word.endswith(".rec")]
    if words[0] == "diff":
        files = [["before.rec", "after.rec"]]
    else:
        files = [[name + ".rec"] for name in recordings.NAMES] + [[folder / "stepflame.rec"], [growing(tmp_path / "grows.rec")]]
    printed = b"".join(recordings.run(words[0], *names, *words[1:]).stdout for names in files).decode()
    shown = shapes(lines)
    assert shown and shown <= shapes(printed.splitlines()), shown - shapes(printed.splitlines())
