# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Files that are broken, rows that lie, names that two jobs have: named, left out, counted, and the rest is answered."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import generated
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from stepflame.errors import StepflameError
from stepflame.fleet import cli, report, schema

OPTIONS = ("--ranks", "24", "--hours", "0.25", "--checkpoints", "0")


@pytest.fixture
def store(made, tmp_path):
    source = made.store("small", *OPTIONS, "--steps", "none")
    shutil.copytree(source, tmp_path / "store")
    return tmp_path / "store"


def ask(store: Path, **scope: object) -> report.Answer:
    return report.report(generated.duckdb(str(store), job="train", **scope), "train")


def file_of(store: Path, table: str, host: int) -> Path:
    return next((store / "v1" / table).rglob("node-%05d-10.parquet" % host))


def change(path: Path, rows: object, **columns: object) -> int:
    """Sets columns of the rows that `rows` (of a table) chooses; how many."""
    table = pq.ParquetFile(path).read()
    mask = rows(table)
    for name, value in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pc.if_else(mask, pa.scalar(value, table.schema.field(at).type), table.column(name)))
    pq.write_table(table, path)
    return pc.sum(mask).as_py()


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def without_column(path: Path) -> None:
    pq.write_table(pq.ParquetFile(path).read().drop_columns(["seen_ns"]), path)


def of_text(path: Path) -> None:
    table = pq.ParquetFile(path).read()
    pq.write_table(table.set_column(table.schema.get_field_index("seen_ns"), "seen_ns", pa.array(["much"] * table.num_rows)), path)


