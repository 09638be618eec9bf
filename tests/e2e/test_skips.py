# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""That a run notices which tests did not run (skips.py), and that run.sh tells which had to run twice. Needs no root."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import skips

HERE = Path(__file__).parent
TESTS = """
import pytest
def test_runs(): pass
def test_skips(): pytest.skip("no reason")
@pytest.mark.xfail
def test_known(): assert False
"""
WHOLE = "import pytest\npytest.skip('all of it', allow_module_level=True)\n"
CONFTEST = """
import sys
sys.path.insert(0, %r)
import skips
def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        skips.ALLOWED = [(r"::test_skips$", r"^%s$")]
        config.pluginmanager.register(skips.Watch())
"""


def run(directory, allowed, *options):
    (directory / "conftest.py").write_text(CONFTEST % (str(HERE), allowed))
    return subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options], cwd=directory, capture_output=True, text=True)


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["one", "two"])
def test_unexpected(tmp_path, options):
    if options:
        pytest.importorskip("xdist", reason="tools/setup.sh python --readers installs pytest-xdist")
    (tmp_path / "test_some.py").write_text(TESTS)
    assert run(tmp_path, "no reason", *options).returncode == 0
    found = run(tmp_path, "another reason", *options)
    assert found.returncode == skips.EXIT_BIT and "test_some.py::test_skips: no reason\n" in found.stdout, found.stdout
    (tmp_path / "test_whole.py").write_text(WHOLE)
    found = run(tmp_path, "no reason", *options)
    assert found.returncode == skips.EXIT_BIT and "test_whole.py: all of it\n" in found.stdout, found.stdout


# Stands for the Python of the tests: tests beside each other fail in it, or are skipped, and are good alone.
PYTHON = """#!/bin/sh
case "$*" in
-c*xdist*) exit 0 ;;
-c*) exec %s "$@" ;;
*"-n 2"*)
	for word; do case $word in cache_dir=*) cache=${word#cache_dir=} ;; esac; done
	mkdir -p "$cache/v/cache"
	echo '{%s}' >"$cache/v/cache/lastfailed"
	exit %d ;;
esac
exit %d
"""


@pytest.mark.parametrize(
    "failing, together, alone, status",
    [(0, 0, 0, 0), (3, 1, 0, 0), (4, 1, 0, 1), (1, 1, 1, 1), (0, 8, 0, 1), (1, 9, 0, 1), (0, 0, 8, 1), (0, 5, 5, 5), (0, 2, 0, 2)],
)
def test_run(tmp_path, failing, together, alone, status):
    names = ["test_%d.py::test" % i for i in range(failing)]
    python = tmp_path / "python"
    python.write_text(PYTHON % (sys.executable, ", ".join('"%s": true' % name for name in names), together, alone))
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    found = subprocess.run([HERE / "run.sh"], env=dict(os.environ, STEPFLAME_PYTHON=str(python)), capture_output=True, text=True)
    assert found.returncode == status, found
    told = "%d failed beside another test, and run once more, alone:\n%s\n" % (failing, "\n".join(names))
    assert (told in found.stdout) == (failing > 0), found.stdout
    assert ("more than 3 tests had to run once more" in found.stdout) == (failing > 3)
