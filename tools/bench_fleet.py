#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
How long DuckDB and Spark take for questions of `stepflame fleet`, on stores that tools/fleet made. docs/fleet.md has the figures.

    tools/bench_fleet.py STORE... [--engine duckdb] [--engine spark] [--master local[2]] [--memory 4GB] [--threads 2]

Prints a line for each store, engine and question: seconds for the first time (files are read) and for the second, and the process's peak of memory.
"""

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "user/python"))
from stepflame.fleet import engine, findings  # noqa: E402

QUESTIONS = {"slow": {"share": findings.SHARE, "deviations": findings.DEVIATIONS, "with_sync": False}, "spend": {"by": engine.Raw("p.job")}}


def one(asked: argparse.Namespace, store: str, name: str) -> None:
    begin = time.monotonic()
    made = engine.Spark(asked.master, asked.memory) if name == "spark" else engine.DuckDB(asked.memory, asked.threads)
    print("%s %s: %.1f s to start" % (store, name, time.monotonic() - begin), flush=True)
    for question, parameters in QUESTIONS.items():
        took = []
        for _ in range(2):
            begin = time.monotonic()
            rows = engine.Fleet(store, made, engine.Scope()).ask(question, **parameters)
            took.append(time.monotonic() - begin)
        print("%s %s %s: %.2f s, then %.2f s; %d rows; %d MB" % (store, name, question, *took, len(rows), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024), flush=True)
    made.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+")
    parser.add_argument("--engine", action="append", choices=("duckdb", "spark"))
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    engines = asked.engine or ["duckdb", "spark"]
    if asked.here:
        return one(asked, asked.stores[0], engines[0])
    for store in asked.stores:
        for name in engines:  # each in a process of its own, for its memory's sake
            subprocess.run([sys.executable, __file__, "--here", store, "--engine", name, "--master", asked.master, "--memory", asked.memory, "--threads", str(asked.threads)], check=True)


if __name__ == "__main__":
    main()
