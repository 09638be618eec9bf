# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""DuckDB, Spark and ClickHouse (chdb) read the same files and give the same answers."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from typing import Any

import generated
import helpers
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from stepflame.errors import StepflameError
from stepflame.fleet import engine, report, store

ALONE = {"ranks": [70], "hosts": ["node-00008"], "minutes": [29893575, 29893576, 29893577]}
BESIDE = {**ALONE, "others": ["node-00001", "node-00002"]}
PARAMETERS: dict[str, dict[str, Any]] = {
    "slow": {"share": 0.03, "deviations": 6, "with_sync": True},
    "links": {"share": 0.03, "deviations": 6},
    "clocks": {"deviations": 6},
    "stall_ranks": {"m": 29893604, "lost": 29.8e9},
    "alone": {**ALONE, "gpus": ["NVIDIA H100 80GB HBM3"]},
    "places": BESIDE,
    "stacks": BESIDE,
    "steps_of": BESIDE,
    "ops": {"limit": 1000, "twice": engine.Raw("('', '', '', 0, 0)"), "since_us": engine.Raw("0")},
    "recordings": {"all": True, "hosts": (), "most": 3},
    "spend": {"by": engine.Raw("p.job")},
}
MAY_BE_EMPTY = {"twice", "recordings", "ops_spans"}


@pytest.fixture(scope="session")
def spark():
    pytest.importorskip("pyspark", reason="no pyspark: pip install pyspark")
    if not shutil.which("java"):
        pytest.skip("no Java, which Spark needs")
    found = engine.Spark("local[2]", "2GB")
    yield found
    found.close()


def compare(ones: list[engine.Row], others: list[engine.Row]) -> None:
    assert len(ones) == len(others)
    for one, other in zip(ones, others):
        assert one.keys() == other.keys()
        assert all(generated.same(one[key], other[key]) for key in one), (one, other)


@pytest.mark.long
@pytest.mark.parametrize("question", sorted(path.stem for path in engine.QUESTIONS.glob("*.sql") if not path.stem.startswith(("page_", "totals"))))
def test_spark_answers_as_duckdb_does(made, spark, question):
    store = made.all_of(generated.PLANTS)
    scope = engine.Scope(job="train")
    answers = [engine.Fleet(store, e, scope).ask(question, **PARAMETERS.get(question, {})) for e in (engine.DuckDB("2GB", 2), spark)]
    compare(*answers)
    assert answers[0] or question in MAY_BE_EMPTY


@pytest.mark.long
@pytest.mark.parametrize("table", ("actions", "ops"))
def test_spark_adds_up_as_duckdb_does(made, spark, table):
    store = made.all_of(generated.PLANTS)
    answers = [report.totals(engine.Fleet(store, e, engine.Scope(job="train")), table) for e in (engine.DuckDB("2GB", 2), spark)]
    compare(*answers)
    assert answers[0]


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


SUMS = {
    "windows": "count(*), sum(seen_ns), sum(step_ns), sum(comm_ns), sum(oncpu_ns)",
    "steps": "count(*), sum(duration_ns), sum(wait_collective_ns), max(step), sum(gc_ns)",
    "samples": "count(*), sum(n), sum(weight_ns), min(stack), max(stack)",
    "waits": "count(*), sum(ns), min(place)",
    "recordings": "count(*), sum(bytes), max(machine)",
}


@pytest.fixture(scope="module")
def real_store(tmp_path_factory):
    """What an import writes, of real jobs: its encodings are others than the generator's."""
    folder = tmp_path_factory.mktemp("real")
    counts = store.Import(folder, "c", str(helpers.STEPFLAME)).run([generated.ROOT / "tests/data/recordings" / (name + ".rec") for name in ("ddp0", "ddp1", "fit", "loaders")])
    assert counts.recordings == 4
    return folder


def sums_of(found: pa.Table, words: str) -> list[Any]:
    how = {"sum": pa.compute.sum, "min": pa.compute.min, "max": pa.compute.max}
    return [found.num_rows if word == "count(*)" else how[word[:3]](found.column(word[4:-1])).as_py() for word in words.split(", ")]


@pytest.mark.parametrize("table", SUMS)
def test_duckdb_and_polars_read_what_an_import_writes(real_store, table):
    import polars

    files = sorted(str(path) for path in (real_store / "v1" / table).rglob("*.parquet"))
    theirs = sums_of(pa.concat_tables([pq.ParquetFile(file).read() for file in files]), SUMS[table])
    assert theirs[0] > 3 and list(generated.duckdb(str(real_store)).run("SELECT %s FROM %s" % (SUMS[table], table))[0].values()) == theirs
    assert sums_of(polars.read_parquet(files).to_arrow(), SUMS[table]) == theirs


