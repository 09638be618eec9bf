# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tests/run.py: what fails runs again, what passes then is flaky, and what fails three times, or is skipped and may not be, fails the run."""

import importlib.util
import shutil

import helpers
import pytest

SOME = """
import pytest
from pathlib import Path
runs = Path(__file__).with_suffix(".runs")
def test_passes(): print("said by one that passes")
def test_skips(): pytest.skip("no reason")
@pytest.mark.xfail
def test_known(): assert False
@pytest.fixture
def broken(): raise RuntimeError("broken set-up")
def test_set_up(broken): pass
@pytest.mark.parametrize("text", ["a/b c"])
def test_second_time(text):
    count = len(runs.read_text()) if runs.exists() else 0
    runs.write_text("x" * (count + 1))
    print("said in run %d" % count)
    assert count == 2
"""
PROGRAM = """#!/bin/sh
echo x >>"$0.runs"
echo "[ RUN      ] test_a b"
echo "[       OK ] test_a b"
if [ $(wc -l <"$0.runs") -lt 2 ]; then
	echo "why it failed"
	sleep 600 & # is left, and holds stdout
	echo "[  FAILED  ] test_c"
	echo "[  FAILED  ] 1 test(s), listed below:"
	echo "[  FAILED  ] test_c"
	exit 1
fi
echo "[       OK ] test_c"
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """tests/run.py, as the runner of a folder with the tests above."""
    spec = importlib.util.spec_from_file_location("run", helpers.ROOT / "tests/run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "tests/unit").mkdir(parents=True)
    for file in ("outcomes.py", "pytest.ini"):
        shutil.copy(helpers.ROOT / "tests" / file, tmp_path / "tests")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "BUILD", tmp_path / "build")
    monkeypatch.setattr(module, "LOGS", tmp_path / "build/flaky")
    monkeypatch.setenv("STEPFLAME_PYTHON", helpers.PYTHON)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.chdir(tmp_path)
    return module


def main(run, monkeypatch, parts, *words):
    monkeypatch.setattr(run, "PARTS", parts)
    monkeypatch.setattr(run.sys, "argv", ["run.py", *(words or parts)])
    return run.main()


class Played:
    """A part whose runs, one after another, have these outcomes."""

    def __init__(self, *outcomes):
        self.outcomes, self.asked = list(outcomes), []

    def run(self, names=None):
        self.asked.append(names)
        return {name: (outcome, "because of %s" % name) for name, outcome in self.outcomes.pop(0).items()}


def test_passes(run, monkeypatch, capsys):
    part = Played({"a": "passed", "b": "skipped"})
    assert main(run, monkeypatch, {"one": part}) == 0
    assert part.asked == [None]
    assert capsys.readouterr().out.endswith("\n1 passed, 0 failed, 1 skipped\n")


def test_flaky(run, monkeypatch, capsys):
    part = Played({"a": "passed", "b": "failed", "c": "failed"}, {"b": "passed", "c": "failed"}, {"c": "passed"})
    assert main(run, monkeypatch, {"one": part}) == 0
    assert part.asked == [None, ["b", "c"], ["c"]]
    said = capsys.readouterr().out
    assert "flaky: b (build/flaky/b.1.log)\nflaky: c (build/flaky/c.2.log)\n" in said and said.endswith("\n3 passed, 0 failed, 0 skipped\n")
    assert (run.LOGS / "c.1.log").read_text() == "because of c"


def test_fails_three_times(run, monkeypatch, capsys):
    part = Played({"a": "failed", "b": "failed"}, {"a": "failed", "b": "passed"}, {"a": "failed"})
    assert main(run, monkeypatch, {"one": part, "two": Played({"c": "passed"})}) == 1
    assert part.asked == [None, ["a", "b"], ["a"]]
    said = capsys.readouterr().out
    assert "\nfailed: a\n" in said and "flaky: b" in said and said.endswith("\n2 passed, 1 failed, 0 skipped\n")


def test_full_disk(run, monkeypatch):
    """It says what it lacks, and runs nothing."""
    part = Played()
    monkeypatch.setattr(run.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**12, 10**12 - 10**8, 10**8))
    with pytest.raises(SystemExit, match=r"has 0\.1 GB free, and the tests want 1\.0 GB"):
        main(run, monkeypatch, {"one": part})
    assert not part.asked


def test_not_run_again(run, monkeypatch):
    """What does not run again has failed."""
    assert main(run, monkeypatch, {"one": Played({"a": "failed"}, {}, {})}) == 1


@pytest.mark.parametrize("reason, status", [("because of e2e/test_gpu_hardware.py::test", 1), ("no driver of NVIDIA is here", 0)])
def test_skips(run, monkeypatch, capsys, reason, status):
    class Skips:
        def run(self, names=None):
            return {"e2e/test_gpu_hardware.py::test": ("skipped", reason)}

    assert main(run, monkeypatch, {"one": Skips()}) == 0
    monkeypatch.setenv("CI", "true")
    assert main(run, monkeypatch, {"one": Skips()}) == status
    assert ("skipped, and may not be" in capsys.readouterr().out) == bool(status)


@pytest.mark.parametrize("alone", [pytest.param(True, marks=pytest.mark.long), False])
def test_pytest(run, monkeypatch, capsys, alone):
    if not alone:
        pytest.importorskip("xdist", reason="tools/setup.sh python --readers installs pytest-xdist")
    (run.ROOT / "tests/test_some.py").write_text(SOME)
    assert main(run, monkeypatch, {"some": run.Pytest("tests", alone=alone)}) == 1
    said = capsys.readouterr().out
    assert said.endswith("\n3 passed, 1 failed, 1 skipped\n"), said
    assert "failed: test_some.py::test_set_up\n" in said and "flaky: test_some.py::test_second_time[a/b c]" in said
    assert "said in run 1" in (run.LOGS / "test_some.py-test_second_time-a-b-c-.2.log").read_text()
    assert "broken set-up" in (run.LOGS / "test_some.py-test_set_up.1.log").read_text()


def test_pytest_that_does_not_start(run, monkeypatch, capsys):
    (run.ROOT / "tests/test_some.py").write_text("import no_such_module\n")
    assert main(run, monkeypatch, {"some": run.Pytest("tests", alone=True)}) == 1
    assert "failed: test_some.py" in capsys.readouterr().out
    assert main(run, monkeypatch, {"some": run.Pytest("--no-such-option", alone=True)}) == 1


def test_c(run, monkeypatch, capsys):
    (run.ROOT / "tests/unit/test_some.c").touch()
    (run.BUILD / "tests/unit").mkdir(parents=True)
    program = run.BUILD / "tests/unit/test_some"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    assert main(run, monkeypatch, {"C": run.C()}) == 0
    said = capsys.readouterr().out
    assert "flaky: unit/test_some::test_c" in said and said.endswith("\n2 passed, 0 failed, 0 skipped\n")
    program.write_text('#!/bin/sh\necho x >>"$0.crashes"\n[ $(wc -l <"$0.crashes") -gt 1 ] || kill -SEGV $$\necho "[       OK ] test_a"\n')
    assert main(run, monkeypatch, {"C": run.C()}) == 0
    assert "flaky: unit/test_some:: (" in capsys.readouterr().out
    program.write_text("#!/bin/sh\nkill -SEGV $$\n")
    assert main(run, monkeypatch, {"C": run.C()}) == 1
    assert "failed: unit/test_some::\n" in capsys.readouterr().out


SIDE = """import json, sys
if {dies}:
    sys.exit(7)
