# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every command that the README and docs/ show runs as it stands there, on a recording that is in every report, or on a job."""

import re
import shlex

import helpers
import pytest
import recfile
import stepped

SLOWER = 6  # diff's exit code
LIVE = ("record", "top", "watch", "dump", "doctor", "ps", "restore")
OTHER = 777


def commands():
    """[argument text] of the lines of code that call stepflame, without a comment behind them."""
    found = {}
    for page in (helpers.ROOT / "README.md", *sorted((helpers.ROOT / "docs").glob("*.md"))):
        for line in page.read_text().splitlines():
            if match := re.match(r"    (?:# )?(stepflame [a-z]+(?: (?! ).*)?)$", line.split("  #")[0].rstrip()):
                for command in re.split(r" *[;|] *", match[1]):
                    if command.startswith("stepflame ") and "  " not in command:  # not a sample of what top shows
                        found[command.split("  ")[0].partition(" ")[2]] = True
    return list(found)


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


@pytest.mark.parametrize("command", [command for command in commands() if not is_live(command)])
def test_command(folder, command):
    words = shlex.split(command)
    action = "forward" if "--advanced" in words else "fit"  # that has samples; that is in all other reports
    words = [str(stepped.PID) if word == "WORKER" else action if word in ("run_training_batch", "training_step") else word for word in words]
    result = helpers.stepflame(*words, cwd=folder)
    assert result.returncode == helpers.OK, result
