# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Fixtures of the end-to-end tests, and options of these and the replay tests. STEPFLAME_PYTHON chooses the Python of the jobs, STEPFLAME the program."""

import os
import subprocess
from pathlib import Path

import gpu
import helpers
import pytest

os.environ["STEPFLAME_WATCH"] = "0"  # a test's watch leaves the jobs of the tests beside it alone: eventful.Watched
GATE = Path(__file__).with_name("gate.txt")


def pytest_addoption(parser):
    parser.addoption("--accept", action="store_true", help="write what commands print now as what they shall print (replay/test_expected.py)")


def pytest_collection_modifyitems(config, items):
    """gate.txt lists the tests that are marked `gate`: a line is a test, with or without its parameters. One that is of no test is an error."""
    lines = set(GATE.read_text().split("\n")) - {""}
    names = [item.nodeid.rpartition("e2e/test_")[2] for item in items]
    for item, name in zip(items, names):
        if name in lines or name.partition("[")[0] in lines:
            item.add_marker("gate")
    if any("::" in argument for argument in config.args):
        return  # of a file only some tests were asked for
    files = {name.partition("::")[0] for name in names}
    known = {*names, *(name.partition("[")[0] for name in names)}
    gone = sorted(line for line in lines - known if line.partition("::")[0] in files)
    if gone:
        raise pytest.UsageError("gate.txt has lines that are no test: %s" % ", ".join(gone))


@pytest.fixture
def bench(tmp_path):
    b = helpers.Bench(tmp_path)
    yield b
    b.close()


@pytest.fixture
def gpu_jobs(bench):
    return gpu.Jobs(bench)


class Shared:
    """Bench.recorded, or what it gave when another test recorded the same: for tests that only read."""

    def __init__(self, new_directory):
        self.new_directory = new_directory
        self.known = {}

    def forget(self):
        self.known.clear()

    def recorded(self, *args, python=helpers.PYTHON, options=()):
        key = (args, python, options)
        if key not in self.known:
            bench = helpers.Bench(self.new_directory("shared"))
            try:
                self.known[key] = bench.recorded(*args, python=python, options=options)
            finally:
                bench.close()
        return self.known[key]


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    return Shared(tmp_path_factory.mktemp)


TRIES = 3
CALM_SECONDS = 60  # that are waited for a calm one


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """As pytest calls a test; once more, with recordings of its own, where helpers.Busy says that the machine may be to blame."""
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    for left in reversed(range(TRIES)):
        try:
            pyfuncitem.obj(**arguments)
            return True
        except helpers.Busy as busy:
            if not left:
                raise
            print("repeated: %s" % busy)
            helpers.await_calm(CALM_SECONDS)
            if "shared" in arguments:
                arguments["shared"].forget()


def set_up(option, what):
    """A Python that tools/setup.sh makes, where it is not there."""
    command = [helpers.ROOT / "tools" / "setup.sh", "python", option]
    found = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip("no %s: %s" % (what, (found.stderr.strip() or "unknown").splitlines()[0]))
    return found.stdout.strip()


@pytest.fixture(scope="session")
def debian_python():
    """The system's Python with Debian's torch 1.13: static, stripped, old."""
    return set_up("--debian-torch", "Debian torch")


@pytest.fixture(params=["torch 2", helpers.OLD_TORCH])
def python(request):
    """The jobs' Python, and one with a torch of another age; parametrize "python" for others."""
    return helpers.PYTHON if request.param == "torch 2" else request.getfixturevalue("debian_python")


@pytest.fixture(scope="session")
def jax_python():
    """A Python with JAX, and without torch. STEPFLAME_JAX_PYTHON: that one."""
    return os.environ.get("STEPFLAME_JAX_PYTHON") or set_up("--jax", "JAX")
