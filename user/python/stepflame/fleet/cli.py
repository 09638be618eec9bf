# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""python -m stepflame.fleet: recordings of many hosts into a store, and the questions that it answers."""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import sys
from typing import Any

from .. import program
from ..errors import StepflameError
from . import report, text
from .engine import DuckDB, Engine, Fleet, Scope, Spark
from .store import STATE_FOLDER, Import


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="stepflame fleet", description=__doc__.partition(": ")[2])
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    store = argparse.ArgumentParser(add_help=False)
    store.add_argument("--store", default=os.environ.get("STEPFLAME_STORE", "stepflame-store"), metavar="FOLDER", help="default $STEPFLAME_STORE, else stepflame-store")
    ask = argparse.ArgumentParser(add_help=False, parents=[store])
    ask.add_argument("--cluster", help="only this one")
    ask.add_argument("--since", metavar="TIME", help="UTC, such as 2026-11-02T10:20")
    ask.add_argument("--until", metavar="TIME")
    ask.add_argument("--host", metavar="HOST,HOST", help="only these")
    ask.add_argument("--uid", type=int, help="only jobs of this user")
    ask.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb")
    ask.add_argument("--master", metavar="URL", help="of Spark: local[2], spark://HOST:7077, yarn, ... (default: that of Spark's own settings)")
    ask.add_argument("--memory", metavar="SIZE", help="of the engine here, default 4GB: beyond it DuckDB uses the disk; of each executor of a cluster (default: that of Spark's own settings)")
    ask.add_argument("--threads", type=int, metavar="N", help="of DuckDB (default: all processors)")
    ask.add_argument("--json", action="store_true", help="all that is known, as one object")

    command = commands.add_parser("import", parents=[store], help="recordings, or a folder of stepflame watch, into the store")
    command.add_argument("sources", nargs="*", default=[STATE_FOLDER], metavar="RECORDING|FOLDER", help="default " + STATE_FOLDER)
    command.add_argument("--cluster", default=os.environ.get("STEPFLAME_CLUSTER", "default"), help="whose hosts these are (default $STEPFLAME_CLUSTER, else default)")
    command.add_argument("--no-steps", dest="steps", action="store_false", help="without a row for each step: nine tenths of the size; what ranks do by minutes is all there")
    command.add_argument("--again", action="store_true", help="also recordings that were imported and have not changed")
    command.add_argument("--json", action="store_true")
    commands.add_parser("report", parents=[ask], help="how a job runs, and what holds it up").add_argument("job")
    command = commands.add_parser("compare", parents=[ask], help="what got slower between two jobs, or two times of one")
    for name in ("a", "b"):
        command.add_argument(name, metavar=name.upper(), help="JOB, or JOB@FROM..TO with times in UTC")
    commands.add_parser("hosts", parents=[ask], help="which hosts are slow in each job that they get")
    commands.add_parser("spend", parents=[ask], help="where the hours of the ranks go").add_argument("--by", choices=("job", "user", "host"), default="job")
    commands.add_parser("ops", parents=[ask], help="which operators take most time, in all jobs").add_argument("--limit", type=int, default=20, metavar="N")
    command = commands.add_parser("sql", parents=[ask], help="a query of your own")
    command.add_argument("query")
    command.add_argument("--csv", action="store_true")
    command = commands.add_parser("page", parents=[ask], help="ranks against time, as a page for a browser")
    command.add_argument("job")
    command.add_argument("-o", "--output", default="fleet.html", metavar="FILE")
    return top


def scope_of(asked: argparse.Namespace, job: str | None) -> Scope:
    since, until = (text.minute_of(value, option) if value else None for value, option in ((asked.since, "--since"), (asked.until, "--until")))
    return Scope(job, asked.cluster, since, until, asked.uid, tuple(asked.host.split(",")) if asked.host else ())


def part_of(asked: argparse.Namespace, word: str) -> Scope:
    """JOB, or JOB@FROM..TO"""
    job, at, times = word.rpartition("@")
    if not at or ".." not in times:
        return scope_of(asked, word)
    asked = argparse.Namespace(**vars(asked))
    asked.since, _, asked.until = times.partition("..")
    return scope_of(asked, job)


