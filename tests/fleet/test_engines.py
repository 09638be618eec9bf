# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""DuckDB, Spark and ClickHouse (chdb) read the same files and give the same answers."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path
from typing import Any

import generated
import pytest
from stepflame.fleet import engine, report

ALONE = {"ranks": [70], "hosts": ["node-00008"], "minutes": [29893575, 29893576, 29893577]}
BESIDE = {**ALONE, "others": ["node-00001", "node-00002"]}
PARAMETERS: dict[str, dict[str, Any]] = {
    "slow": {"share": 0.03, "deviations": 6, "with_sync": True},
    "links": {"share": 0.03, "deviations": 6},
    "clocks": {"deviations": 6},
    "stall_ranks": {"m": 29893604, "lost": 29.8e9},
    "alone": ALONE,
    "places": BESIDE,
    "stacks": BESIDE,
    "steps_of": BESIDE,
    "ops": {"limit": 1000},
    "spend": {"by": engine.Raw("p.job")},
}
MAY_BE_EMPTY = {"twice"}


@pytest.fixture(scope="session")
def spark():
    pytest.importorskip("pyspark", reason="no pyspark: pip install pyspark")
    if not shutil.which("java"):
        pytest.skip("no Java, which Spark needs")
    found = engine.Spark("local[2]", "2GB")
    yield found
    found.close()


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6)
    return a == b


def compare(ones: list[engine.Row], others: list[engine.Row]) -> None:
    assert len(ones) == len(others)
    for one, other in zip(ones, others):
        assert one.keys() == other.keys()
        assert all(same(one[key], other[key]) for key in one), (one, other)


@pytest.mark.long
@pytest.mark.parametrize("question", sorted(path.stem for path in engine.QUESTIONS.glob("*.sql") if not path.stem.startswith("page_")))
def test_spark_answers_as_duckdb_does(made, spark, question):
    store = made.all_of(generated.PLANTS)
    scope = engine.Scope(job="train")
    answers = [engine.Fleet(store, e, scope).ask(question, **PARAMETERS.get(question, {})) for e in (engine.DuckDB("2GB", 2), spark)]
    compare(*answers)
    assert answers[0] or question in MAY_BE_EMPTY


@pytest.mark.long
def test_spark_finds_what_duckdb_finds(made, spark):
    store = made.all_of(generated.PLANTS)
    said = [report.report(engine.Fleet(store, e, engine.Scope(job="train")), "train") for e in (engine.DuckDB("2GB", 2), spark)]
    assert len(said[0]["findings"]) == 5 and [f["said"] for f in said[0]["findings"]] == [f["said"] for f in said[1]["findings"]]
    assert [f["because"] for f in said[0]["findings"]] == [f["because"] for f in said[1]["findings"]]


@pytest.mark.long
def test_spark_leaves_bad_files_and_rows_out(made, spark, tmp_path):
    shutil.copytree(made.store("small", "--ranks", "24", "--hours", "0.25", "--checkpoints", "0", "--steps", "none"), tmp_path / "store")
    path = next((tmp_path / "store/v1/windows").rglob("node-00001-10.parquet"))
    path.write_bytes(path.read_bytes()[:1000])
    said = report.report(engine.Fleet(str(tmp_path / "store"), spark, engine.Scope(job="train")), "train")
    assert said["ranks"] == 16 and len(said["left_out"]) == 1 and str(path) in said["left_out"][0]


@pytest.mark.long
def test_clickhouse_reads_the_same_files(made):
    chdb = pytest.importorskip("chdb", reason="no chdb: pip install chdb")
    store = made.all_of(generated.PLANTS)
    fleet = generated.duckdb(store)
    for table, sums in (
        ("windows", "count(*), sum(seen_ns), sum(step_ns), sum(comm_ns), sum(steps)"),
        ("steps", "count(*), sum(duration_ns), sum(wait_collective_ns), max(step)"),
        ("waits", "count(*), sum(ns)"),
        ("samples", "count(*), sum(n), sum(weight_ns)"),
        ("ops", "count(*), sum(n), sum(self_ns)"),
        ("ranks", "count(*), sum(world_size), max(pid)"),
    ):
        ours = list(fleet.run("SELECT %s FROM %s" % (sums, table))[0].values())
        files = Path(store) / "v1" / table / "date=*/cluster=*/job=*/*.parquet"
        theirs = chdb.query("SELECT %s FROM file('%s', Parquet)" % (sums, files), "CSV").bytes().decode()
        assert [int(word) for word in re.split("[,\n]", theirs.strip())] == ours, table
    theirs = chdb.query("SELECT host, sum(ns) FROM file('%s', Parquet) WHERE cause = 'collective' GROUP BY host ORDER BY host" % str(files).replace("ranks", "waits"), "CSV").bytes().decode()
    ours = fleet.run("SELECT host, sum(ns) AS ns FROM waits WHERE cause = 'collective' GROUP BY host ORDER BY host")
    assert theirs == "".join('"%s",%d\n' % (row["host"], row["ns"]) for row in ours)


def test_memory_is_bounded_by_the_disk(made, tmp_path):
    """A query that wants more than it may have uses the disk, and its answer is the same."""
    store = made.all_of(generated.PLANTS)
    query = "SELECT count(*) AS n, sum(r) AS s FROM (SELECT row_number() OVER (ORDER BY a.step_ns + b.step_ns, a.m, b.m, a.who) AS r FROM windows a JOIN windows b ON a.host = b.host AND a.m BETWEEN b.m - 1 AND b.m + 1)"
    answers = [engine.Fleet(store, engine.DuckDB(memory, 1), engine.Scope(job="train")).run(query) for memory in ("2GB", "60MB")]
    assert answers[0] == answers[1] and answers[0][0]["n"] > 100000


def test_times_come_in_utc(made):
    rows = generated.duckdb(made.plain()).run("SELECT min(minute) AS first, date FROM windows GROUP BY date")
    assert [(row["first"].isoformat(), row["date"]) for row in rows] == [("2026-11-02T10:00:00+00:00", "2026-11-02")]


def test_only_the_asked_part_is_read(made):
    fleet = generated.duckdb(made.plain(), job="train", since=29893570, until=29893580)
    assert fleet.run("SELECT min(m) AS a, max(m) AS b FROM windows") == [{"a": 29893570, "b": 29893579}]
    assert generated.duckdb(made.plain(), job="train", cluster="other").run("SELECT count(*) AS n FROM windows") == [{"n": 0}]
