# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The engines that answer questions: DuckDB inside of this process, or Spark. Both get views of the same names over the store's files, and the same
SQL. What a view adds: `day`, `m` (the minute, or `until`, in minutes since 1970), `who` (the rank; -pid where there is none); of stacks `leaf` and
`path`. Rows that cannot be true are in ODD views, and in no other.
"""

from __future__ import annotations

import datetime
import decimal
import glob
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from . import schema
from ..errors import StepflameError
from .store import safe_name, versions_beside

Row = dict[str, Any]
QUESTIONS = Path(__file__).with_name("questions")
PARTITION = ("date", "cluster", "job")
MEMORY = "4GB"
NO_FILES = ("No files found", "PATH_NOT_FOUND")  # how DuckDB and Spark say it


@dataclass(frozen=True)
class Scope:
    """What part of the store is asked. Times: minutes since 1970, the first and the one behind the last."""

    job: str | None = None
    cluster: str | None = None
    since: int | None = None
    until: int | None = None
    uid: int | None = None
    hosts: tuple[str, ...] = ()

    def pattern(self, table: str) -> str:
        cluster = safe_name(self.cluster) if self.cluster is not None else "*"
        job = safe_name(self.job) if self.job is not None else "*"
        return "%s/date=*/cluster=%s/job=%s/*.parquet" % (table, cluster, job)

    def condition(self, table: str, text: Callable[[str], str]) -> str:
        """Of a view; `date` alone decides which files are read. A row of a cumulative table is in the files of its end, and of all times since it began."""
        conditions = []
        cumulative = bool(schema.TABLES[table].once)
        if self.since is not None:
            conditions.append("date >= '%s'" % utc("%Y-%m-%d", self.since))
        if self.until is not None:
            conditions.append("since < TIMESTAMP '%s'" % utc("%Y-%m-%d %H:%M:00", self.until) if cumulative else "date <= '%s'" % utc("%Y-%m-%d", self.until))
        if table == "stacks":
            return " AND ".join(conditions) or "true"
        conditions += ["m >= %d" % self.since] if self.since is not None else []
        conditions += ["m < %d" % self.until] if self.until is not None and not cumulative else []
        if self.hosts:
            conditions.append("host IN (%s)" % ", ".join(map(text, self.hosts)))
        if self.uid is not None and table != "ranks":
            same = " AND ".join("r.%s = t.%s" % (key, key) for key in ("cluster", "job", "host", "pid"))
            conditions.append("EXISTS (SELECT 1 FROM ranks r WHERE %s AND r.uid = %d)" % (same, self.uid))
        elif self.uid is not None:
            conditions.append("uid = %d" % self.uid)
        return " AND ".join(conditions) or "true"


class Raw(str):
    """A parameter that is SQL."""


def utc(form: str, minutes: int) -> str:
    return time.strftime(form, time.gmtime(minutes * 60))


def quoted(text: str) -> str:
    return "'%s'" % text.replace("'", "''")


def literal(value: Any, text: Callable[[str], str]) -> str:
    """text: how the engine writes one."""
    if value is None:
        return "NULL"
    if isinstance(value, Raw):
        return value
    if isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, (tuple, list)):
        return ", ".join(literal(one, text) for one in value) or "NULL"
    return text(str(value))


class Engine(Protocol):
    """to_us, leaf, path, text (a literal), escaped (a path in which nothing is a pattern): what the two spell differently."""

    to_us: str
    leaf: str
    path: str
    type_names: dict[str, str]
    errors: tuple[type[Exception], ...]
    asks: Fleet | None  # whose views there are

    def text(self, value: str) -> str: ...
    def escaped(self, path: str) -> str: ...
    def source(self, table: str, root: str, paths: list[str]) -> str: ...
    def define(self, name: str, select: str) -> None: ...
    def keep(self, view: str) -> None: ...
    def run(self, sql: str) -> list[Row]: ...
    def may_be_files(self, error: Exception) -> bool: ...
    def close(self) -> None: ...


def plain(value: Any) -> Any:
    """As both engines give it: DuckDB has 128 bits for sums, Spark times without a zone. JSON has no NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc) if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
    return value


def distinct(names: list[str]) -> list[str]:
    """Of two columns of one name, as a join may have them, none is lost."""
    found: list[str] = []
    for name in names:
        others = 0
        while (name + "_%d" % others if others else name) in found:
            others += 1
        found.append(name + "_%d" % others if others else name)
    return found


