# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The command `stepflame fleet`: python -m stepflame.fleet, and what to do where it lacks a package."""

import runpy
import sys


def main() -> None:
    sys.argv[:2] = ["stepflame fleet"]
    try:
        runpy.run_module("stepflame.fleet", run_name="__main__")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("stepflame"):
            raise
        sys.exit("stepflame: error: stepflame fleet needs %s, which this Python (%s) has not\n  fix: pip install pyarrow duckdb numpy" % (error.name, sys.executable))
