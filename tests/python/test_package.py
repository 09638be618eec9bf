# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The package itself: what it imports, which program it calls, what it says where something is missing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import helpers
import pytest

import stepflame
from stepflame import errors, program

PACKAGE = Path(stepflame.__file__).parent.parent
MODULES = "import json, os, sys; before = set(sys.modules); import stepflame%s; print(json.dumps(sorted(set(sys.modules) - before)))"


def python(*arguments, **env):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=helpers.END_SECONDS, env={**os.environ, **env})


def test_imports():
    """The command imports nothing beside itself and what Python has imported by then; the rest comes when it is asked for."""
    assert json.loads(python("-c", MODULES % ", stepflame.program").stdout) == ["stepflame", "stepflame.program"]
    assert set(stepflame.__all__) <= set(dir(stepflame))
    for name in stepflame.__all__:
        assert getattr(stepflame, name).__module__ == "stepflame." + stepflame.LAZY[name]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        stepflame.nothing
    assert "pyarrow" not in python("-c", MODULES % "; stepflame.load, stepflame.record").stdout


def test_command():
    """It becomes the program: its output, messages and exit codes."""
    for words in (["--version"], ["report", "/nonexistent"], ["report", "--nope"], []):
        ours, program = python("-m", "stepflame", *words), helpers.stepflame(*words)
        assert (ours.returncode, ours.stdout, ours.stderr) == (program.returncode, program.stdout, program.stderr)


def test_a_folder_that_is_no_more(tmp_path):
    """The block runs nevertheless."""
    code = "import os, stepflame; os.rmdir(os.getcwd())\nwith stepflame.record('x.rec') as run: print('trained')\nprint(run.error.what)"
    (tmp_path / "job").mkdir()
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "job", capture_output=True, text=True, timeout=helpers.END_SECONDS, env={**os.environ, "STEPFLAME": "/bin/false", "PYTHONPATH": str(PACKAGE)})
    assert ran.stdout.startswith("trained\n") and "Traceback" not in ran.stderr, ran.stderr


def test_all_errors_are_its_own(tmp_path, monkeypatch):
    """Also where there is no temporary folder, or the program is another version, which has not all tables."""
    run = stepflame.load(Path(__file__).parents[1] / "data/recordings/plain.rec")
    (tmp_path / "stepflame").write_text("#!/bin/sh\n")
    (tmp_path / "stepflame").chmod(0o755)
    monkeypatch.setattr(program, "path", lambda: str(tmp_path / "stepflame"))
    with pytest.raises(stepflame.StepflameError, match="cannot read the tables of .*plain.rec: .*ranks.arrow"):
        run.table("steps")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(stepflame.StepflameError, match="cannot read the tables of"):
        run.table("steps")
    with pytest.raises(stepflame.StepflameError, match="there is no temporary folder"):
        stepflame.attach(1)


def test_path(tmp_path, monkeypatch):
    """$STEPFLAME, else PATH, in which a script of that name is another wheel's command, which would look again."""
    assert program.path() == helpers.STEPFLAME
    (tmp_path / "script").mkdir()
    (tmp_path / "script/stepflame").write_text("#!/bin/sh\n")
    (tmp_path / "script/stepflame").chmod(0o755)
    (tmp_path / "program").mkdir()
    shutil.copy("/bin/true", tmp_path / "program/stepflame")
    monkeypatch.delenv("STEPFLAME")
    monkeypatch.setenv("PATH", "%s/script:%s/program" % (tmp_path, tmp_path))
    assert program.path() == str(tmp_path / "program/stepflame")
    monkeypatch.setenv("PATH", "%s/script" % tmp_path)
    with pytest.raises(stepflame.StepflameError, match="the program stepflame is not here") as raised:
        stepflame.program.path()
    assert "install the wheel" in raised.value.fix
    monkeypatch.setenv("STEPFLAME", str(tmp_path / "script/stepflame"))
    with pytest.raises(stepflame.StepflameError, match="script/stepflame, which is not the program"):
        program.path()
    said = python("-m", "stepflame", "ps")
    assert said.returncode == 1 and said.stderr.startswith("stepflame: error: $STEPFLAME is ") and "\n  fix: " in said.stderr
    monkeypatch.setattr(program, "OWN", str(tmp_path / "program/stepflame"))
    assert program.path() == program.OWN


def test_words():
    given = {"ops": True, "memory": False, "budget": None, "max_size": "1G", "until": ["slow", "end"], "exact": "force", "frequency": 0}
    assert program.words(given) == ["--ops", "--max-size=1G", "--until=slow", "--until=end", "--exact=force", "--frequency=0"]


def test_errors():
    said = "stepflame: 10.0 s recorded\nstepflame: error: cannot write to x.rec any more:\n  No space left\n  fix: free some\n       space\nstepflame: recording written\n"
    error = errors.of_output(said, 1, "record")
    assert (error.what, error.fix, error.status) == ("cannot write to x.rec any more: No space left", "free some space", 1)
    assert errors.of_output("stepflame: armed\n", -9, "record").what == "stepflame record was killed by SIGKILL"
    assert errors.of_output("", 7, "record").what == "stepflame record ended with exit status 7: it said nothing"
    with pytest.raises(stepflame.StepflameError, match="cannot run stepflame report: embedded null byte"):
        program.run("report", "a\0b")


def test_fleet_needs_packages():
    """-S: no packages are there."""
    if not (PACKAGE / "stepflame/fleet").exists():
        pytest.skip("no stepflame.fleet")
    said = python("-S", "-c", "import sys; sys.path.insert(0, %r); sys.argv = ['stepflame', 'fleet', 'hosts']; import stepflame; stepflame.main()" % str(PACKAGE), PYTHONPATH="")
    assert said.returncode == 1 and said.stderr.startswith("stepflame: error: stepflame fleet needs pyarrow, which this Python (")
    assert said.stderr.endswith("\n  fix: pip install pyarrow duckdb numpy\n")
