# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The import: its layout, its rules where two recordings have the same minutes, and that neither being killed nor another import undoes anything."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import generated
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stepflame.fleet import schema, store

HOUR = 1793527200000000  # 2026-11-01 10:00 UTC, us
MINUTE = 60000000


def minutes(seen_s: dict[int, float], pid: int = 7, mark: int = 1, host: str = "h1", job: str = "j", since: int = HOUR, rank: int | None = 0) -> dict[str, pa.Table]:
    """A recording that saw so much of each minute; `mark` is in all of its rows."""
    rows: dict[str, list[dict[str, object]]] = {name: [] for name in schema.TABLES}
    key = {"job": job, "host": host, "pid": pid, "rank": rank}
    for minute, seen in seen_s.items():
        at = {**key, "minute": HOUR + minute * MINUTE}
        rows["windows"].append({**at, "seen_ns": int(seen * 1e9), "steps": 2, "step_ns": 2 * mark, "forward_ns": 2 * mark, "longest_ns": mark})
        rows["steps"] += [{**at, "start": HOUR + minute * MINUTE + i, "step": i, "duration_ns": mark * store.TICK, "forward_ns": mark * store.TICK} for i in range(2)]
        rows["waits"].append({**at, "phase": "data", "cause": "poll", "place": "a.py:1 f", "ns": mark})
        rows["samples"].append({**at, "phase": "data", "main": True, "stack": mark, "n": 1, "weight_ns": mark})
    rows["stacks"].append({"stack": mark, "frames": ["a.py:1 main", "a.py:%d f" % mark]})
    last = HOUR + (max(seen_s) + 1) * MINUTE - 1
    rows["ranks"].append({**key, "since": since, "until": last, "stepflame": "0", "kernel": "6"})
    rows["actions"].append({**key, "since": HOUR, "until": last, "kind": "label", "name": "a", "n": mark, "total_ns": mark})
    return {name: generated.as_exported(its, name) for name, its in rows.items()}


