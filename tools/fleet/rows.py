# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Arrow tables of a host's hour. In: tables.py's RankHour of each rank. Out: {table: Arrow table}."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from .model import Host, generator
from .profile import CAUSES, GLOBAL, LOCAL, PHASES, Action, Op
from .schema import (
    MINUTE,
    PARTS,
    PERIOD_NS,
    SECOND,
    phases_of,
    schema,
    stack_id,
    texts,
    times,
)

if TYPE_CHECKING:
    from .tables import RankHour, Writer

GPU_WINDOW_NS = 10 * SECOND


def _table(name: str, columns: dict[str, object]) -> pa.Table:
    wanted = schema(name)
    arrays = [columns[field.name] if isinstance(columns[field.name], (pa.Array, pa.ChunkedArray)) else pa.array(columns[field.name], field.type) for field in wanted]
    return pa.Table.from_arrays(arrays, schema=wanted)


def _nulls(name: str, column: str, count: int) -> pa.Array:
    return pa.nulls(count, schema(name).field(column).type)


class Rows:
    """Columns that all tables have."""

    def __init__(self, writer: Writer, host: Host, hour_ns: int):
        self.writer, self.host, self.profile = writer, host, writer.job.profile
        self.name = writer.place.host(host.number)
        self.rng = generator(writer.job, 6, host.number, hour_ns // SECOND)

    def pid(self, rank: int) -> int:
        return 3000 + 37 * (self.host.number % 500) + rank % 8 * 3

    def constant(self, text: str, count: int) -> pa.DictionaryArray:
        return texts([text], np.zeros(count, np.int32))

    def key(self, ranks: np.ndarray) -> dict[str, object]:
        pids = 3000 + 37 * (self.host.number % 500) + ranks % 8 * 3
        return {"host": self.constant(self.name, len(ranks)), "pid": pids.astype(np.int32), "rank": ranks.astype(np.int32)}


def tables(writer: Writer, host: Host, hour_ns: int, skew: int, found: list[RankHour], so_far: dict) -> dict[str, pa.Table]:
    """so_far: what the hours before had of each rank, for the cumulative tables."""
    rows = Rows(writer, host, hour_ns)
    since = {hour.rank: writer.since_ns(hour.rank) + skew for hour in found}
    until = {hour.rank: int(hour.minutes[-1]) + min(MINUTE, int(hour.seen_ns[-1] + hour.rested_ns[-1])) for hour in found}
    for hour in found:
        known = so_far.get(hour.rank)
        total = hour.parts.sum(axis=0)
        new = (hour.count, total, hour.shortest_parts, hour.longest_parts)
        so_far[hour.rank] = new if known is None else (known[0] + new[0], known[1] + total, np.minimum(known[2], new[2]), np.maximum(known[3], new[3]))
    out = {"ranks": _ranks(rows, found, since, until), "windows": _windows(rows, found, skew), "waits": _waits(rows, found)}
    out["samples"], out["stacks"] = _samples(rows, found)
    for table, entries in (("actions", rows.profile.actions), ("ops", rows.profile.ops)):
        if entries:
            out[table] = _cumulative(rows, found, since, until, so_far, table, entries)
    if rows.profile.kernels:
        out["gpu"] = _gpu(rows, found, until)
    with_steps = [hour for hour in found if hour.each and hour.count]
    if with_steps:
        out["steps"] = _steps(rows, with_steps)
    return out


def _ranks(rows: Rows, found: list[RankHour], since: dict, until: dict) -> pa.Table:
    ranks = np.array([hour.rank for hour in found])
    count, job, profile = len(ranks), rows.writer.job, rows.profile
    name = rows.writer.place.job
    columns = rows.key(ranks) | {"local_rank": ranks % 8, "world_size": np.full(count, job.ranks), "restarts": np.zeros(count), "uid": np.full(count, 1000 + len(name) % 5), "cpus": np.full(count, 96)}
    columns |= {key: rows.constant(text, count) for key, text in {"launcher": "torchrun", "job_id": name, "cgroup": "/system.slice/train.service", "python": profile.python, "torch": profile.torch}.items()}
    columns |= {"gpu": rows.constant(profile.gpu, count) if profile.gpu else _nulls("ranks", "gpu", count), "jax": _nulls("ranks", "jax", count)}
    columns |= {"stepflame": rows.constant("0.1.0", count), "kernel": rows.constant("6.1.0-28-amd64", count), "steps_by": rows.constant("loader_optimizer", count)}
    columns |= {"since": times([since[r] for r in ranks]), "until": times([until[r] for r in ranks]), "ended": [False] * count, "ending": _nulls("ranks", "ending", count)}
    return _table("ranks", columns)


def _minutes(found: list[RankHour]) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([hour.rank for hour in found], [len(hour.minutes) for hour in found]), np.concatenate([hour.minutes for hour in found])


def _windows(rows: Rows, found: list[RankHour], skew: int) -> pa.Table:
    ranks, minutes = _minutes(found)
    count, rng, profile = len(ranks), rows.rng, rows.profile
    joined = {name: np.concatenate([getattr(hour, name) for hour in found]) for name in ("seen_ns", "rested_ns", "steps", "rest_steps", "slow", "longest", "parts", "oncpu")}
    parts = joined["parts"]
    phases = phases_of(parts)
    step_ns = sum(phases.values())
    columns = rows.key(ranks) | {"minute": times(minutes), "longest_ns": joined["longest"], "slow_steps": joined["slow"], "step_ns": step_ns}
    columns |= {name: joined[name] for name in ("seen_ns", "rested_ns", "steps", "rest_steps")}
    columns |= {f"{phase}_ns": phases[phase] for phase in PHASES}
    oncpu = joined["oncpu"].sum(axis=1)
    zero = np.zeros(count, np.int64)
    columns |= {"oncpu_ns": oncpu, "gc_ns": phases["other"] // 50, "lost": zero}
    rests = np.isin(ranks // 8, list(rows.writer.seen.rest))
    columns |= {"budget": pa.array(np.full(count, 0.005), mask=~rests), "accounted": 0.004 + 0.001 * rng.random(count), "measured": _nulls("windows", "measured", count), "error": np.full(count, 0.001)}
    columns |= {"cpu_ns": (oncpu * 1.4).astype(np.int64), "rss_bytes": (21e9 + 1e8 * rng.random(count)).astype(np.int64), "throttled_ns": zero}
    if not profile.gpu:
        return _table("windows", columns | {name: _nulls("windows", name, count) for name in ("gpu_busy", "gpu_mhz", "gpu_watts")})
    busy = np.minimum(1, 0.98 * (phases["forward"] + phases["backward"] + phases["optimizer"] + phases["comm"]) / np.maximum(1, step_ns))
    mhz = profile.mhz * (1 + 0.004 * rng.standard_normal(count))
    for plant in rows.host.plants:
        if plant.kind == "throttled-gpu":
            minute = (minutes - skew - rows.writer.seen.begin_ns) / MINUTE
            # of a minute of which it is throttled for a part, the mean
            part = np.clip(minute + 1 - plant.begin, 0, 1) * np.clip(plant.end - minute, 0, 1)
            mhz = np.where(ranks == plant.rank, mhz * (1 - part + part / (1 + plant.percent / 100)), mhz)
    return _table("windows", columns | {"gpu_busy": busy, "gpu_mhz": mhz, "gpu_watts": 120 + 520 * busy * mhz / profile.mhz})


def _steps(rows: Rows, found: list[RankHour]) -> pa.Table:
    each = {name: np.concatenate([hour.each[name] for hour in found]) for name in found[0].each}
    ranks = np.repeat([hour.rank for hour in found], [hour.count for hour in found])
    phases, cells = phases_of(each["parts"]), rows.writer.cells
    columns = rows.key(ranks) | {"minute": times(each["ended"] // MINUTE * MINUTE), "start": times(each["started"]), "step": each["step"], "duration_ns": each["ended"] - each["started"]}
    columns |= {f"{phase}_ns": phases[phase] for phase in PHASES}
    waits = {cause: np.zeros(len(ranks), np.int64) for cause in CAUSES}
    for column, kind in enumerate(cells.kind_of):
        waits[cells.kinds[kind][1]] += each["waits"][:, column]
    columns |= {f"wait_{cause}_ns": ns for cause, ns in waits.items()} | {"oncpu_ns": each["oncpu"].sum(axis=1), "gc_ns": phases["other"] // 50}
    # what a slow step is blamed on: where it exceeds an ordinary one most
    blamed = ["collective", "data_wait", "disk_read", "checkpoint", "gpu_sync", None]
    own = [phases["comm"], phases["data"] - waits["disk_read"], waits["disk_read"], phases["checkpoint"], phases["forward"] + phases["backward"]]
    excess = np.stack([part - np.median(part) for part in own], axis=1)
    columns["cause"] = texts(blamed, np.where(each["slow"], excess.argmax(axis=1), len(own)))
    return _table("steps", columns)


def _waits(rows: Rows, found: list[RankHour]) -> pa.Table:
    cells = rows.writer.cells
    ranks, minutes = _minutes(found)
    waits = np.concatenate([hour.waits for hour in found])
    ns = np.zeros((len(waits), len(cells.kinds)), np.int64)
    most, place = np.zeros_like(ns), np.zeros(ns.shape, np.int32)
    for column, kind in enumerate(cells.kind_of):
        ns[:, kind] += waits[:, column]
        longer = waits[:, column] > most[:, kind]
        place[longer, kind], most[longer, kind] = column, waits[longer, column]
    row, kind = np.nonzero(ns)
    columns = rows.key(ranks[row]) | {"minute": times(minutes[row]), "place": texts(cells.places, place[row, kind]), "n": ns[row, kind] // PERIOD_NS, "ns": ns[row, kind]}
    columns |= {"phase": texts([phase for phase, _ in cells.kinds], kind), "cause": texts([cause for _, cause in cells.kinds], kind)}
    return _table("waits", columns)


def _samples(rows: Rows, found: list[RankHour]) -> tuple[pa.Table, pa.Table]:
    """A sample each 10 ms: as many of a stack as its share of the time says, rounded up or down at random."""
    cells, stacks = rows.writer.cells, rows.profile.stacks
    ranks, minutes = _minutes(found)
    waits, oncpu, seen = (np.concatenate([getattr(hour, name) for hour in found]) for name in ("waits", "oncpu", "seen_ns"))
    ns = np.zeros((len(ranks), len(stacks)))
    for i, stack in enumerate(stacks):
        if stack.phase is None:
            ns[:, i] = seen * stack.share
        elif stack.cause is None:
            ns[:, i] = oncpu[:, PARTS.index(stack.part or stack.phase)] * stack.share
        else:
            part = PARTS.index(stack.part or stack.phase)
            same = [j for j, (of, phase, cause, _, _) in enumerate(cells.waits) if (of, phase, cause) == (part, stack.phase, stack.cause)]
            same += [len(cells.waits)] * ((stack.phase, stack.cause) == ("data", "disk_read"))
            ns[:, i] = waits[:, same].sum(axis=1) * stack.share
    n = np.floor(ns / PERIOD_NS + rows.rng.random(ns.shape)).astype(np.int64)
    row, of = np.nonzero(n)
    ids = np.array([stack_id(stack.frames) for stack in stacks], np.int64)
    n = n[row, of]
    columns = rows.key(ranks[row]) | {"minute": times(minutes[row]), "stack": ids[of], "n": n, "weight_ns": n * PERIOD_NS}
    columns |= {"phase": texts([stack.phase for stack in stacks], of), "cause": texts([stack.cause for stack in stacks], of), "main": np.array([stack.phase is not None for stack in stacks])[of]}
    frames = {stack_id(stack.frames): stack.frames for stack in stacks}
    used = np.unique(ids[of]).tolist()
    return _table("samples", columns), _table("stacks", {"stack": used, "frames": [frames[i] for i in used]})


def _parts_of(entry: Action | Op) -> tuple[str, ...]:
    part = getattr(entry, "part", "") or entry.phase
    return (LOCAL, GLOBAL) if part == "comm" else (part,)


def _cumulative(rows: Rows, found: list[RankHour], since: dict, until: dict, so_far: dict, table: str, entries: list) -> pa.Table:
    """Actions or ops since each rank was attached."""
    ranks = np.repeat([hour.rank for hour in found], len(entries))
    column = [[PARTS.index(part) for part in _parts_of(entry)] for entry in entries]
    steps = np.array([so_far[hour.rank][0] for hour in found])
    made = {}
    for name, which in (("total_ns", 1), ("min_ns", 2), ("max_ns", 3)):
        parts = np.array([so_far[hour.rank][which] for hour in found])
        made[name] = np.stack([parts[:, c].sum(axis=1) * e.share for c, e in zip(column, entries)], axis=1)
    n = np.stack([steps * e.per_step for e in entries], axis=1).astype(np.int64)
    n = np.where((n == 0) & (made["total_ns"] > 0), 1, n)
    self_ns = made["total_ns"] / [e.share for e in entries] * [e.self_share if table == "ops" else e.share * e.self_share for e in entries]
    per_call = np.maximum(1, [e.per_step for e in entries])
    kept = (n > 0).ravel()
    columns = {"since": times(np.array([since[r] for r in ranks[kept]])), "until": times(np.array([until[r] for r in ranks[kept]]))}
    of = np.tile(np.arange(len(entries)), len(found))[kept]
    columns |= rows.key(ranks[kept]) | {"kind": texts([e.kind for e in entries], of), "name": texts([e.name for e in entries], of)}
    columns |= {"n": n.ravel()[kept], "total_ns": made["total_ns"].ravel()[kept].astype(np.int64), "self_ns": self_ns.ravel()[kept].astype(np.int64)}
    if table == "actions":
        columns |= {name: (made[name] / per_call).ravel()[kept].astype(np.int64) for name in ("min_ns", "max_ns")}
        return _table(table, columns)
    zero = np.zeros(len(of), np.int64)
    columns |= {"action": texts([e.action for e in entries], of), "self_cpu_bytes": zero, "self_device_bytes": zero}
    return _table(table, columns)


def _gpu(rows: Rows, found: list[RankHour], until: dict) -> pa.Table:
    """A window of ten seconds at the end of the hour."""
    kernels = rows.profile.kernels
    names = [*kernels, *(("kernel", f"ncclDevKernel_{name}_Sum_bf16_RING_LL", 1, 0) for name in ("ReduceScatter", "AllReduce"))]
    names += [("time", name, 0, 0) for name in ("compute", "communication", "idle_host")]
    ranks = np.repeat([hour.rank for hour in found], len(names))
    steps, ns = [], []
    for hour in found:
        last = hour.parts[max(0, len(hour.minutes) - 2)] * (GPU_WINDOW_NS / MINUTE)
        part = dict(zip(PARTS, last))
        compute = 0.96 * (part["forward"] + part["backward"] + part["optimizer"])
        busy = [compute * sum(kernel[3] for kernel in kernels), part[LOCAL] + part[GLOBAL]]
        steps += [GPU_WINDOW_NS / rows.writer.usual_ns * kernel[2] for kernel in names]
        ns += [compute * kernel[3] for kernel in kernels] + [part[LOCAL], part[GLOBAL], *busy, max(0, GPU_WINDOW_NS - sum(busy))]
    end = np.array([until[r] for r in ranks])
    of = np.tile(np.arange(len(names)), len(found))
    columns = rows.key(ranks) | {"since": times(end - GPU_WINDOW_NS), "until": times(end), "kind": texts([k[0] for k in names], of), "name": texts([k[1] for k in names], of)}
    columns["device"] = ranks % 8
    return _table("gpu", columns | {"n": np.array(steps).astype(np.int64), "ns": np.array(ns).astype(np.int64)})
