# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The interpreters that are installed: the colon-separated STEPFLAME_PYTHONS, else those of pyenv, the system's and the jobs'."""

import glob
import os
import subprocess

import helpers
import pytest

SYSTEM = helpers.SYSTEM_PYTHON  # static and stripped


def version_of(python):
    """(3, 11, 7), or () of one that does not start."""
    command = [python, "-c", "import sys; print('%d %d %d' % sys.version_info[:3])"]
    found = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return tuple(map(int, found.stdout.split())) if found.returncode == 0 else ()


def installed():
    """{path: version}, the oldest first."""
    pyenv = glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))
    paths = os.environ.get("STEPFLAME_PYTHONS", ":".join([helpers.PYTHON, *pyenv, SYSTEM])).split(":")
    versions = {path: version_of(path) for path in paths if os.path.exists(path)}
    return {path: versions[path] for path in sorted(versions, key=versions.get) if versions[path]}


def name(path, version):
    return "%d.%d.%d" % version + " system" * (path == SYSTEM)


VERSIONS = installed()
MINOR = {path: version[1] for path, version in VERSIONS.items()}
SUPPORTED = {name(path, version): path for path, version in VERSIONS.items() if 8 <= version[1] <= 15}
OLDEST, NEWEST = [*SUPPORTED.values()][0], [*SUPPORTED.values()][-1]
# For what hardly depends on the version: how each lays out what is read is proven by images of all of them (tests/bpf/test_pystack_images.c), and on
# each that runs by test_dump.py's test_waiting.
FEW = {name: path for name, path in SUPPORTED.items() if helpers.LONG or path in (OLDEST, NEWEST)}


def of_minor(*minors):
    """Those of pyenv of these versions."""
    return {name: path for name, path in SUPPORTED.items() if MINOR[path] in minors and path != SYSTEM}


def parametrize(pythons, long=()):
    """long: minor versions that run in `make test-all` alone."""
    marked = [pytest.param(path, marks=pytest.mark.long if MINOR[path] in long else (), id=name) for name, path in pythons.items()]
    return pytest.mark.parametrize("python", marked)


on_each, on_few = parametrize(SUPPORTED), parametrize(FEW)
