# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The interpreters that are installed: the colon-separated STEPFLAME_PYTHONS, else those of pyenv, the system's, the jobs', and free-threaded ones."""

import glob
import os
import subprocess

import helpers
import pytest

SYSTEM = helpers.SYSTEM_PYTHON  # static and stripped


def version_of(python):
    """(3, 11, 7), or () of one that does not start; (3, 15, 1, "t") of a free-threaded one."""
    command = [python, "-c", "import sys; print('%d %d %d' % sys.version_info[:3], 't' * ('t' in sys.abiflags))"]
    found = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return tuple(int(word) if word.isdigit() else word for word in found.stdout.split()) if found.returncode == 0 else ()


def installed():
    """{path: version}, the oldest first."""
    pyenv = glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))
    free = glob.glob(os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "stepflame/python3.*t/bin/python3.*t"))
    paths = os.environ.get("STEPFLAME_PYTHONS", ":".join([helpers.PYTHON, *pyenv, SYSTEM, *free])).split(":")
    versions = {path: version_of(path) for path in paths if os.path.exists(path)}
    return {path: versions[path] for path in sorted(versions, key=versions.get) if versions[path]}


def name(path, version):
    return "%d.%d.%d" % version[:3] + "".join(version[3:]) + " system" * (path == SYSTEM)


VERSIONS = installed()
MINOR = {path: version[1] for path, version in VERSIONS.items()}
SUPPORTED = {name(path, version): path for path, version in VERSIONS.items() if 8 <= version[1] <= 15}
FREE_THREADED = {name: path for name, path in SUPPORTED.items() if VERSIONS[path][3:]}
WITH_GIL = {name: path for name, path in SUPPORTED.items() if name not in FREE_THREADED} or SUPPORTED
OLDEST, NEWEST = [*WITH_GIL.values()][0], [*WITH_GIL.values()][-1]
# For what hardly depends on the version: how each lays out what is read is proven by images of all of them (tests/bpf/test_pystack_images.c), and on
# each that runs by test_dump.py's test_waiting.
FEW = {name: path for name, path in SUPPORTED.items() if helpers.LONG or path in (OLDEST, NEWEST) or name in FREE_THREADED}


def of_minor(*minors):
    """Those of pyenv of these versions."""
    return {name: path for name, path in SUPPORTED.items() if MINOR[path] in minors and path != SYSTEM and name not in FREE_THREADED}


def parametrize(pythons, long=()):
    """long: minor versions that run in `make test-all` alone, as free-threaded ones do."""
    marked = [
        pytest.param(path, marks=pytest.mark.long if MINOR[path] in long or name in FREE_THREADED else (), id=name)
        for name, path in pythons.items()
    ]
    return pytest.mark.parametrize("python", marked)


on_each, on_few = parametrize(SUPPORTED), parametrize(FEW)
