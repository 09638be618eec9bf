# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The recordings of real jobs in tests/data/recordings, what their jobs said of themselves, and how stepflame runs on them: the same on every
machine, whatever its terminal, language and time zone.
"""

import functools
import json
import os
import subprocess
from pathlib import Path

import helpers

RECDUMP = Path(helpers.STEPFLAME).parent / "tools" / "recdump"
FOLDER = Path(__file__).resolve().parents[1] / "data" / "recordings"
EXPECTED = FOLDER / "expected"
ENVIRONMENT = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC", "TERM": "dumb", "HOME": "/nonexistent"}
NAMES = sorted(path.stem for path in FOLDER.glob("*.rec"))


def path(name):
    return FOLDER / (name + ".rec")


@functools.lru_cache
def said(name):
    """{"job": its command, "options": of record, "truth": what the job wrote}"""
    return json.loads((FOLDER / (name + ".json")).read_text())


def truth(name):
    return said(name)["truth"]


def having(*options):
    """Recordings that were made with one of these options."""
    return [name for name in NAMES if any(option in said(name)["options"] for option in options)]


def run(*words, cwd=FOLDER):
    """Whatever its end; files are named as they are in the folder of the recordings."""
    program = RECDUMP if words[0] == "recdump" else helpers.STEPFLAME
    command = [program, *map(str, words[words[0] == "recdump" :])]
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, timeout=helpers.END_SECONDS)


def output(*words, cwd=FOLDER):
    """The bytes that it prints, where it succeeds."""
    result = run(*words, cwd=cwd)
    assert result.returncode == helpers.OK, (words, result.stderr)
    return result.stdout


@functools.lru_cache
def report(name, *options):
    """The JSON of a report; not to be changed."""
    return json.loads(output("report", name + ".rec", "--json", *options))