def engine_of(asked: argparse.Namespace) -> Engine:
    if asked.engine == "spark":
        return Spark(asked.master, asked.memory)
    return DuckDB(asked.memory, asked.threads)


def as_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, (datetime.date, datetime.datetime)) else sorted(value) if isinstance(value, set) else str(value)


def answer(asked: argparse.Namespace, engine: Engine) -> None:
    if asked.command == "compare":
        scopes = [part_of(asked, word) for word in (asked.a, asked.b)]
        # one after the other: both have views of the same names
        said = report.compare(Fleet(asked.store, engine, scopes[0]), Fleet(asked.store, engine, scopes[1]), (asked.a, asked.b))
    else:
        fleet = Fleet(asked.store, engine, scope_of(asked, getattr(asked, "job", None)))
        if asked.command == "sql":
            return sql(fleet, asked)
        if asked.command == "page":
            from . import page

            return page.write(fleet, asked.job, asked.output)
        said = {
            "report": lambda: report.report(fleet, asked.job),
            "hosts": lambda: report.hosts(fleet),
            "spend": lambda: report.spend(fleet, asked.by),
            "ops": lambda: report.ops(fleet, asked.limit),
        }[asked.command]()
    if asked.json:
        print(json.dumps(said, default=as_json))
        return
    print(getattr(report, asked.command + "_text")(said))
    for number, left_out in enumerate(said["left_out"][:8]):
        print(text.paragraph("" if number else "Left out", text.line(left_out)))


def sql(fleet: Fleet, asked: argparse.Namespace) -> None:
    rows = fleet.run(asked.query)
    if asked.json:
        print(json.dumps({"rows": rows, "left_out": fleet.left_out()}, default=as_json))
    elif asked.csv:
        out = csv.DictWriter(sys.stdout, list(rows[0]) if rows else [], lineterminator="\n")
        out.writeheader()
        out.writerows(rows)
    else:
        print(text.table(list(rows[0]), [list(row.values()) for row in rows]) if rows else "no rows")
    if not asked.json:
        for left_out in fleet.left_out():
            print("left out: " + text.line(left_out), file=sys.stderr)


def bring(asked: argparse.Namespace) -> int:
    counts = Import(asked.store, asked.cluster, program.path(), asked.again, asked.steps).run(asked.sources)
    said = {
        "recordings": counts.recordings, "unchanged": counts.unchanged, "files": counts.files, "hosts": sorted(counts.hosts), "jobs": sorted(counts.jobs),
        "minutes": len(counts.minutes), "in_parts": counts.in_parts, "without_window": counts.without_window, "left_out": counts.left_out,
    }  # fmt: skip
    if asked.json:
        print(json.dumps(said))
        return 1 if counts.left_out and not counts.recordings + counts.unchanged else 0
    print("%s imported, %d unchanged since the last time: %s of processes of %s on %s; %s written in %s" % (
        text.count(counts.recordings, "recording"), counts.unchanged, text.count(len(counts.minutes), "minute"), text.count(len(counts.jobs), "job"),
        text.count(len(counts.hosts), "host"), text.count(counts.files, "file"), asked.store))  # fmt: skip
    if counts.in_parts:
        print("at most %s that two recordings have saw different parts of: the larger part stays" % text.count(counts.in_parts, "minute"))
    if counts.without_window:
        print("%s of minutes without a row in windows left out" % text.count(counts.without_window, "row"))
    for left_out in counts.left_out:
        print("left out: " + text.line(left_out), file=sys.stderr)
    return 1 if counts.left_out and not counts.recordings + counts.unchanged else 0


def main(words: list[str] | None = None) -> int:
    asked = parser().parse_args(words)
    try:
        if asked.command == "import":
            return bring(asked)
        engine = engine_of(asked)
        try:
            answer(asked, engine)
        finally:
            engine.close()
    except StepflameError as error:
        print("stepflame: error: %s" % error, file=sys.stderr)
        return 2 if error.status == 2 else 1
    except BrokenPipeError:  # head has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return 0
