# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Stores with known faults, and exports of recordings as the program makes them."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fleet.generate
import pyarrow as pa
import pyarrow.parquet as pq
from stepflame.fleet import engine, schema, store

ROOT = Path(__file__).resolve().parents[2]
PLANTS = {
    "slow-host": "slow-host:host=3,begin=20,percent=8",
    "throttled-gpu": "throttled-gpu:rank=70,begin=10,end=50",
    "slow-link": "slow-link:hosts=5+6,begin=30",
    "late-data": "bad-shard:rank=50,begin=5,end=9,every=20",
    "stall": "stall:rank=90,begin=44",
}
# another place for each, so that none is found by what a test knows of the first
ELSEWHERE = {
    "slow-host": "slow-host:host=11,begin=0,percent=12",
    "throttled-gpu": "throttled-gpu:rank=3,begin=33,percent=20",
    "slow-link": "slow-link:hosts=0,begin=10,end=40,percent=15",
    "late-data": "bad-shard:rank=97,begin=12,end=20,percent=30",
    "stall": "stall:rank=0,begin=7,seconds=12",
}


def generate(store: Path, *options: str) -> Path:
    if "--workers" in options:  # a process of its own, for it forks
        subprocess.run([sys.executable, ROOT / "tools/fleet", store, *options], check=True, capture_output=True)
    else:
        fleet.generate.main([str(store), "--workers", "1", *options])
    return store


class Stores:
    def __init__(self, folder: Path):
        self.folder = folder

    def store(self, name: str, *options: str) -> str:
        store = self.folder / name
        if not store.exists():
            generate(store, *options)
        return str(store)

    def plain(self, ranks: int = 104) -> str:
        return self.store("plain%d" % ranks, "--ranks", str(ranks), "--steps", "none")

    def all_of(self, plants: dict[str, str]) -> str:
        options = [word for plant in plants.values() for word in ("--plant", plant)]
        return self.store("all" if plants is PLANTS else "elsewhere", "--ranks", "104", "--steps", "0-15" if plants is PLANTS else "none", *options)

    def planted(self, plant: str, ranks: int = 104) -> str:
        return self.store(plant.replace(":", "_") + str(ranks), "--ranks", str(ranks), "--steps", "none", "--plant", plant)


def duckdb(store: str, now: float | None = None, **scope: object) -> engine.Fleet:
    return engine.Fleet(store, engine.DuckDB("2GB", 2), engine.Scope(**scope), now)  # type: ignore[arg-type]


# --- exports ---


def empty_export() -> dict[str, pa.Table]:
    return {name: as_exported([], name) for name in schema.TABLES}


def as_exported(rows: list[dict[str, object]], name: str) -> pa.Table:
    """Rows as the program exports them: with the job, and texts in dictionaries. What a row does not say is 0 or null."""
    spec = schema.TABLES[name].schema
    if name != "stacks":
        spec = pa.schema([pa.field("job", pa.utf8(), nullable=False), *spec])
    blank = {f.name: None if f.nullable else ("" if f.type == pa.utf8() else False if f.type == pa.bool_() else [] if pa.types.is_list(f.type) else 0) for f in spec}
    table = pa.Table.from_pylist([{**blank, **row} for row in rows], schema=spec)
    for i, f in enumerate(spec):
        if f.type == pa.utf8():
            table = table.set_column(i, pa.field(f.name, pa.dictionary(pa.int32(), pa.utf8()), nullable=f.nullable), table.column(i).dictionary_encode())
    return table


def recording(folder: Path, name: str, tables: dict[str, pa.Table]) -> Path:
    """A file that `program` exports as `tables`."""
    arrow = folder / (name + ".tables")
    arrow.mkdir(parents=True)
    for table in schema.TABLES:
        rows = tables.get(table, as_exported([], table))
        with pa.OSFile(str(arrow / (table + ".arrow")), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows.unify_dictionaries())
    path = folder / (name + ".rec")
    path.write_text(str(arrow))
    return path


def program(folder: Path) -> str:
    """In place of the program, where what is tested is the import of what it gives."""
    script = folder / "program"
    script.write_text('#!/bin/sh\n[ -d "$(cat "$7")" ] || { echo "stepflame: error: $7: it is no recording" >&2; exit 1; }\ncp "$(cat "$7")"/*.arrow "$5"\n')
    script.chmod(0o755)
    return str(script)


def exports_of(store: Path, host: str, job: str = "train") -> dict[str, pa.Table]:
    """What a host of a generated store recorded."""
    found = {}
    for name, spec in schema.TABLES.items():
        files = sorted((store / "v1" / name).rglob(host + "-*.parquet"))
        table = pa.concat_tables([pq.ParquetFile(file).read() for file in files]) if files else spec.schema.empty_table()
        table = table.select(spec.schema.names).cast(spec.schema)
        if name != "stacks":
            table = table.add_column(0, "job", pa.array([job] * table.num_rows, pa.utf8()))
        else:
            table = table.take(pa.array(list({stack: i for i, stack in enumerate(table.column("stack").to_pylist())}.values()), pa.int64()))
        for i, f in enumerate(table.schema):
            if f.type == pa.utf8():
                table = table.set_column(i, f.name, table.column(i).dictionary_encode())
        found[name] = table
    return found


def content(store: Path) -> dict[str, list[dict[str, object]]]:
    """All rows of a store, by file."""
    files = sorted(path for path in (store / "v1").rglob("*.parquet"))
    return {str(path.relative_to(store)): pq.ParquetFile(path).read().to_pylist() for path in files}


BEGIN = 29893560  # minutes since 1970
MS = 1_000_000


def trained(folder: Path, ranks: int, own: Callable[[int, int], float], minutes: int = 20, hosts: int | None = None, waits: bool = True, **more: object) -> str:
    """A store with a job whose ranks have own(rank, minute) milliseconds in a step, and wait for the slowest, where `waits`; 100 steps a minute.
    more: columns of windows, as values or as functions of rank and minute; job, cluster, tables: rows of other tables."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster, other_tables = more.pop("cluster", "lab"), more.pop("tables", {})
    per_host = -(-ranks // (hosts or ranks))
    rows = []
    for m in range(minutes):
        longest = max(own(rank, m) for rank in range(ranks))
        for rank in range(ranks):
            mine, comm = 100 * round(own(rank, m) * MS), 100 * round((longest - own(rank, m) + 20) * MS) if waits else 0
            row = {"job": "train", "host": "node-%d" % (rank // per_host), "pid": 100 + rank, "rank": rank, "minute": (BEGIN + m) * 60_000_000, "seen_ns": 60_000 * MS, "steps": 100}
            row |= {"step_ns": mine + comm, "longest_ns": (mine + comm) // 100, "forward_ns": mine, "comm_ns": comm}
            row |= {name: value(rank, m) if callable(value) else value for name, value in more.items()}
            row["forward_ns"] -= row.get("data_ns", 0)
            rows.append(row)
    name = "recorded%d" % len(list(folder.iterdir()))
    tables = {name: as_exported(its, name) for name, its in {"windows": rows, **other_tables}.items()}
    counts = store.Import(str(folder / "store"), cluster, program(folder)).run([recording(folder, name, tables)])
    assert counts.left_out == [] and counts.recordings == 1
    return str(folder / "store")


def same(one: Any, other: Any) -> bool:
    """Are two answers equal, but for the last digits of sums?"""
    if isinstance(one, float) or isinstance(other, float):
        return one is not None and other is not None and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