@pytest.mark.long
def test_spark_reads_what_an_import_writes(real_store, spark):
    ours, theirs = (engine.Fleet(str(real_store), e, engine.Scope()) for e in (engine.DuckDB("2GB", 2), spark))
    for table, sums in SUMS.items():
        words = ", ".join("%s AS c%d" % (word, i) for i, word in enumerate(sums.split(", ")))
        assert ours.run("SELECT %s FROM %s" % (words, table)) == theirs.run("SELECT %s FROM %s" % (words, table)), table


@pytest.mark.long
def test_clickhouse_reads_what_an_import_writes(real_store):
    chdb = pytest.importorskip("chdb", reason="no chdb: pip install chdb")
    for table, sums in SUMS.items():
        ours = list(generated.duckdb(str(real_store)).run("SELECT %s FROM %s" % (sums, table))[0].values())
        theirs = chdb.query("SELECT %s FROM file('%s', Parquet)" % (sums, real_store / "v1" / table / "date=*/cluster=*/job=*/*.parquet"), "CSV").bytes().decode()
        assert next(csv.reader([theirs])) == [str(value) for value in ours], table


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


BEGAN = 1793527200  # 2026-11-01 10:00


def imported(folder: Path, host: str, job: str = "j", cluster: str = "c", uid: int = 1000, begin: int = 0, pid: int = 5) -> str:
    """Ten minutes of a process from minute `begin` on, brought into folder/store."""
    at = {"job": job, "host": host, "pid": pid, "rank": 0}
    minutes = [{**at, "minute": (BEGAN + minute * 60) * 10**6, "seen_ns": 60 * 10**9, "steps": 600, "step_ns": 60 * 10**9, "longest_ns": 10**8, "forward_ns": 60 * 10**9} for minute in range(begin, begin + 10)]
    whole = {**at, "since": (BEGAN + begin * 60 + 30) * 10**6, "until": (BEGAN + (begin + 10) * 60 - 30) * 10**6}
    counted = {**whole, "kind": "op", "name": "mm", "n": 5}
    rows = {"windows": minutes, "ranks": [{**whole, "uid": uid}], "actions": [counted], "ops": [counted], "gpu": [counted]}
    name = "r%d" % len(list(folder.glob("*.rec")))
    path = generated.recording(folder, name, {table: generated.as_exported(its, table) for table, its in rows.items()})
    counts = store.Import(folder / "store", cluster, generated.program(folder)).run([path])
    assert counts.recordings == 1 and not counts.left_out
    return str(folder / "store")


@pytest.mark.parametrize("other", ({"job": "new", "begin": 20}, {"cluster": "c2"}))
def test_hours_are_of_the_user_of_that_job(tmp_path, other):
    """Another user's process may have the host's name and the number, too: later, or in another cluster."""
    imported(tmp_path, "h")
    path = imported(tmp_path, "h", uid=2000, **other)
    by_user = report.spend(generated.duckdb(path), "user")["rows"]
    assert [(row["name"], row["processes"], row["hours"]) for row in by_user] == [(uid, 1, pytest.approx(1 / 6)) for uid in (1000, 2000)]
    asked = generated.duckdb(path, uid=2000).run("SELECT DISTINCT cluster, job FROM windows")
    assert asked == [{"cluster": other.get("cluster", "c"), "job": other.get("job", "j")}]
    if "cluster" in other:
        assert sorted(row["uid"] for row in generated.duckdb(path).ask("processes")) == [1000, 2000]


OVERLAPS = (
    # since, until of recordings of one process; those of them that count
    ([(0, 10), (5, 30), (30, 40)], [1, 2]),
    ([(0, 10), (9, 12), (11, 30)], [0, 2]),
    ([(0, 10), (10, 20)], [0, 1]),
    ([(0, 10), (0, 20)], [1]),
)


def counted_twice(folder: Path, its_engine: engine.Engine) -> None:
    """Two recordings of a process at one time count once; those of another process, or another job's, all."""
    for number, (spans, counts) in enumerate(OVERLAPS):
        rows = []
        for job, pid, its in (("j", 5, spans), ("j", 6, spans[:1]), ("it's", 5, spans[:1])):
            rows += [{"job": job, "host": "h", "pid": pid, "since": (BEGAN + 60 * a) * 10**6 + 7, "until": (BEGAN + 60 * b) * 10**6, "kind": "op", "name": "mm", "n": 10**i, "self_ns": 1, "action": action}
                     for i, (a, b) in enumerate(its) for action in ("a", "b")]  # fmt: skip
        where = folder / str(number)
        where.mkdir()
        store.Import(where / "store", "c", generated.program(where)).run([generated.recording(where, "r", {"ops": generated.as_exported(rows, "ops")})])
        said = report.ops(engine.Fleet(str(where / "store"), its_engine, engine.Scope()), 5)
        same_since = len({a for a, _ in spans}) < len(spans)  # then the later count has the earlier in it
        assert [row["n"] for row in said["ops"]] == [2 * (sum(10**i for i in counts) + 2)], spans
        assert len(said["overlapping"]) == (0 if same_since else len(spans) - len(counts)) == len(said["left_out"]), spans


