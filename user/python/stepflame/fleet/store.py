# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The store: Parquet files in STORE/v1/TABLE/date=D/cluster=C/job=J/HOST-HH.parquet, and the import of recordings into them.

In: recordings, or the folders of `stepflame watch`; the program exports each as Arrow tables. Out: files, each replaced at once by renaming.
An import may be killed at any time and run again: what a file has and a recording has are merged by rules that give the same each time. A
minute's row in `windows` is written last: until then the next import does that minute again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Optional

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import schema
from ..errors import StepflameError, of_output

STATE_FOLDER = "/var/lib/stepflame"
HOUR_US = 3600 * 1000000
MINUTE_US = 60 * 1000000
# of a minute `windows` says who wins, so it is the last
MINUTE_TABLES = ("steps", "waits", "samples", "windows")
CUMULATIVE_TABLES = ("actions", "ops", "gpu", "ranks", "recordings")
ROW_GROUP = 128 * 1024
TICK = 1024  # ns: what rows of steps are rounded to


@dataclass
class Counts:
    """What an import did, and what it left out."""

    recordings: int = 0
    unchanged: int = 0
    written: set[Path] = field(default_factory=set)
    minutes: set[tuple[str, int, int]] = field(default_factory=set)  # host, pid, minute
    hosts: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    in_parts: int = 0
    without_window: int = 0
    others: set[tuple[str, int, int]] = field(default_factory=set)  # those of `minutes` where the store had another process with that pid
    left_out: list[str] = field(default_factory=list)

    @property
    def files(self) -> int:
        return len(self.written)


@dataclass(frozen=True, order=True)
class Part:
    """What one file per table holds."""

    job: str
    host: str
    hour: int  # since 1970

    def file(self, root: Path, table: str, cluster: str) -> Path:
        date, hour = divmod(self.hour, 24)
        day = time.strftime("%Y-%m-%d", time.gmtime(date * 86400))
        folder = root / table / ("date=" + day) / ("cluster=" + safe_name(cluster)) / ("job=" + safe_name(self.job))
        return folder / ("%s-%02d.parquet" % (re.sub(r"^(?=[._-])", "host", safe_name(self.host)), hour))  # Spark skips names that begin with a dot or _


def safe_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:200] or "_"


def root_of(store: str | Path) -> Path:
    return Path(store) / ("v%d" % schema.VERSION)


