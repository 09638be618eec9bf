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


# Stands for the Python of the tests: so many fail beside each other, so many alone, and with what exit code each part, and each part's second run, ends.
PYTHON = """#!/bin/sh
for word; do case $word in cache_dir=*) cache=${word#cache_dir=} ;; esac; done
part() {
	mkdir -p "$cache/v/cache"
	echo "{$1}" >"$cache/v/cache/lastfailed"
	exit $2
}
case "$*" in
-c*xdist*) exit 0 ;;
-c*) exec %(python)s "$@" ;;
*--last-failed*"not alone"*) exit %(together_again)d ;;
*--last-failed*) exit %(alone_again)d ;;
*"-n 2"*) part '%(beside)s' %(together)d ;;
esac
part '%(left)s' %(alone)d
"""


@pytest.mark.parametrize(
    "beside, together, together_again, left, alone, alone_again, status",
    [
        (0, 0, 0, 0, 0, 0, 0),
        (3, 1, 0, 0, 0, 0, 0),
        (4, 1, 0, 0, 0, 0, 1),
        (1, 1, 1, 0, 0, 0, 1),
        (0, 0, 0, 3, 1, 0, 0),
        (0, 0, 0, 4, 1, 0, 1),
        (0, 0, 0, 1, 1, 1, 1),
        (2, 1, 0, 2, 1, 0, 0),
        (0, 8, 0, 0, 0, 0, 1),
        (1, 9, 0, 0, 0, 0, 1),
        (1, 1, 8, 0, 0, 0, 1),
        (0, 0, 0, 0, 8, 0, 1),
        (0, 5, 0, 0, 5, 0, 5),
        (0, 2, 0, 0, 0, 0, 2),
        (0, 0, 0, 0, 2, 0, 2),
        (0, 5, 0, 1, 1, 0, 0),
    ],
)
def test_run(tmp_path, beside, together, together_again, left, alone, alone_again, status):
    names = [["test_%s%d.py::test" % (part, i) for i in range(count)] for part, count in (("beside", beside), ("left", left))]
    failed = [", ".join('"%s": true' % name for name in part) for part in names]
    python = tmp_path / "python"
    codes = {"together": together, "together_again": together_again, "alone": alone, "alone_again": alone_again}
    python.write_text(PYTHON % {"python": sys.executable, "beside": failed[0], "left": failed[1], **codes})
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    found = subprocess.run([HERE / "run.sh"], env=dict(os.environ, STEPFLAME_PYTHON=str(python)), capture_output=True, text=True)
    assert found.returncode == status, found
    for part, how in zip(names, ("beside another test", "alone")):
        told = "%d failed %s, and run once more, alone:\n%s\n" % (len(part), how, "\n".join(part))
        assert (told in found.stdout) == bool(part), found.stdout
    assert ("more than 3 tests had to run once more" in found.stdout) == (max(beside, left) > 3)
