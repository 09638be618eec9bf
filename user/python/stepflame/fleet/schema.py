# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The tables of schema 1: their columns, keys, and which rows can be true. docs/tables.md describes them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

VERSION = 1
PHASES = ("other", "data", "forward", "backward", "optimizer", "comm", "checkpoint", "validation", "jit", "compile", "await", "transfer")
CAUSES = (
    "run_queue", "lock", "gil", "disk_read", "disk_write", "fsync", "page_fault", "sleep", "child_wait", "pipe", "socket", "poll", "unknown", "pauses",
    "data_wait", "collective", "gpu_sync", "xla_wait", "thread_wait", "file_system",
)  # fmt: skip
PHASE_COLUMNS = " ".join("%s_ns" % phase for phase in PHASES)
WAIT_COLUMNS = " ".join("wait_%s_ns?" % cause for cause in CAUSES)

TIME = pa.timestamp("us", "UTC")
TYPES = {"text": pa.utf8(), "int": pa.int32(), "long": pa.int64(), "double": pa.float64(), "bool": pa.bool_(), "time": TIME, "texts": pa.list_(pa.utf8())}
KEY = "text:host int:pid int:rank?"


@dataclass(frozen=True)
class Table:
    """time: the column that says in which file a row is; once: a row is known by these columns (cumulative tables), of which the largest `until` counts."""

    schema: pa.Schema
    time: str
    once: tuple[str, ...] = ()
    true: tuple[str, ...] = ()  # conditions in SQL that hold for each row that can be true; what every row can be tested for is in `truth`
    order: tuple[str, ...] = ()  # behind rank and pid

    @property
    def per_minute(self) -> bool:
        return self.time == "minute"


def columns(text: str) -> pa.Schema:
    """ "int:uid? long:n ns": a type holds until the next; "?" marks what may be null."""
    fields, kind = [], "long"
    for word in text.split():
        head, _, name = word.rpartition(":")
        kind = head or kind
        fields.append(pa.field(name.rstrip("?"), TYPES[kind], nullable=name.endswith("?")))
    return pa.schema(fields)


BOUNDS = {"gpu_busy": (0, 1), "gpu_mhz": (0, 10**5), "gpu_watts": (0, 10**5)}  # of other doubles: MOST
MOST = 10**16  # a hundred days in nanoseconds: no figure of a row is more, and sums do not overflow


def adds_up(total: str) -> str:
    """Each figure within bounds that others hold it against: a sum of figures that cannot be true could overflow, and end the query."""
    return "%s = %s" % (" + ".join("least(greatest(%s, -1), %d)" % (phase, MOST) for phase in PHASE_COLUMNS.split()), total)


TABLES = {
    "ranks": Table(
        columns(
            KEY + " local_rank? world_size? text:launcher job_id? int:restarts? long:uid? text:cgroup? gpu? int:cpus text:python? torch? jax? stepflame kernel"
            " steps_by? time:since until bool:ended text:ending?"
        ),
        "until", ("since",), ("since <= until",), ("since",),
    ),
    "windows": Table(
        columns(
            KEY + " time:minute long:seen_ns rested_ns steps rest_steps step_ns longest_ns " + PHASE_COLUMNS + " oncpu_ns? gc_ns slow_steps lost"
            " double:budget? accounted? measured? error? long:cpu_ns? rss_bytes? throttled_ns? double:gpu_busy? gpu_mhz? gpu_watts?"
        ),
        "minute", (),
        ("seen_ns <= 60000000000", "rested_ns <= 60000000000", "longest_ns <= step_ns", "slow_steps <= steps", adds_up("step_ns")),
        ("minute",),
    ),
    "steps": Table(
        columns(KEY + " time:minute start long:step duration_ns " + PHASE_COLUMNS + " gc_ns oncpu_ns? " + WAIT_COLUMNS + " text:cause?"),
        "minute", (), (adds_up("duration_ns"),), ("minute", "start"),
    ),
    "waits": Table(columns(KEY + " time:minute text:phase cause place? long:n ns"), "minute", (), (), ("minute", "phase", "cause")),
    "samples": Table(
        columns(KEY + " time:minute text:phase? bool:main text:cause? long:stack n weight_ns"),
        "minute", (), (), ("minute", "phase", "stack"),
    ),
    "stacks": Table(columns("long:stack texts:frames"), ""),
    "actions": Table(
        columns(KEY + " time:since until text:kind name long:n total_ns self_ns min_ns max_ns"),
        "until", ("since", "kind", "name"), ("since <= until",), ("since", "kind", "name"),
    ),
    "ops": Table(
        columns(KEY + " time:since until text:kind name action? long:n total_ns self_ns self_cpu_bytes self_device_bytes"),
        "until", ("since", "kind", "name", "action"), ("since <= until",), ("since", "kind", "name"),
    ),
    "gpu": Table(
        columns(KEY + " int:device time:since until text:kind name long:n ns"),
        "until", ("device", "since", "kind", "name"), ("since <= until",), ("since", "device", "kind", "name"),
    ),
    "recordings": Table(
        columns(KEY + " time:since until text:machine path long:bytes time:modified"),
        "until", ("machine", "path"), ("since <= until",), ("since", "machine", "path"),
    ),
}  # fmt: skip
EXPORTED = tuple(name for name in TABLES if name != "recordings")  # by the program; the import knows which recording it reads


def truth(table: str, now_us: int) -> str:
    """The condition, in SQL that DuckDB and Spark read, that a row of `table` can be true."""
    spec = TABLES[table]
    if not spec.time:
        return "true"
    figures = [column.name for column in spec.schema if column.type == pa.int64() and column.name != "stack" and not column.name.endswith("_bytes")]
    conditions = ["least({0}) >= 0 AND greatest({0}) <= {1}".format(", ".join(figures + ["0"]), MOST)] if figures else []
    doubles = {column.name: BOUNDS.get(column.name, (-MOST, MOST)) for column in spec.schema if column.type == pa.float64()}
    conditions += ["coalesce(%s, 0) BETWEEN %d AND %d" % (name, *bounds) for name, bounds in doubles.items()]  # NaN is more than all
    conditions += spec.true
    conditions.append("CAST(%s AS DATE) = day" % spec.time)
    conditions.append("%s_us <= %d" % (spec.time, now_us + 120 * 1000000))  # clocks of hosts differ by seconds
    return "coalesce(%s, false)" % " AND ".join(conditions)


def differences(schema: pa.Schema, table: str) -> str:
    """What makes `schema` another one than that of `table`; "" if nothing does. Text may be a dictionary; more columns are no harm."""
    for field in TABLES[table].schema:
        at = schema.get_field_index(field.name)
        if at < 0:
            return "it has no column %s" % field.name
        kind = schema.field(at).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_timestamp(field.type) and pa.types.is_timestamp(kind) and kind.tz:
            continue  # another unit
        if kind not in (field.type, pa.large_utf8() if field.type == pa.utf8() else None) and not (pa.types.is_list(kind) and pa.types.is_list(field.type)):
            return "its column %s is %s, not %s" % (field.name, kind, field.type)
    return ""