print("said beside")
with open(sys.argv[-1], "w") as f:
    json.dump([[["C", {{"unit/test_x::a": ["passed", ""]}}, {{"unit/test_x::a": "build/flaky/a.1.log"}}, 30]], {{"unit/test_x::a": "build/flaky/a.1.log"}}], f)
"""


@pytest.mark.parametrize("dies", [False, True])
def test_beside(run, monkeypatch, capfd, tmp_path, dies):
    """What runs beside a part is in the table, before that one; if it ends without a result, the run fails."""
    side = tmp_path / "side.py"
    side.write_text(SIDE.format(dies=dies))
    monkeypatch.setattr(run, "__file__", str(side))
    monkeypatch.setattr(run, "BESIDE", {"live": ["C"]})
    monkeypatch.setitem(run.RUNS, "gate", ["C", "live"])
    status = main(run, monkeypatch, {"live": Played({"b": "failed"}, {"b": "passed"})}, "gate")
    out = capfd.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    if dies:
        assert status == 1 and "failed: C" in out
        return
    assert status == 0 and "said beside" in out and "2 passed, 0 failed, 0 skipped" in out
    table = [line for line in lines if line[:1] in (["C"], ["live"])]
    assert table == [["C", "1", "0", "0", "1", "0.5"], ["live", "1", "0", "0", "1", "0.0"]]
    assert "flaky: unit/test_x::a (build/flaky/a.1.log)" in out and "flaky: b (" in out