class DuckDB:
    to_us = "epoch_us(%s)"
    leaf = "frames[-1]"
    path = "array_to_string(frames, ' > ')"
    type_names = {"string": "VARCHAR", "int32": "INTEGER", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "timestamp[us, tz=UTC]": "TIMESTAMPTZ", "list<element: string>": "VARCHAR[]"}

    def __init__(self, memory: str | None, threads: int | None):
        try:
            import duckdb
        except ImportError:
            raise StepflameError("%s has no duckdb, which answers the questions" % sys.executable, "pip install duckdb, or --engine spark") from None
        self.asks: Fleet | None = None
        self.errors: tuple[type[Exception], ...] = (duckdb.Error,)
        self.of_the_query = (duckdb.ParserException, duckdb.CatalogException)
        self.spill = tempfile.TemporaryDirectory(prefix="stepflame-spill-")
        self.connection = duckdb.connect()
        try:
            self.connection.execute("SET memory_limit = %s" % quoted(memory or MEMORY))
        except duckdb.Error as error:
            raise StepflameError("--memory %s: %s" % (memory, first_line(error)), "say such as --memory 4GB", 2) from None
        self.connection.execute("SET temp_directory = %s; SET TimeZone = 'UTC'; SET enable_progress_bar = false" % quoted(self.spill.name))
        if threads:
            self.connection.execute("SET threads = %d" % threads)

    def text(self, value: str) -> str:
        return quoted(value)

    def escaped(self, path: str) -> str:
        if "\\" in path:  # it parts folders there, and finds nothing
            raise StepflameError("the store's path %s has a backslash, with which DuckDB finds no files" % path, "ask it by a link without one: ln -s PATH store", 2)
        return glob.escape(path)

    def source(self, table: str, root: str, paths: list[str]) -> str:
        names = ", ".join("CAST(%s AS %s) AS %s" % (f.name, self.type_names[type_name(f.type)], f.name) for f in schema.TABLES[table].schema)
        return "SELECT %s, date, cluster, job FROM read_parquet([%s], hive_partitioning = true, hive_types = {'date': VARCHAR, 'cluster': VARCHAR, 'job': VARCHAR})" % (
            names,
            ", ".join(map(quoted, paths)),
        )

    def define(self, name: str, select: str) -> None:
        self.connection.execute("CREATE OR REPLACE TEMP VIEW %s AS %s" % (name, select))

    def keep(self, view: str) -> None:
        self.connection.execute("CREATE OR REPLACE TEMP TABLE kept_{0} AS SELECT * FROM {0}; CREATE OR REPLACE TEMP VIEW {0} AS SELECT * FROM kept_{0}".format(view))

    def run(self, sql: str) -> list[Row]:
        cursor = self.connection.execute(sql)
        names = distinct([column[0] for column in cursor.description or ()])
        return [dict(zip(names, map(plain, row))) for row in cursor.fetchall()]

    def may_be_files(self, error: Exception) -> bool:
        return not isinstance(error, self.of_the_query)

    def close(self) -> None:
        self.connection.close()
        self.spill.cleanup()


class Spark:
    to_us = "unix_micros(%s)"
    leaf = "element_at(frames, -1)"
    path = "array_join(frames, ' > ')"
    type_names = {"string": "STRING", "int32": "INT", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "timestamp[us, tz=UTC]": "TIMESTAMP", "list<element: string>": "ARRAY<STRING>"}

    def __init__(self, master: str | None, memory: str | None):
        try:
            from pyspark.errors import AnalysisException
            from pyspark.sql import SparkSession
        except ImportError:
            raise StepflameError("%s has no pyspark, which --engine spark needs" % sys.executable, "pip install pyspark, and Java 17") from None
        os.environ["TZ"] = "UTC"
        time.tzset()  # times of day come in the zone of this process
        builder = SparkSession.builder.appName("stepflame fleet").config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        builder = builder.config("spark.sql.parser.escapedStringLiterals", "true").config("spark.log.level", "OFF")
        if master:
            builder = builder.master(master)
        here = not master or master.startswith("local")
        if here:
            builder = builder.config("spark.sql.shuffle.partitions", 8)
        if here or memory:
            builder = builder.config("spark.driver.memory" if here else "spark.executor.memory", (memory or MEMORY).lower().replace("gb", "g").replace("mb", "m"))
        try:
            self.session = builder.getOrCreate()
        except Exception as error:  # py4j, and RuntimeError where there is no Java
            raise StepflameError("Spark does not start: " + first_line(error), "is there Java 17? --master local[2] uses this machine alone") from None
        self.asks: Fleet | None = None
        self.errors: tuple[type[Exception], ...] = (Exception,)
        self.of_the_query = AnalysisException

    def text(self, value: str) -> str:
        """Spark has no way to write a quote into a text that keeps its backslashes, and puts its settings in place of ${NAME}."""
        return "'%s'" % value if re.fullmatch(r"[\w .:/-]*", value) else "CAST(X'%s' AS STRING)" % value.encode(errors="replace").hex()

    def escaped(self, path: str) -> str:
        return re.sub(r"([][{}*?\\])", r"\\\1", path)

    def source(self, table: str, root: str, paths: list[str]) -> str:
        name = "files_" + table
        fields = ["%s %s" % (f.name, self.type_names[type_name(f.type)]) for f in schema.TABLES[table].schema] + ["%s STRING" % key for key in PARTITION]
        reader = self.session.read.schema(", ".join(fields)).option("basePath", "%s/%s" % (root, table))
        reader.parquet(*paths).createOrReplaceTempView(name)
        return "SELECT * FROM %s" % name

    def define(self, name: str, select: str) -> None:
        self.session.sql("CREATE OR REPLACE TEMP VIEW %s AS %s" % (name, select))

    def keep(self, view: str) -> None:
        self.session.sql("CACHE TABLE " + view)

    def run(self, sql: str) -> list[Row]:
        frame = self.session.sql(sql)
        names = distinct(frame.columns)
        return [dict(zip(names, map(plain, row))) for row in frame.collect()]

    def may_be_files(self, error: Exception) -> bool:
        return not isinstance(error, self.of_the_query)

    def close(self) -> None:
        self.session.stop()