def test_operators_count_once(tmp_path):
    counted_twice(tmp_path, engine.DuckDB("2GB", 2))


@pytest.mark.long
def test_operators_count_once_in_spark(tmp_path, spark):
    counted_twice(tmp_path, spark)


def test_each_table_can_be_asked_of_one_user(tmp_path):
    path = imported(tmp_path, "h")
    for table in ("windows", "actions", "ops", "gpu", "ranks"):
        for uid, rows in ((1000, 1), (7, 0)):
            assert len(generated.duckdb(path, uid=uid).run("SELECT DISTINCT pid FROM " + table)) == rows, table


@pytest.mark.parametrize("since, until, rows", ((None, 0, 0), (None, 1, 1), (5, 6, 1), (9, None, 1), (10, None, 0), (30, 31, 0)))
@pytest.mark.parametrize("began", (0, 14 * 60 - 5))
def test_what_was_counted_is_of_the_times_between_its_beginning_and_its_end(tmp_path, began, since, until, rows):
    """Also across midnight, where it is in the files of the second day."""
    path = imported(tmp_path, "h", begin=began)
    first, last = (None if minute is None else BEGAN // 60 + began + minute for minute in (since, until))
    fleet = generated.duckdb(path, since=first, until=last)
    for table in ("ranks", "actions", "ops", "gpu", "windows"):
        assert len(fleet.run("SELECT DISTINCT pid FROM " + table)) == rows, table


NAMES = ("_h1", ".h2", "-h3", "\u00e4h4", "it's", "it\\", ") OR true --", "${spark.app.name}", "h5\n")


def names_asked(path: str, its_engine: engine.Engine) -> None:
    def hosts(**scope: Any) -> list[str]:
        return sorted(row["host"] for row in engine.Fleet(path, its_engine, engine.Scope(**scope)).run("SELECT DISTINCT host FROM windows"))

    assert hosts() == sorted(NAMES)
    assert [hosts(hosts=(name,)) for name in NAMES] == [[name] for name in NAMES]
    assert hosts(hosts=("it\\", ") OR true --")) == [") OR true --", "it\\"]


@pytest.fixture
def named(tmp_path):
    (tmp_path / "s[x]{a,b}").mkdir()
    return [imported(tmp_path / "s[x]{a,b}", name, pid=number) for number, name in enumerate(NAMES, 1)][-1]


def test_names_of_hosts(named):
    names_asked(named, engine.DuckDB("2GB", 2))


def test_a_backslash_in_the_path_is_said(tmp_path):
    (tmp_path / "a\\b").mkdir()
    path = imported(tmp_path / "a\\b", "h")
    with pytest.raises(StepflameError, match="has a backslash") as error:
        generated.duckdb(path).run("SELECT * FROM windows")
    assert "by a link" in str(error.value)
    (tmp_path / "link").symlink_to(tmp_path / "a\\b")
    assert len(generated.duckdb(str(tmp_path / "link/store")).run("SELECT * FROM windows")) == 10


@pytest.mark.long
def test_names_of_hosts_in_spark(named, spark):
    names_asked(named, spark)
    path = next((Path(named) / "v1/windows").rglob("*_h1-*.parquet"))
    path.write_bytes(path.read_bytes()[:100])
    fleet = engine.Fleet(named, spark, engine.Scope())
    assert len(fleet.run("SELECT DISTINCT host FROM windows")) == len(NAMES) - 1 and len(fleet.left_out()) == 1


@pytest.mark.long
def test_times_and_users_in_spark(tmp_path, spark):
    imported(tmp_path, "h")
    path = imported(tmp_path, "h", cluster="c2", uid=2000, begin=14 * 60 - 5)
    for minute, uid, rows in ((5, 1000, 1), (14 * 60 - 1, 1000, 0), (14 * 60 - 1, 2000, 1), (30, None, 0)):
        scope = engine.Scope(since=BEGAN // 60 + minute, until=BEGAN // 60 + minute + 1, uid=uid)
        for table in ("ranks", "ops", "windows"):
            assert len(engine.Fleet(path, spark, scope).run("SELECT * FROM " + table)) == rows, (table, minute, uid)
