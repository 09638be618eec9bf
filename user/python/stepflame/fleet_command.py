# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The command `stepflame fleet`: python -m stepflame.fleet, once what it needs is there."""

import importlib.util
import runpy
import sys

NEEDED = ("pyarrow", "duckdb", "numpy")


def main() -> None:
    missing = [name for name in NEEDED if not importlib.util.find_spec(name)]
    if missing:
        sys.exit("stepflame: error: stepflame fleet needs %s, which this Python (%s) has not\n  fix: pip install 'stepflame[fleet]'" % (" and ".join(missing), sys.executable))
    sys.argv[:2] = ["stepflame fleet"]
    runpy.run_module("stepflame.fleet", run_name="__main__", alter_sys=False)