def type_name(kind: pa.DataType) -> str:
    return "list<element: string>" if pa.types.is_list(kind) else str(kind)


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class Fleet:
    """A store, as one scope of it is asked. `left_out` says what no answer contains."""

    def __init__(self, store: str, engine: Engine, scope: Scope, now: float | None = None):
        self.remote = "://" in store
        self.root = "%s/v%d" % (store.rstrip("/") if self.remote else os.path.abspath(store), schema.VERSION)
        self.engine = engine
        self.scope = scope
        self.now_us = int((now or time.time()) * 1e6)
        self.bad: list[str] = []  # files, each with what is wrong with it
        self.versions = [] if self.remote else versions_beside(store)
        self.odd: list[str] = []
        self.good: dict[str, list[str]] = {}  # files, escaped, of tables of which some were found to be bad
        self.looked: set[tuple[str, bool]] = set()
        self.defined: set[str] = set()
        self.ahead: dict[str, int] = {}  # minutes by which hosts' clocks are: their rows count so much earlier
        self.kept: set[str] = set()  # tables of which the rows that can be true are read once, for many questions
        if not self.remote and not os.path.isdir(self.root):
            raise StepflameError("%s is no store: there is no folder v%d in it" % (store, schema.VERSION), "stepflame fleet import RECORDING --store %s" % store)

    # --- views ---

    def define(self, table: str) -> None:
        """No files are no rows."""
        paths = self.good.get(table, ["%s/%s" % (self.engine.escaped(self.root), self.scope.pattern(table))])
        try:
            self.define_over(table, self.engine.source(table, self.root, paths) if paths else self.no_rows(table))
        except self.engine.errors as error:
            if not any(text in str(error) for text in NO_FILES):
                raise
            self.define_over(table, self.no_rows(table))
        self.defined.add(table)
        if table in self.kept:
            self.engine.keep(table)

    def no_rows(self, table: str) -> str:
        names = self.engine.type_names
        nulls = ["CAST(NULL AS %s) AS %s" % (names[type_name(f.type)], f.name) for f in schema.TABLES[table].schema]
        return "SELECT %s WHERE false" % ", ".join(nulls + ["CAST(NULL AS %s) AS %s" % (names["string"], key) for key in PARTITION])

    def define_over(self, table: str, source: str) -> None:
        engine, spec = self.engine, schema.TABLES[table]
        more = ["CAST(date AS DATE) AS day"]
        if spec.time:
            at = engine.to_us % spec.time
            minute = "CAST(floor(%s / 60000000) AS BIGINT)" % at
            if self.ahead:
                minute += " - CASE host %s ELSE 0 END" % " ".join("WHEN %s THEN %d" % (engine.text(host), minutes) for host, minutes in self.ahead.items())
            more += ["%s AS %s_us" % (at, spec.time), "%s AS m" % minute, "coalesce(rank, -pid) AS who"]
        else:
            more += ["%s AS leaf" % engine.leaf, "%s AS path" % engine.path]
        rows = "SELECT * FROM (SELECT *, %s FROM (%s) f) t WHERE %s" % (", ".join(more), source, self.scope.condition(table, engine.text))
        true = schema.truth(table, self.now_us)
        engine.define(table, "SELECT * FROM (%s) r WHERE %s" % (rows, true))
        if spec.time:
            engine.define("odd_" + table, "SELECT * FROM (%s) r WHERE NOT %s" % (rows, true))

    def align(self, ahead: dict[str, int]) -> None:
        """From now on rows of these hosts count so many minutes earlier."""
        self.ahead = ahead
        self.defined.clear()

    # --- questions ---

    def ask(self, question: str, **parameters: Any) -> list[Row]:
        """The answer to questions/QUESTION.sql."""
        text = (QUESTIONS / (question + ".sql")).read_text()
        sql = Template(text).substitute({name: literal(value, self.engine.text) for name, value in parameters.items()})
        return self.run(sql, set(re.findall(r"(?:FROM|JOIN) (\w+)", sql)))

    def run(self, sql: str, names: set[str] | None = None) -> list[Row]:
        """As if all files were good; when that fails, again without those that are not: by their footers, else by all that is in them.
        names: among which are the tables that it asks."""
        words = names or set(re.findall(r"\w+", sql.lower()))  # SQL's names have no case
        tables = [table for table in schema.TABLES if table in words or "odd_" + table in words or table == "ranks" and self.scope.uid is not None]
        if self.engine.asks is not self:  # the views are of another one
            self.engine.asks = self
            self.defined.clear()
        while True:
            try:
                for table in sorted(set(tables) - self.defined, key=lambda table: table != "ranks"):  # which the others ask for the uid
                    self.define(table)
                return self.engine.run(sql)
            except self.engine.errors as error:
                looks = (False, True) if self.engine.may_be_files(error) else ()
                if not any(self.leave_out_bad(table, deep) for deep in looks for table in tables):
                    raise StepflameError("the query failed: " + first_line(error), "docs/tables.md has the tables and their columns") from None

    def leave_out_bad(self, table: str, deep: bool) -> bool:
        """Looks at each file of a table, once. Whether any is bad."""
        if (table, deep) in self.looked:
            return False
        self.looked.add((table, deep))
        scheme = self.root.partition("://")[0] + "://" if self.remote else ""
        good, bad = [], []
        try:
            filesystem, root = pyarrow.fs.FileSystem.from_uri(self.root.replace("s3a://", "s3://"))  # as Hadoop calls it
            found = filesystem.get_file_info(pyarrow.fs.FileSelector("%s/%s" % (root, table), allow_not_found=True, recursive=True))
        except (OSError, pa.ArrowException):
            return False  # then what the engine says is all that is known
        for info in found:
            name = scheme + info.path
            if info.is_file and info.base_name.endswith(".parquet") and not info.base_name.startswith(".") and self.in_scope(info.path):
                wrong = wrong_with(filesystem, info.path, table, deep)
                good += [self.engine.escaped(name)] if not wrong else []
                bad += ["%s: %s" % (name, wrong)] if wrong else []
        self.good[table] = good
        self.defined.discard(table)
        self.bad += bad
        return bool(bad)

    def in_scope(self, path: str) -> bool:
        parts = path.split("/")[-4:]
        if len(parts) < 4 or [part.partition("=")[0] for part in parts[:3]] != list(PARTITION):
            return False
        cluster, job = parts[1].partition("=")[2], parts[2].partition("=")[2]
        return (self.scope.cluster is None or cluster == safe_name(self.scope.cluster)) and (self.scope.job is None or job == safe_name(self.scope.job))

    def count_odd(self, table: str) -> list[Row]:
        """Rows that cannot be true, per host."""
        rows = self.run("SELECT host, count(*) AS n FROM odd_%s GROUP BY host ORDER BY n DESC, host" % table)
        for row in rows:
            self.odd.append("host %s lies: %d row%s of %s cannot be true (out of bounds, in the future, or sums that do not add up)" % (row["host"], row["n"], "s" * (row["n"] != 1), table))
        return rows

    def left_out(self) -> list[str]:
        """What no answer contains."""
        bad = ["%d file%s cannot be read: %s" % (len(self.bad), "s" * (len(self.bad) != 1), self.bad[0]), *self.bad[1:]] if self.bad else []
        return self.versions + bad + self.odd


def wrong_with(filesystem: pyarrow.fs.FileSystem, path: str, table: str, deep: bool) -> str:
    try:
        with filesystem.open_input_file(path) as file:
            parquet = pq.ParquetFile(file)
            wrong = schema.differences(parquet.schema_arrow, table)
            for group in range(parquet.num_row_groups) if deep and not wrong else ():
                parquet.read_row_group(group)
            return wrong
    except (OSError, pa.ArrowException) as error:
        return first_line(error)