def broken_inside(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[200 : len(content) // 2] = b"\xff" * (len(content) // 2 - 200)
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("harm", (truncated, empty, without_column, of_text, broken_inside))
@pytest.mark.parametrize("host", (0, 2))
def test_a_bad_file(store, harm, host):
    """Whether it is the first, from which an engine takes the columns, or not."""
    path = file_of(store, "windows", host)
    harm(path)
    said = ask(store)
    assert said["ranks"] == 16 and said["findings"] == []
    assert len(said["left_out"]) == 1 and said["left_out"][0].startswith("1 file cannot be read: %s: " % path)


def test_all_files_are_bad(store):
    for host in range(3):
        truncated(file_of(store, "windows", host))
    with pytest.raises(StepflameError, match="nothing of job train in the store, but 3 files cannot be read"):
        ask(store)


def test_a_table_that_is_not_there(store):
    for table in ("ranks", "samples", "stacks", "waits", "ops", "actions", "gpu"):
        shutil.rmtree(store / "v1" / table)
    said = ask(store)
    assert said["ranks"] == 24 and said["findings"] == []


@pytest.mark.parametrize("name", ("s[x]", "a*b", "q?", "{a,b}", "it's", "50%41 =c"))
def test_a_store_whose_name_looks_like_a_pattern(store, tmp_path, name):
    named = tmp_path / name
    store.rename(named)
    assert ask(named)["ranks"] == 24
    truncated(file_of(named, "windows", 1))
    said = ask(named)
    assert said["ranks"] == 16 and "1 file cannot be read" in said["left_out"][0]


def test_another_version_beside(store):
    shutil.copytree(store / "v1/windows", store / "v2/windows")
    said = ask(store)
    assert said["ranks"] == 24 and said["left_out"] == ["%s: 3 files of another version of the tables; this program reads v1" % (store / "v2")]


LIES = {
    "negative": {"data_ns": -5},
    "too much was seen": {"seen_ns": 61 * 10**9},
    "phases that do not add up": {"step_ns": 1},
    "sums that overflow": {"forward_ns": 2**63 - 1, "backward_ns": 2**63 - 1, "step_ns": 2**63 - 1},
    "steps": {"steps": -1, "step_ns": 0},
    "memory of the clock": {"gc_ns": 2**62},
    "a GPU that is busier than it can be": {"gpu_busy": 50.0},
    "a clock that is no number": {"gpu_mhz": float("nan")},
    "endless power": {"gpu_watts": float("inf")},
    "a cost that is no number": {"measured": float("nan")},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_host_that_lies(store, lie):
    changed = change(file_of(store, "windows", 1), lambda t: pc.equal(t.column("rank"), 9), **LIES[lie])
    said = ask(store)
    assert changed > 10 and said["ranks"] == 23 and said["findings"] == []
    assert said["left_out"] == ["host node-00001 lies: %d rows of windows cannot be true (out of bounds, in the future, or sums that do not add up)" % changed]
    assert said["hosts_that_lie"] == [{"host": "node-00001", "n": changed}]


def test_compare_names_a_host_that_lies(store):
    changed = change(file_of(store, "windows", 1), lambda t: pc.equal(t.column("rank"), 9), data_ns=-5)
    fleet = generated.duckdb(str(store), job="train")
    said = report.compare(fleet, fleet, ("train", "train"))
    assert len(said["left_out"]) == 1 and said["left_out"][0].startswith("host node-00001 lies: %d rows" % changed)


def test_names_of_tables_have_no_case(store):
    assert generated.duckdb(str(store)).run("SELECT count(DISTINCT host) AS n FROM WINDOWS") == [{"n": 3}]


def test_columns_of_one_name_are_both_there(store):
    rows = generated.duckdb(str(store)).run("SELECT a.host, b.host, a.host AS host_1 FROM windows a JOIN ranks b ON a.host <> b.host LIMIT 1")
    assert [list(row) for row in rows] == [["host", "host_1", "host_1_1"]] and rows[0]["host"] == rows[0]["host_1_1"] != rows[0]["host_1"]


def test_json_has_no_nan(store, capsys):
    query = "SELECT 'nan'::DOUBLE AS a, ['inf'::DOUBLE, 1] AS b, {'c': '-inf'::DOUBLE} AS d FROM windows LIMIT 1"
    assert cli.main(["sql", query, "--json", "--store", str(store)]) == 0
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["rows"] == [{"a": None, "b": [None, 1], "d": {"c": None}}]


def test_minutes_in_the_future(store):
    said = report.report(generated.duckdb(str(store), job="train", now=1793613600 + 10 * 60), "train")  # 2026-11-02 10:10
    assert said["hosts_that_lie"] and said["last_m"] <= 1793613600 // 60 + 12


def test_a_file_of_another_day(store):
    path = file_of(store, "windows", 1)
    other = Path(str(path).replace("date=2026-11-02", "date=2026-11-03"))
    other.parent.mkdir(parents=True)
    path.rename(other)
    said = ask(store)
    assert said["ranks"] == 16 and len(said["hosts_that_lie"]) == 1


@pytest.fixture
def twice(store):
    """A second job of that name on other hosts, at the same time."""
    generated.generate(store, *OPTIONS, "--steps", "none", "--first-host", "10", "--seed", "9", "--step", "0.3")
    return store


def test_two_jobs_with_one_name(twice):
    said = ask(twice)
    assert said["findings"] == []
    groups = [set(group["hosts"]) for group in said["twice"]]
    assert groups == [{"node-%05d" % i for i in range(3)}, {"node-%05d" % i for i in range(10, 13)}]
    text = " ".join(report.report_text(said).split())
    assert "--host node-00000,node-00001,node-00002" in text and "nothing is said of ranks" in text
    one = ask(twice, hosts=tuple(sorted(groups[0])))
    assert one["ranks"] == 24 and one["hosts"] == 3 and one["twice"] == []
    assert report.hosts(generated.duckdb(str(twice)))["jobs_of_one_name"] == ["train"]


def test_two_jobs_with_one_name_of_two_users(twice):
    for host in range(10, 13):
        change(file_of(twice, "ranks", host), lambda t: pc.is_valid(t.column("pid")), uid=77)
    said = ask(twice)
    assert {group["uid"] for group in said["twice"]} == {77, 1000}
    assert ask(twice, uid=77)["hosts"] == 3
    assert report.ops(generated.duckdb(str(twice), uid=77), 1)["ops"][0]["processes"] == 24


def test_ranks_that_began_anew(store):
    """All ranks get other processes after five minutes: one history each, no second job, nobody to blame."""
    for host in range(3):
        for table in ("windows", "waits", "samples"):
            path = file_of(store, table, host)
            rows = pq.ParquetFile(path).read()
            later = pc.greater_equal(rows.column("minute"), pa.scalar(1793613600 + 300, pa.timestamp("s", "UTC")).cast(rows.schema.field("minute").type))
            pids = pc.if_else(later, pc.add(rows.column("pid"), 1000), rows.column("pid")).cast(pa.int32())
            pq.write_table(rows.set_column(rows.schema.get_field_index("pid"), rows.schema.field("pid"), pids), path)
        change(file_of(store, "ranks", host), lambda t: pc.is_valid(t.column("pid")), ending="killed by SIGKILL")
    said = ask(store)
    assert said["ranks"] == 24 and said["processes"] == 48 and said["twice"] == [] and said["findings"] == []
    assert len(said["restarts"]) == 24 and all(r["ending"] == "killed by SIGKILL" and r["before"] + 1000 == r["pid"] for r in said["restarts"])


def test_clocks_that_disagree(made):
    store = made.store("skew", *OPTIONS, "--steps", "all", "--skew", "1=100", "2=-0.5")
    said = ask(Path(store))
    assert said["findings"] == [] and said["clocks"] == {"node-00001": pytest.approx(100, abs=0.05), "node-00002": pytest.approx(-0.5, abs=0.05)}
    assert "Clocks" in report.report_text(said)


def test_of_two_clocks_nobody_knows_which_is_wrong(tmp_path):
    store = generated.generate(tmp_path, "--ranks", "2", "--hours", "0.2", "--checkpoints", "0", "--skew", "0=0")
    part = store / "v1"
    for path in sorted(part.rglob("node-*.parquet")):
        table = pq.ParquetFile(path).read()
        two = []
        for rank, host in enumerate(("node-a", "node-b")) if "rank" in table.schema.names else ():
            rows = table.filter(pc.equal(table.column("rank"), rank))
            for name in rows.schema.names:
                at = rows.schema.get_field_index(name)
                if name == "host":
                    rows = rows.set_column(at, rows.schema.field(at), pa.array([host] * len(rows), rows.schema.field(at).type))
                elif rank and pa.types.is_timestamp(rows.schema.field(at).type):
                    rows = rows.set_column(at, rows.schema.field(at), pc.add(rows.column(at), pa.scalar(120 * 10**6, pa.duration("us"))))
            two.append((host, rows))
        for host, rows in two:
            pq.write_table(rows, path.with_name(host + "-10.parquet"))
        if two:
            path.unlink()
    said = ask(store)
    assert {host: round(seconds) for host, seconds in said["clocks"].items()} == {"node-a": -60, "node-b": 60} and said["findings"] == []
    assert "Clocks      of the two hosts are 120 s apart, and that of node-b is ahead; whole minutes" in report.report_text(said)


def test_names_that_somebody_else_wrote(tmp_path):
    name = "h'1\n\x1b[31m\"; DROP TABLE windows --"
    rows = []
    for rank in range(4):
        for minute in range(12):
            own = 400 + (200 if rank == 2 else 0)
            at = {"job": "j", "host": name if rank == 2 else "h%d" % rank, "pid": 5 + rank, "rank": rank, "minute": 1793527200000000 + minute * 60000000}
            rows.append({**at, "seen_ns": 60 * 10**9, "steps": 60, "step_ns": 60 * 10**9, "longest_ns": 10**9, "forward_ns": own * 10**8, "comm_ns": (600 - own) * 10**8})
    from stepflame.fleet import store

    path = generated.recording(tmp_path, "r", {"windows": generated.as_exported(rows, "windows")})
    counts = store.Import(tmp_path / "store", "c", generated.program(tmp_path)).run([path])
    assert not counts.left_out
    fleet = generated.duckdb(str(tmp_path / "store"), job="j")
    said = report.report(fleet, "j")
    assert [finding["hosts"] for finding in said["findings"]] == [[name]]
    text = report.report_text(said)
    assert "\x1b" not in text and "h'1??[31m" in text.replace("\n", "")
    assert report.report(generated.duckdb(str(tmp_path / "store"), job="j", hosts=(name,)), "j")["ranks"] == 1


@pytest.mark.parametrize(
    "words, status, said",
    (
        (["report", "train", "--store", "/nonexistent"], 1, "stepflame: error: /nonexistent is no store: there is no folder v1 in it\n  fix: stepflame fleet import"),
        (["report", "nothing"], 1, "there is nothing of job nothing in the store"),
        (["report", "train", "--since", "yesterday"], 2, "--since yesterday: it is no time"),
        (["sql", "SELECT nonsense"], 1, "stepflame: error: the query failed: Binder Error"),
        (["sql", "SELECT"], 1, "stepflame: error: the query failed: Parser Error"),
        (["spend", "--memory", "much"], 2, "--memory much: "),
    ),
)
def test_errors_say_what_why_and_the_fix(made, capsys, words, status, said):
    store = [] if "--store" in words else ["--store", made.store("small", *OPTIONS, "--steps", "none")]
    assert cli.main([*words, *store]) == status
    printed = capsys.readouterr().err
    assert said in printed and "\n  fix: " in printed and "Traceback" not in printed


def test_schema_differences():
    for name, table in schema.TABLES.items():
        assert schema.differences(table.schema, name) == ""
        assert schema.differences(table.schema.remove(0), name)