class Bench:
    def __init__(self, folder: Path):
        folder.mkdir(exist_ok=True)
        self.folder, self.store, self.program, self.made = folder, folder / "store", generated.program(folder), 0

    def recording(self, tables: dict[str, pa.Table]) -> Path:
        self.made += 1
        return generated.recording(self.folder, "r%d" % self.made, tables)

    def bring(self, *paths: Path, again: bool = True) -> store.Counts:
        return store.Import(self.store, "c", self.program, again).run(paths)

    def rows(self, table: str, job: str = "j", file: str = "h1-10") -> list[dict[str, object]]:
        return pq.ParquetFile(self.store / "v1" / table / "date=2026-11-01/cluster=c" / ("job=" + job) / (file + ".parquet")).read().to_pylist()


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def marks(bench: Bench, table: str) -> dict[int, set[int]]:
    """By minute, of which recording its rows are."""
    column = {"windows": "longest_ns", "steps": "duration_ns", "waits": "ns", "samples": "weight_ns"}[table]
    found: dict[int, set[int]] = {}
    for row in bench.rows(table):
        found.setdefault((int(row["minute"].timestamp() * 1e6) - HOUR) // MINUTE, set()).add(row[column] // (store.TICK if table == "steps" else 1))
    return found


def test_layout(bench):
    tables = minutes({58: 60, 59: 60, 60: 60}, host="a/b", job="my job")
    counts = bench.bring(bench.recording(tables))
    assert counts.recordings == 1 and not counts.left_out and len(counts.minutes) == 3
    files = sorted(str(path.relative_to(bench.store / "v1")) for path in (bench.store / "v1").rglob("*.parquet"))
    two = ["%s/date=2026-11-01/cluster=c/job=my_job/a_b-%d.parquet" % (table, hour) for table in ("samples", "stacks", "steps", "waits", "windows") for hour in (10, 11)]
    one = ["%s/date=2026-11-01/cluster=c/job=my_job/a_b-11.parquet" % table for table in ("actions", "ranks", "recordings")]
    assert files == sorted(one + two)
    rows = bench.rows("steps", "my_job", "a_b-10")
    assert len(rows) == 4 and set(rows[0]) == set(schema.TABLES["steps"].schema.names) and rows[0]["host"] == "a/b"
    assert bench.rows("stacks", "my_job", "a_b-10") == [{"stack": 1, "frames": ["a.py:1 main", "a.py:1 f"]}]


def test_again_changes_nothing(bench):
    path = bench.recording(minutes({0: 30, 1: 60}))
    bench.bring(path)
    before, times = generated.content(bench.store), {path: path.stat().st_mtime_ns for path in bench.store.rglob("*.parquet")}
    assert bench.bring(path).files == 0
    assert generated.content(bench.store) == before and {path: path.stat().st_mtime_ns for path in bench.store.rglob("*.parquet")} == times
    assert bench.bring(path, again=False).unchanged == 1


@pytest.mark.parametrize("order", ([1, 2], [2, 1], [1, 2, 1], [2, 1, 2]))
def test_who_saw_more_of_a_minute_wins_with_all_its_rows(bench, order):
    paths = {1: bench.recording(minutes({0: 60, 1: 60, 2: 10}, mark=1)), 2: bench.recording(minutes({1: 20, 2: 45, 3: 60}, mark=2, since=HOUR + 5))}
    counts = [bench.bring(paths[which]) for which in order]
    for table in ("windows", "steps", "waits", "samples"):
        assert marks(bench, table) == {0: {1}, 1: {1}, 2: {2}, 3: {2}}, table
    assert counts[1].in_parts == 1  # 10 and 45 s of minute 2 may be different ones; of minute 1 all is there
    assert [row["stack"] for row in bench.rows("stacks")] == [1, 2]


def test_documented():
    """docs/tables.md names each column of the table that only a store has, and no other."""
    section = (generated.ROOT / "docs/tables.md").read_text().partition("\n## `recordings`\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", section, re.M)
    assert ["host", "pid", "rank", *re.findall(r"`(\w+)`", " ".join(cells))] == schema.TABLES["recordings"].schema.names


def test_rows_say_of_which_recording_they_are(bench):
    """A file by the place where it was read, its size and time; of a ring, which loses its beginning, what it has now."""
    ring, event = (bench.recording(minutes(seen, since=HOUR + begin * MINUTE)) for begin, seen in ((0, {0: 60, 1: 60}), (1, {1: 60})))
    bench.bring(ring, event)
    status = ring.stat()
    rows = {row["path"]: row for row in bench.rows("recordings")}
    assert set(rows) == {str(ring), str(event)} and len(bench.rows("recordings")) == 2
    row = rows[str(ring)]
    assert (row["host"], row["pid"], row["rank"], row["machine"], row["bytes"]) == ("h1", 7, 0, os.uname().nodename, status.st_size)
    assert [int(row[key].timestamp() * 1e6) for key in ("since", "until", "modified")] == [HOUR, HOUR + 2 * MINUTE - 1, status.st_mtime_ns // 1000]
    later = bench.recording(minutes({1: 60, 2: 60}, since=HOUR + MINUTE))
    os.replace(later, ring)
    bench.bring(ring)
    asked = generated.duckdb(str(bench.store)).ask("recordings", all=True, hosts=(), most=10)
    assert [(row["path"], (int(row["since"].timestamp() * 1e6) - HOUR) // MINUTE) for row in asked] == [(str(ring), 1), (str(event), 1)]
    assert generated.duckdb(str(bench.store)).ask("recordings", all=False, hosts=("other",), most=10) == []


@pytest.mark.parametrize("other, n", (({"rank": 1}, 2), ({"rank": None}, 0), ({"host": "h.1"}, 0), ({"host": "h/1"}, 2)))
def test_another_process_with_that_host_and_pid(bench, other, n):
    """Two machines of one name, or of names that make one file: what is not kept is said."""
    bench.bring(bench.recording(minutes({0: 60, 1: 60}, host="h_1")))
    counts = bench.bring(bench.recording(minutes({0: 60, 1: 10, 2: 60}, mark=2, **{"host": "h_1", **other})))
    assert len(counts.others) == n and counts.recordings == 1
    assert [text.partition(" of ")[0] for text in counts.left_out] == (["host %s: 2 minutes" % other.get("host", "h_1")] if n else [])


def test_two_hosts_whose_names_make_one(bench):
    """In one recording, as `merge` makes it: the import has one lock for both."""
    of = [minutes({0: 60}, host=host, pid=pid) for pid, host in enumerate(("h/1", "h_1"))]
    both = {name: pa.concat_tables([tables[name] for tables in of]).unify_dictionaries().combine_chunks() for name in of[0]}
    path = bench.recording(both)
    command = [sys.executable, "-c", "import sys\nfrom stepflame.fleet import store\nprint(sorted(store.Import(sys.argv[1], 'c', sys.argv[2]).run(sys.argv[3:]).hosts))"]
    ran = subprocess.run([*command, bench.store, bench.program, path], capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(generated.ROOT / "user/python")})
    assert ran.stdout == "['h/1', 'h_1']\n", ran.stderr


def test_gpu_time_counts_once(bench):
    """A window of CUPTI that lasts: an import in each of two hours, and one more."""
    for last, ns in ((58, 10), (59, 20), (61, 50)):
        at = {"job": "j", "host": "h1", "pid": 7, "rank": 0, "device": 0, "since": HOUR, "until": HOUR + last * MINUTE}
        rows = [{**at, "kind": "time", "name": name, "ns": ns * share} for name, share in (("compute", 3), ("idle_host", 1))]
        bench.bring(bench.recording({**minutes({0: 60}), "gpu": generated.as_exported(rows, "gpu")}))
    assert generated.duckdb(str(bench.store), job="j").ask("gpu_time") == [{"name": "compute", "ns": 150}, {"name": "idle_host", "ns": 50}]


def test_a_recording_that_grows(bench):
    """As the ring of watch does, from one import to the next: nothing of it is in two parts."""
    counts = [bench.bring(bench.recording(minutes(seen, mark=mark))) for mark, seen in enumerate(({0: 60, 1: 10}, {0: 60, 1: 45}, {1: 60, 2: 30}), 1)]
    assert [c.in_parts for c in counts] == [0, 0, 0] and marks(bench, "steps") == {0: {2}, 1: {3}, 2: {3}}


def test_files_that_several_recordings_wrote_count_once(bench):
    counts = bench.bring(*(bench.recording(minutes({i: 60}, mark=i)) for i in (1, 2)))
    assert counts.recordings == 2 and counts.files == len(list(bench.store.rglob("*.parquet"))) == 8


def test_what_adds_up_is_replaced_by_the_later(bench):
    early, late = minutes({0: 60}, mark=3), minutes({0: 60, 1: 60}, mark=5)
    for order in ((early, late), (late, early)):
        other = Bench(bench.folder / str(id(order)))
        for tables in order:
            other.bring(other.recording(tables))
        assert [row["n"] for row in other.rows("actions")] == [5]


def test_sums_are_those_of_the_recording(bench, made):
    source = Path(made.store("with_steps", "--ranks", "8", "--hours", "0.2", "--steps", "all"))
    tables = generated.exports_of(source, "node-00000")
    bench.bring(bench.recording(tables))
    for name in ("windows", "steps", "waits", "samples", "actions", "ops", "gpu"):
        found = pa.concat_tables([pq.ParquetFile(path).read() for path in (bench.store / "v1" / name).rglob("*.parquet")])
        assert found.num_rows == tables[name].num_rows > 0
        for column in found.column_names:
            if pa.types.is_integer(found.schema.field(column).type) and column != "stack":
                sums = [pa.compute.sum(of.column(column)).as_py() or 0 for of in (found, tables[name])]
                ticks = name == "steps" and column.endswith("_ns")
                assert abs(sums[0] - sums[1]) <= (store.TICK * found.num_rows if ticks else 0), (name, column)


def test_steps_are_rounded_and_add_up():
    """Each part is less than a tick off, each step half of one; parts that are not known stay so."""
    phases, waits = schema.PHASE_COLUMNS.split(), ["oncpu_ns", *schema.WAIT_COLUMNS.replace("?", "").split()]
    rng, rows = random.Random(5), []
    for number in range(400):
        row = {"step": number, **{phase: rng.choice((0, rng.randrange(3000), rng.randrange(10**9), 10**12)) for phase in phases}}
        row["duration_ns"], left = sum(row[phase] for phase in phases), sum(row[phase] for phase in phases)
        if number % 3:
            for wait in waits:
                row[wait] = left if wait == waits[-1] else rng.randrange(left + 1) if rng.random() < 0.5 else 0
                left -= row[wait]
        rows.append(row)
    before = pa.Table.from_pylist([{**{f.name: None if f.nullable else "" if f.type == pa.utf8() else 0 for f in schema.TABLES["steps"].schema}, **row} for row in rows], schema.TABLES["steps"].schema)
    after = store.in_ticks(before)
    assert after.schema == before.schema and store.in_ticks(after).equals(after)
    for old, new in zip(before.to_pylist(), after.to_pylist()):
        assert sum(new[phase] for phase in phases) == new["duration_ns"] and abs(new["duration_ns"] - old["duration_ns"]) <= store.TICK / 2
        assert all((old[name] is None) == (new[name] is None) for name in waits) and (new["oncpu_ns"] is None or sum(new[wait] for wait in waits) == new["duration_ns"])
        for name in [*phases, *waits]:
            assert old[name] is None or new[name] >= 0 and new[name] % store.TICK == 0 and abs(new[name] - old[name]) < store.TICK


def test_without_steps(bench):
    store.Import(bench.store, "c", bench.program, steps=False).run([bench.recording(minutes({0: 60}))])
    assert sorted(path.name for path in (bench.store / "v1").iterdir() if path.name[0] != ".") == ["actions", "ranks", "recordings", "samples", "stacks", "waits", "windows"]


def test_steps_after_none(bench):
    path = bench.recording(minutes({0: 60}))
    for steps in (False, True):
        counts = [store.Import(bench.store, "c", bench.program, steps=steps).run([path]) for _ in range(2)]
        assert [c.unchanged for c in counts] == [0, 1]
    store.Import(bench.store, "c", bench.program, again=True, steps=False).run([path])
    assert marks(bench, "steps") == {0: {1}}


def test_without_steps_none_stay_that_are_not_of_the_minute(bench):
    bench.bring(bench.recording(minutes({0: 60, 1: 10})))
    for seen in ({1: 60, 2: 60}, {0: 60, 1: 60}):
        tables = minutes(seen, mark=2)
        store.Import(bench.store, "c", bench.program, steps=False).run([bench.recording(tables)])
        assert marks(bench, "steps") == {0: {1}}
    bench.bring(bench.recording(minutes({1: 60})))
    assert set(marks(bench, "steps")) == {0, 1} and set(marks(bench, "windows")) == {0, 1, 2}


def test_a_minute_that_comes_without_rows_takes_the_old_ones_away(bench):
    bench.bring(bench.recording(minutes({0: 30})))
    bench.bring(bench.recording({**minutes({0: 60}, mark=2), "waits": generated.as_exported([], "waits")}))
    assert marks(bench, "windows") == {0: {2}} and marks(bench, "waits") == {}
    assert generated.duckdb(str(bench.store)).run("SELECT count(*) AS n FROM waits") == [{"n": 0}]


def test_a_bad_recording_is_named_and_the_others_come(bench):
    bad, good = bench.folder / "bad.rec", bench.recording(minutes({0: 60}))
    bad.write_text("nonsense")
    counts = bench.bring(bad, good, bench.folder / "none.rec")
    assert counts.recordings == 1 and sorted(text.rpartition("/")[2] for text in counts.left_out) == ["bad.rec: it is no recording", "none.rec: no such file"]


def test_a_program_that_is_not_there(bench):
    bench.program = str(bench.folder / "none")
    counts = bench.bring(bench.recording(minutes({0: 60})))
    assert counts.recordings == 0 and len(counts.left_out) == 1 and "cannot run %s: No such file" % bench.program in counts.left_out[0]


def test_what_is_no_regular_file(bench):
    for path in (bench.folder / "pipe.rec", bench.folder / "in/pipe.rec"):
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
        writer = subprocess.Popen(["sh", "-c", ': > "$0"', path])  # so that who reads it does not wait for ever
        counts = bench.bring(path if path.parent == bench.folder else path.parent)
        writer.kill()
        writer.wait()
        assert counts.recordings == 0 and counts.left_out == ["%s: it is no regular file" % path]


def test_a_disk_that_is_full(bench):
    """/dev/full is one."""
    paths = [bench.recording(minutes({i: 60}, pid=i)) for i in (1, 2)]
    bench.bring(paths[0])
    done = bench.store / "v1/.import" / (os.uname().nodename + ".json")
    before = done.read_text()
    real = store.replaced

    @contextlib.contextmanager
    def full(path):
        with real(path) as file, open("/dev/full", "wb", buffering=0) as disk:
            yield disk if path == done else file

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "replaced", full)
        counts = bench.bring(paths[1], again=False)
    assert counts.recordings == 1 and len(counts.left_out) == 1 and "No space left" in counts.left_out[0] and done.read_text() == before
    assert not list(bench.store.rglob("*.tmp")) and bench.bring(paths[1], again=False).recordings == 1


def test_a_bad_file_of_the_store_is_put_aside(bench):
    """Each one, and other tables keep the rows of all minutes."""
    bench.bring(bench.recording(minutes({0: 60, 1: 60})))
    file = next((bench.store / "v1/windows").rglob("*.parquet"))
    for minute in (2, 3):
        file.write_bytes(file.read_bytes()[:100])
        counts = bench.bring(bench.recording(minutes({minute: 60})))
        assert len(counts.left_out) == 1 and str(file) in counts.left_out[0] and list(marks(bench, "windows")) == [minute]
    assert len(list(file.parent.glob(".%s.*.bad" % file.name))) == 2
    for table in ("steps", "waits", "samples"):
        assert set(marks(bench, table)) == {0, 1, 2, 3}, table


@pytest.mark.parametrize("number", (errno.EACCES, errno.EIO, errno.EMFILE, errno.ESTALE))
def test_a_file_that_cannot_be_read_now_stays(bench, monkeypatch, number):
    """Nothing of its content is known: the recording is not imported, and comes the next time."""
    bench.bring(bench.recording(minutes({0: 60})))
    path, real = bench.recording(minutes({1: 60})), pq.ParquetFile

    def failing(file, *words, **options):
        if "/windows/" in str(file):
            raise OSError(number, os.strerror(number))
        return real(file, *words, **options)

    monkeypatch.setattr(pq, "ParquetFile", failing)
    counts = bench.bring(path, again=False)
    assert counts.recordings == 0 and len(counts.left_out) == 1 and os.strerror(number) in counts.left_out[0]
    monkeypatch.undo()
    assert bench.bring(path, again=False).recordings == 1 and not list(bench.store.rglob("*.bad"))
    assert set(marks(bench, "windows")) == set(marks(bench, "steps")) == {0, 1}


def test_a_link_in_place_of_a_lock_is_not_followed(bench):
    victim = bench.folder / "victim"
    victim.write_text("kept")
    (bench.store / "v1/.import").mkdir(parents=True)
    (bench.store / "v1/.import/h1.lock").symlink_to(victim)
    counts = bench.bring(bench.recording(minutes({0: 60})))
    assert victim.read_text() == "kept" and counts.recordings == 0 and "h1.lock" in counts.left_out[0]


def test_links_in_place_of_temporary_files_are_not_followed(bench):
    """In place of those that a name can be guessed of."""
    victim, path = bench.folder / "victim", bench.recording(minutes({0: 60}))
    victim.write_text("kept")
    bench.bring(path)
    done = bench.store / "v1/.import" / (os.uname().nodename + ".json")
    for file in (*(bench.store / "v1").rglob("*.parquet"), done):
        for name in (".%s.%d.tmp" % (file.name, os.getpid()), "%s.%d.tmp" % (file.stem, os.getpid())):
            file.with_name(name).symlink_to(victim)
    counts = bench.bring(bench.recording(minutes({0: 60, 1: 60}, mark=2)))
    assert victim.read_text() == "kept" and counts.recordings == 1 and marks(bench, "steps") == {0: {2}, 1: {2}} and json.loads(done.read_text())
    assert not any(file.is_symlink() for file in (*(bench.store / "v1").rglob("*.parquet"), done))


def test_files_have_the_usual_mode(bench):
    bench.bring(bench.recording(minutes({0: 60})))
    mask = os.umask(0)
    os.umask(mask)
    assert {path.stat().st_mode & 0o777 for path in bench.store.rglob("*.parquet")} == {0o666 & ~mask}


def test_only_exports_that_nobody_works_on_are_removed(bench, monkeypatch):
    """The import may be one of another container that shares the folder: its PID is none here."""
    monkeypatch.setattr(tempfile, "tempdir", str(bench.folder))
    monkeypatch.setattr(os, "getpid", lambda: 4194304)
    left, new, real = bench.folder / (store.EXPORT_PREFIX + "4194304-left"), bench.folder / (store.EXPORT_PREFIX + "new"), store.Export
    for folder in (left, new):
        folder.mkdir()
    (left / "steps.arrow").write_text("")

    def export(folder, *of):
        store.remove_left_exports()
        assert not left.exists() and new.exists()
        return real(folder, *of)

    monkeypatch.setattr(store, "Export", export)
    counts = bench.bring(bench.recording(minutes({0: 60})))
    assert counts.recordings == 1 and not counts.left_out
    os.utime(new, (0, 0))
    store.remove_left_exports()
    assert not list(bench.folder.glob(store.EXPORT_PREFIX + "*"))


@pytest.mark.parametrize("host", ("_h1", ".h1", "-h1", "\u00e91", ""))
def test_names_that_engines_skip(bench, host):
    bench.bring(bench.recording(minutes({0: 60}, host=host)))
    files = list(bench.store.rglob("*.parquet"))
    assert len(files) == 8 and all(file.name[0].isalnum() for file in files)
    assert generated.duckdb(str(bench.store)).run("SELECT host FROM windows") == [{"host": host}]


def test_tables_of_another_program_are_refused(bench):
    tables = minutes({0: 60})
    tables["windows"] = tables["windows"].drop_columns(["seen_ns"])
    counts = bench.bring(bench.recording(tables))
    assert counts.recordings == 0 and "no column seen_ns" in counts.left_out[0]


def test_two_imports_at_once(bench):
    """Of one host, into the same files: without the lock one would undo the other."""
    paths = [bench.recording(minutes({i: 60}, pid=i, mark=i + 1)) for i in range(8)]
    threads = [threading.Thread(target=bench.bring, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert marks(bench, "steps") == {i: {i + 1} for i in range(8)} == marks(bench, "windows")


def test_killed_at_any_moment(bench, made):
    """kill -9 at random times, each import after the other into the same store: the last one makes it whole."""
    source = Path(made.store("with_steps", "--ranks", "8", "--hours", "0.2", "--steps", "all"))
    paths = [bench.recording(generated.exports_of(source, "node-00000")), *(bench.recording(minutes({0: 30 + i, 1: 60, 59 + i: 20}, mark=i)) for i in range(1, 4))]
    command = [sys.executable, "-c", "import sys\nfrom stepflame.fleet import store\nstore.Import(sys.argv[1], 'c', sys.argv[2], True).run(sys.argv[3:])"]
    env = {**os.environ, "PYTHONPATH": str(generated.ROOT / "user/python"), "TMPDIR": str(bench.folder)}
    whole = Bench(bench.folder / "whole")
    begin = time.monotonic()
    subprocess.run([*command, whole.store, whole.program, *paths], check=True, env=env)
    took = time.monotonic() - begin
    chance, killed = random.Random(1), 0
    for _ in range(30 if os.environ.get("STEPFLAME_LONG") else 4):
        process = subprocess.Popen([*command, bench.store, bench.program, *paths], env=env)
        try:
            process.wait(took * (0.3 + chance.random()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
    assert killed
    subprocess.run([*command, bench.store, bench.program, *paths], check=True, env=env)
    assert generated.content(bench.store) == generated.content(whole.store)
    assert not list(bench.store.rglob("*.tmp")) and not list(bench.folder.glob(store.EXPORT_PREFIX + "*"))


RECORDINGS = generated.ROOT / "tests/data/recordings"


def own_program() -> str:
    found = os.path.abspath(os.environ.get("STEPFLAME") or generated.ROOT / "build/stepflame")
    if not os.access(found, os.X_OK):
        pytest.skip("the program is not built: make")
    return found


def test_a_name_that_looks_like_an_option(tmp_path, monkeypatch):
    shutil.copy(RECORDINGS / "plain.rec", tmp_path / "-plain.rec")
    program = own_program()
    monkeypatch.chdir(tmp_path)
    counts = store.Import(tmp_path / "store", "c", program).run(["-plain.rec"])
    assert counts.recordings == 1 and not counts.left_out, counts


@pytest.mark.parametrize("name", ("ddp0", "ddp1", "fit", "plain", "ops", "loaders"))
def test_a_recording_of_a_real_job(tmp_path, name):
    """Sums in the store are those of the program's reports."""
    program = own_program()
    counts = store.Import(tmp_path, "c", program).run([RECORDINGS / (name + ".rec")])
    assert counts.recordings == 1 and not counts.left_out
    fleet = generated.duckdb(str(tmp_path))

    ran = subprocess.run([program, "report", str(RECORDINGS / (name + ".rec")), "--steps", "--limit", "0", "--json"], capture_output=True, check=True, text=True)
    steps = json.loads(ran.stdout)["steps"]
    sums = "sum({0}) AS step_ns, sum(data_ns) AS data, sum(comm_ns) AS comm, sum(optimizer_ns) AS optimizer"
    found = fleet.run("SELECT coalesce(sum(steps), 0) AS steps, %s FROM windows" % sums.format("step_ns"))[0]
    rows = fleet.run("SELECT count(*) AS steps, %s FROM steps" % sums.format("duration_ns"))[0]
    assert found["steps"] == rows["steps"] == len(steps) > 0
    for key in ("step_ns", "data", "comm", "optimizer"):
        said = sum(step["duration_s"] if key == "step_ns" else step["phases"].get(key, 0) for step in steps)
        assert found[key] == pytest.approx(said * 1e9, abs=len(steps)) and abs(found[key] - rows[key]) <= store.TICK * len(steps)
    waits = [fleet.run(query)[0]["ns"] or 0 for query in ("SELECT sum(ns) AS ns FROM waits WHERE cause = 'collective'", "SELECT sum(wait_collective_ns) AS ns FROM steps")]
    assert abs(waits[0] - waits[1]) <= store.TICK * len(steps)
    assert fleet.count_odd("windows") == fleet.count_odd("steps") == fleet.count_odd("waits") == fleet.count_odd("samples") == fleet.count_odd("actions") == fleet.count_odd("ranks") == []