class Export:
    """The Arrow tables that the program made of a recording, read a batch at a time; and one of the recording itself."""

    def __init__(self, folder: Path, recording: Path, status: os.stat_result):
        self.folder = folder
        self.recording = {
            "machine": pa.scalar(os.uname().nodename), "path": pa.scalar(os.fsencode(recording.resolve()).decode(errors="replace")),
            "bytes": pa.scalar(status.st_size), "modified": pa.scalar(status.st_mtime_ns // 1000, schema.TIME),
        }  # fmt: skip
        self.readers: dict[str, pa.ipc.RecordBatchFileReader] = {}
        for name in schema.EXPORTED:
            try:
                reader = pa.ipc.open_file(pa.memory_map(str(folder / (name + ".arrow"))))
            except (OSError, pa.ArrowInvalid) as error:
                raise StepflameError("table %s of a recording: %s" % (name, error), "use the stepflame program that came with this package") from None
            wrong = schema.differences(reader.schema, name)
            if not wrong and name != "stacks":
                wrong = "" if "job" in reader.schema.names else "it has no column job"
            if wrong:
                raise StepflameError("table %s of a recording: %s" % (name, wrong), "use the stepflame program that came with this package")
            self.readers[name] = reader

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        reader = self.readers["ranks" if name == "recordings" else name]  # one holds of each process what its row in `ranks` says
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            for column, value in self.recording.items() if name == "recordings" else ():
                batch = batch.append_column(column, pa.repeat(value, batch.num_rows))
            yield batch

    def parts(self, name: str) -> set[Part]:
        found: set[Part] = set()
        for batch in self.batches(name):
            keys = pa.table({"job": text_of(batch.column("job")), "host": text_of(batch.column("host")), "hour": hours_of(batch.column(schema.TABLES[name].time))})
            found |= {Part(*row.values()) for row in keys.group_by(["job", "host", "hour"]).aggregate([]).to_pylist()}
        return found

    def rows(self, name: str, part: Part) -> pa.Table:
        spec = schema.TABLES[name]
        kept = []
        for batch in self.batches(name):
            mask = pc.and_(pc.equal(hours_of(batch.column(spec.time)), part.hour), pc.equal(text_of(batch.column("job")), part.job))
            mask = pc.and_(mask, pc.equal(text_of(batch.column("host")), part.host))
            if pc.any(mask).as_py():
                kept.append(in_schema(pa.table(batch.filter(mask)), name))
        return pa.concat_tables(kept) if kept else spec.schema.empty_table()

    def stacks(self, wanted: pa.Array) -> pa.Table:
        kept = [pa.table(batch.filter(pc.is_in(batch.column("stack"), wanted))) for batch in self.batches("stacks")]
        return pa.concat_tables([in_schema(table, "stacks") for table in kept] or [schema.TABLES["stacks"].schema.empty_table()])


def text_of(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def microseconds(column: pa.Array) -> pa.Array:
    return column.cast(schema.TIME, safe=False).cast(pa.int64())


def hours_of(column: pa.Array) -> pa.Array:
    return pc.divide(microseconds(column), HOUR_US)


def in_schema(table: pa.Table, name: str) -> pa.Table:
    spec = schema.TABLES[name].schema
    return table.select(spec.names).cast(spec, safe=False)


def in_ticks(steps: pa.Table) -> pa.Table:
    """Steps with times in whole ticks, which take two bytes less each; a probe costs more than a tick. What adds up still does: what is rounded are
    the times at which the parts of a step would end, were they one behind the other. Their sums by minute are in `windows`, to the nanosecond."""

    def whole(ns: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.bit_wise_and(pc.add(ns, TICK // 2), pa.scalar(-TICK, pa.int64()))

    made = {"duration_ns": whole(steps.column("duration_ns")), "gc_ns": whole(steps.column("gc_ns"))}
    for parts in (schema.PHASE_COLUMNS, "oncpu_ns " + schema.WAIT_COLUMNS.replace("?", "")):
        end = pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), steps.num_rows)])
        for name in parts.split():
            begin, end = end, pc.add(end, pc.fill_null(steps.column(name), 0))
            ticks = pc.subtract(whole(end), whole(begin))
            made[name] = pc.if_else(pc.is_valid(steps.column(name)), ticks, None) if steps.column(name).null_count else ticks
    for name, ns in made.items():
        at = steps.schema.get_field_index(name)
        steps = steps.set_column(at, steps.schema.field(at), ns)
    return steps


# --- merging ---


def minute_codes(table: pa.Table) -> pa.Array:
    """One number for a process and a minute of one hour."""
    pids = pc.multiply(table.column("pid").cast(pa.int64()), 64)
    return pc.add(pids, pc.subtract(pc.divide(microseconds(table.column("minute")), MINUTE_US), pc.multiply(hours_of(table.column("minute")), 60)))


Seen = tuple[int, str, Optional[int]]  # seen_ns, host, rank


def seen_by_code(windows: pa.Table) -> dict[int, Seen]:
    return dict(zip(minute_codes(windows).to_pylist(), zip(*(windows.column(name).to_pylist() for name in ("seen_ns", "host", "rank")))))


def are_two(one: Seen, other: Seen) -> bool:
    """Of two processes with one pid in one minute. Of a rank that is not known nothing can be said."""
    return one[1] != other[1] or None not in (one[2], other[2]) and one[2] != other[2]


def winners(old: dict[int, Seen], new: dict[int, Seen], grown: set[int], part: Part, counts: Counts) -> set[int]:
    """Of which minutes the rows of the recording come, in place of what the file has. grown: processes of which the file has the same recording,
    from before it grew."""
    come = set(new)
    for code in set(old) & come:
        before, now = old[code][0], new[code][0]
        if are_two(old[code], new[code]):
            counts.others.add((part.host, code, part.hour))
        elif code // 64 not in grown and before != now and before > 0 and now > 0 and before + now <= MINUTE_US * 1000:
            counts.in_parts += 1  # otherwise one of them surely contains some of the other
        if before > now:
            come.discard(code)
    return come


def of_codes(table: pa.Table, codes: Iterable[int], others: bool = False) -> pa.Table:
    """The rows of these minutes; others: those of all others."""
    if not table.num_rows:
        return table
    mask = pc.is_in(minute_codes(table), pa.array(codes, pa.int64()))
    return table.filter(pc.invert(mask) if others else mask)


def newest(table: pa.Table, name: str) -> pa.Table:
    """Of rows with the same key that with the largest `until`; of equal ones the last."""
    spec = schema.TABLES[name]
    keys = ["host", "pid", *spec.once]
    table = table.append_column("at", pa.array(range(table.num_rows), pa.int64()))
    table = table.sort_by([*((key, "ascending") for key in keys), ("until", "ascending"), ("at", "ascending")])
    table = table.set_column(table.schema.get_field_index("at"), "at", pa.array(range(table.num_rows), pa.int64()))
    last = table.group_by(keys).aggregate([("at", "max")]).column("at_max")
    return table.take(last).drop_columns(["at"])


def ordered(table: pa.Table, name: str) -> pa.Table:
    spec = schema.TABLES[name]
    keys = [key for key in ("rank", "pid", *spec.order, "stack") if key in spec.schema.names]
    return table.sort_by([(key, "ascending") for key in dict.fromkeys(keys)])


# --- files ---


def read_file(path: Path, table: str, counts: Counts) -> pa.Table:
    """The rows of a file of the store. One whose content is bad is put aside, so that it is neither lost nor in the way."""
    empty = schema.TABLES[table].schema.empty_table()
    try:
        with open(path, "rb") as file:
            found = pq.ParquetFile(file)
            wrong = schema.differences(found.schema_arrow, table)
            if not wrong:
                return in_schema(found.read(), table)
    except FileNotFoundError:
        return empty
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, pa.ArrowMemoryError) or getattr(error, "errno", None):
            raise  # it says nothing of the content; pyarrow's OSError of a bad one has no number
        wrong = str(error).splitlines()[0]
    aside = path.with_name(".%s.%d.bad" % (path.name, time.time_ns()))
    path.rename(aside)
    counts.left_out.append("%s: %s; put aside as %s" % (path, wrong, aside.name))
    return empty


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` at the end. Its name cannot be guessed: nobody else can have put a link there."""
    for left in path.parent.glob(".%s.*.tmp" % path.name):  # of an import that was killed: the caller's lock says that none other is at it
        left.unlink()
    temporary = path.with_name(".%s.%s.tmp" % (path.name, secrets.token_hex(8)))
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # else after a power failure the new name may have no content, of a recording that is known as imported
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(path: Path, flags: int = os.O_RDWR | os.O_CREAT, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, how)
        yield
    finally:
        os.close(file)


def write_file(path: Path, rows: pa.Table, table: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    spec = schema.TABLES[table].schema
    repeated = [column.name for column in spec if column.type == pa.utf8()] + {"stacks": ["frames.list.element"], "samples": ["stack", "n"]}.get(table, [])
    numbers = {column.name: "DELTA_BINARY_PACKED" for column in spec if column.name not in repeated and (pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type))}
    if table in ("steps", "samples"):  # these have no order; ticks have a byte and two bits that are 0
        numbers |= {name: "BYTE_STREAM_SPLIT" for name in numbers if name.endswith("_ns")}
    rows = rows.replace_schema_metadata({"stepflame.schema": str(schema.VERSION)})
    with replaced(path) as file:
        pq.write_table(rows, file, compression="zstd", compression_level=3, use_dictionary=repeated, column_encoding=numbers, row_group_size=ROW_GROUP)


class Import:
    """Brings recordings into a store."""

    def __init__(self, store: str | Path, cluster: str, program: str, again: bool = False, steps: bool = True):
        self.root = root_of(store)
        self.cluster = cluster
        self.program = program
        self.again = again
        self.steps = steps
        self.counts = Counts()
        self.own = self.root / ".import"
        try:
            self.own.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StepflameError("cannot write into the store %s: %s" % (store, error.strerror or error), "name a folder that you may write to with --store") from None

    def run(self, sources: Iterable[str | Path]) -> Counts:
        remove_left_exports()
        done_file = self.own / (safe_name(os.uname().nodename) + ".json")
        for path in recordings_in(sources, self.counts):
            try:
                status = os.stat(path)
            except OSError as error:
                self.counts.left_out.append("%s: %s" % (path, "no such file" if isinstance(error, FileNotFoundError) else error.strerror))
                continue
            if not stat.S_ISREG(status.st_mode):  # the program would wait for what somebody writes into a pipe
                self.counts.left_out.append("%s: it is no regular file" % path)
                continue
            stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
            known = "\n".join([str(path.resolve()), self.cluster, *(["no steps"] if not self.steps else [])])
            if not self.again and read_done(done_file).get(known) == stamp:
                self.counts.unchanged += 1
            elif self.recording(path, status):
                self.remember(done_file, known, stamp)
        for host, n in sorted(Counter(host for host, _, _ in self.counts.others).items()):
            self.counts.left_out.append(
                "host %s: %d minutes of processes whose pid another machine's has there, of the same name: the one that was seen for longer stays; "
                "give each machine a name of its own, or import each with another --cluster" % (host, n)
            )
        return self.counts

    def remember(self, done_file: Path, known: str, stamp: list[int]) -> None:
        """Only to save work: without this file everything is imported again, to the same result."""
        try:
            with locked(done_file.with_suffix(".lock")), replaced(done_file) as file:
                done = {key: value for key, value in read_done(done_file).items() if os.path.exists(key.partition("\n")[0])}
                done[known] = stamp
                file.write(json.dumps(done).encode())
        except OSError as error:
            self.counts.left_out.append("%s: %s; the next import reads %s again" % (done_file, error.strerror, known.partition("\n")[0]))

    def recording(self, path: Path, status: os.stat_result) -> bool:
        try:
            with tempfile.TemporaryDirectory(prefix=EXPORT_PREFIX) as folder, locked(Path(folder), os.O_DIRECTORY, fcntl.LOCK_SH):
                self.export(path, folder)
                self.tables(Export(Path(folder), path, status))
        except (StepflameError, pa.ArrowException, OSError) as error:
            self.counts.left_out.append("%s: %s" % (path, getattr(error, "what", error)))
            return False
        self.counts.recordings += 1
        return True

    def export(self, path: Path, folder: str) -> None:
        command = [self.program, "export", "-f", "arrow", "-o", folder, "--", str(path)]
        try:
            ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        except OSError as error:
            raise StepflameError("cannot run %s: %s" % (self.program, error.strerror)) from None
        if ran.returncode:
            raise of_output(ran.stderr, ran.returncode, "export")

    def tables(self, export: Export) -> None:
        by_table = {name: export.parts(name) for name in (*CUMULATIVE_TABLES, "windows")}
        hosts = sorted({part.host for parts in by_table.values() for part in parts})
        with contextlib.ExitStack() as locks:
            # sorted: two imports of the same hosts cannot wait for each other; each once, for names of two hosts can make one, and a lock waits for itself
            for name in sorted({safe_name(host) for host in hosts}):
                locks.enter_context(locked(self.own / (name + ".lock")))
            for part in sorted(by_table["windows"]):
                self.minutes(export, part)
            for name in CUMULATIVE_TABLES:
                for part in sorted(by_table[name]):
                    self.cumulative(export, name, part)
        self.counts.hosts |= set(hosts)
        self.counts.jobs |= {part.job for parts in by_table.values() for part in parts}

    def minutes(self, export: Export, part: Part) -> None:
        old = {"windows": read_file(part.file(self.root, "windows", self.cluster), "windows", self.counts)}
        new = {"windows": export.rows("windows", part)}
        had, has = seen_by_code(old["windows"]), seen_by_code(new["windows"])
        come = winners(had, has, self.grown(export, part), part, self.counts)
        self.counts.minutes |= {(part.host, code, part.hour) for code in has}
        if not come:
            return
        for name in MINUTE_TABLES:
            path = part.file(self.root, name, self.cluster)
            before = old.get(name) or read_file(path, name, self.counts)
            if name == "steps" and not self.steps:  # those that are there are of the minute as it was
                self.write(path, before, of_codes(before, [code for code in come if had.get(code) != has[code]], others=True), name)
                continue
            recorded = new.get(name) or export.rows(name, part)
            recorded = in_ticks(recorded) if name == "steps" else recorded
            self.counts.without_window += of_codes(recorded, has, others=True).num_rows
            # all other rows stay, also of minutes without a row in `windows`: its file may have been put aside
            merged = ordered(pa.concat_tables([of_codes(before, come, others=True), of_codes(recorded, come)]), name)
            if name == "samples":
                self.stacks(export, part, pc.unique(merged.column("stack")))
            self.write(path, before, merged, name)

    def grown(self, export: Export, part: Part) -> set[int]:
        """Processes that the store knows since the same moment as this recording does."""
        known: set[tuple[int, int]] = set()
        for hour in (part.hour, part.hour + 1):
            ranks = read_file(Part(part.job, part.host, hour).file(self.root, "ranks", self.cluster), "ranks", self.counts)
            known |= set(zip(ranks.column("pid").to_pylist(), microseconds(ranks.column("since")).to_pylist()))
        found = set()
        for batch in export.batches("ranks"):
            found |= set(zip(batch.column("pid").to_pylist(), microseconds(batch.column("since")).to_pylist()))
        return {pid for pid, since in known & found}

    def stacks(self, export: Export, part: Part, wanted: pa.Array) -> None:
        path = part.file(self.root, "stacks", self.cluster)
        before = read_file(path, "stacks", self.counts)
        new = export.stacks(wanted)
        new = new.filter(pc.invert(pc.is_in(new.column("stack"), before.column("stack").combine_chunks())))
        merged = pa.concat_tables([before.filter(pc.is_in(before.column("stack"), wanted)), new])
        self.write(path, before, ordered(merged, "stacks"), "stacks")

    def cumulative(self, export: Export, name: str, part: Part) -> None:
        path = part.file(self.root, name, self.cluster)
        before = read_file(path, name, self.counts)
        merged = ordered(newest(pa.concat_tables([before, export.rows(name, part)]), name), name)
        self.write(path, before, merged, name)

    def write(self, path: Path, before: pa.Table, merged: pa.Table, name: str) -> None:
        if not before.equals(merged):
            write_file(path, merged, name)
            self.counts.written.add(path)


EXPORT_PREFIX = "stepflame-fleet-"


def remove_left_exports() -> None:
    """The temporary folders of imports that were killed: nobody has a lock on them. A PID would not say, for containers can share the folder."""
    for folder in Path(tempfile.gettempdir()).glob(EXPORT_PREFIX + "*"):
        with contextlib.suppress(OSError), locked(folder, os.O_DIRECTORY, fcntl.LOCK_EX | fcntl.LOCK_NB):
            status = folder.stat()
            # an empty one may be so new that its lock is still to come
            if status.st_uid == os.getuid() and (any(folder.iterdir()) or status.st_mtime < time.time() - 60):
                shutil.rmtree(folder, ignore_errors=True)


def read_done(path: Path) -> dict[str, list[int]]:
    try:
        found = json.loads(path.read_text())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def recordings_in(sources: Iterable[str | Path], counts: Counts) -> list[Path]:
    """Recordings themselves, those in a folder, and those of a folder of `stepflame watch`; the oldest first."""
    found = []
    for source in map(Path, sources):
        if os.path.isdir(source):
            inside = [*source.glob("*.rec"), *(source / "events").glob("*.rec")]
            if not inside:
                counts.left_out.append("%s: there is no recording in this folder" % source)
            found += inside
        else:
            found.append(source)

    def age(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except OSError:
            return 0

    return sorted(found, key=age)


def versions_beside(store: str | Path) -> list[str]:
    """Tables of other versions of the schema in the store: never read, but said."""
    said = []
    try:
        folders = sorted(path for path in Path(store).iterdir() if re.fullmatch(r"v\d+", path.name) and path.name != "v%d" % schema.VERSION)
    except OSError:
        return []
    for folder in folders:
        files = sum(1 for _ in folder.rglob("*.parquet"))
        said.append("%s: %d file%s of another version of the tables; this program reads v%d" % (folder, files, "s" * (files != 1), schema.VERSION))
    return said
