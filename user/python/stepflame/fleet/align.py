# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Which step of one rank is which step of another. Steps are counted from when a rank was attached, and clocks of hosts differ.

In: `steps` of a job in a store. Out: for each process how much to add to its step numbers to get those of one reference, how much its host's clock
is ahead, and how sure both are.

Ranks that meet in collectives have the same sequence of lengths of steps: the offset is where two such sequences agree best. How far apart the
same step then ends by two clocks is the offset of the clocks. Ranks without collectives are held against each other by time alone.

Where steps have no rows, `minutes_off` finds clocks that are whole minutes off, by the lengths of steps by minute.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import schema
from .engine import Scope, first_line

Array = npt.NDArray[Any]
Processes = set[tuple[str, int]]  # host, pid
# the columns that are read, and what stands for null: -1 cannot be true
COLUMNS = {"host": "", "pid": -1, "rank": -1, "minute": 0, "start": 0, "step": -1, "duration_ns": -1, "comm_ns": 0, "wait_collective_ns": 0}
FEWEST = 20  # steps in which two ranks have to overlap
SURE = 8  # standard deviations above chance from which on lengths may be of the same steps
TREND = 65  # steps: what changes more slowly is alike at many offsets
CANDIDATES = 8
SAME = 0.1  # of a step: by so much, or less, the lengths of one step differ between ranks
CLOCK_NS = 50 * 10**6  # clocks that a time service holds are nearer
LEAST_PACES = 12  # minutes in which hosts have to overlap
FURTHEST = 24 * 60  # minutes that a clock can be found to be off
MOST_PACES = 20_000_000
SPARSE = 64  # step numbers for each step that is there, at most: the rest of a track is a lie


@dataclass
class Track:
    """A process: numbers of its steps, their ends by its host's clock, lengths."""

    host: str
    pid: int
    rank: int | None
    step: Array
    end_ns: Array
    length_ns: Array
    meets: bool  # in collectives


@dataclass
class Aligned:
    """offset: what to add to a step number. how: collectives, time, or none. clock_ns: how much the clock of its host is ahead of most hosts'.
    spread_ns: half of the steps end this far, or less, from where offset and clock say; next_ns: the same of the best other offset, and the
    more the two differ, the surer is the offset. agree: share of the steps that are as long as the reference's, within 10 %; by time: of those
    that have their middle in the same step of the reference."""

    host: str
    pid: int
    rank: int | None
    steps: int
    how: str
    offset: int = 0
    clock_ns: int | None = None
    spread_ns: int | None = None
    next_ns: int | None = None
    agree: float = 0.0
    overlap: int = 0


@dataclass
class Alignment:
    """clocks: of each host, in nanoseconds, against the median host. disagree: hosts whose clock is off by more than CLOCK_NS."""

    reference: tuple[str, int, int | None] | None = None
    ranks: list[Aligned] = field(default_factory=list)
    clocks: dict[str, int] = field(default_factory=dict)
    disagree: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def align(store: str | os.PathLike[str], scope: Scope, processes: Processes | None = None) -> Alignment:
    """Of the scope's job, in its cluster, times and hosts; of these processes alone, where they are given, for steps do not say of which user they
    are. Holds one host's steps in memory at a time, beside the reference's."""
    out = Alignment()
    files: dict[str, list[str]] = {}
    rows: dict[str, int] = {}
    for path in sorted(glob.glob("%s/v%d/%s" % (glob.escape(str(store)), schema.VERSION, scope.pattern("steps")))):
        host = Path(path).name.rpartition("-")[0]
        try:
            rows[host] = rows.get(host, 0) + pq.read_metadata(path).num_rows
        except (OSError, pa.ArrowException) as error:
            out.left_out.append(f"{path}: {first_line(error)}")
            continue
        files.setdefault(host, []).append(path)
    reference = None
    # who has most steps overlaps with most others
    for host in sorted(rows, key=lambda name: -rows[name]):
        reference = max(tracks(files[host], scope, [], processes), key=lambda track: len(track.step), default=None)
        if reference:
            break
    if not reference:
        return out
    out.reference = (reference.host, reference.pid, reference.rank)
    spectrum = Sequence(reference)
    for host in files:
        out.ranks += [against(spectrum, track) for track in tracks(files[host], scope, out.left_out, processes)]
    judge_clocks(out)
    return out


def read(path: str) -> pa.Table:
    """Columns of exactly the types that we know, without nulls; times are microseconds."""
    file = pq.ParquetFile(path)
    wrong = schema.differences(file.schema_arrow, "steps")
    if wrong:
        raise pa.ArrowInvalid(wrong)
    table = file.read(columns=list(COLUMNS))
    table.validate(full=True)  # a host's name may be no UTF-8
    kinds = {f.name: f.type for f in schema.TABLES["steps"].schema}
    columns = {}
    for name, instead in COLUMNS.items():
        column = table.column(name).cast(kinds[name], safe=False)
        columns[name] = pc.fill_null(column.cast(pa.int64()) if kinds[name] == schema.TIME else column, instead)
    return pa.table(columns)


def tracks(paths: list[str], scope: Scope, left_out: list[str], processes: Processes | None) -> Iterator[Track]:
    """The processes of a host. Rows that cannot be true are left out."""
    parts = []
    for path in paths:
        try:
            parts.append(read(path))
        except (OSError, pa.ArrowException) as error:
            left_out.append(f"{path}: {first_line(error)}")
    if not parts:
        return
    table = pa.concat_tables(parts)
    if scope.hosts:
        table = table.filter(pc.is_in(table["host"], pa.array(scope.hosts)))
    host = table["host"][0].as_py() if table.num_rows else ""
    column = {name: table[name].to_numpy() for name in COLUMNS if name != "host"}
    pids, numbers, lengths, start_us = column["pid"], column["step"], column["duration_ns"], column["start"]
    minute = column["minute"] // (60 * 10**6)
    asked = (minute >= (scope.since or -schema.MOST)) & (minute < (scope.until or schema.MOST))
    if processes is not None:
        asked &= np.isin(pids, [pid for name, pid in processes if name == host])
    true = (numbers >= 0) & (numbers < schema.MOST) & (lengths > 0) & (lengths < schema.MOST) & (start_us > 0) & (start_us < 2**62 // 1000)
    if not true[asked].all():
        left_out.append(f"host {host} lies: {int((~true & asked).sum())} steps cannot be true")
    order = np.lexsort((numbers, pids))
    order = order[(true & asked)[order]]
    for rows in np.split(order, np.flatnonzero(np.diff(pids[order])) + 1):
        rows = rows[np.unique(numbers[rows], return_index=True)[1]]
        step = numbers[rows]
        if not len(step):
            continue
        if step[-1] - step[0] > SPARSE * len(step) + 10**6:
            left_out.append(f"host {host} lies: process {pids[rows[0]]} has {len(step)} steps with numbers up to {step[-1]}")
            continue
        rank = int(column["rank"][rows[0]])
        meets = bool((column["comm_ns"][rows].sum() + column["wait_collective_ns"][rows].sum()) > 0)
        yield Track(host, int(pids[rows[0]]), None if rank < 0 else rank, step, start_us[rows] * 1000 + lengths[rows], lengths[rows], meets)


class Sequence:
    """Lengths of steps as a signal over step numbers: logarithms, without their trend, outliers cut, 0 where a step is missing."""

    def __init__(self, track: Track):
        self.track = track
        self.first = int(track.step[0])
        size = int(track.step[-1]) - self.first + 1
        at = track.step - self.first
        self.signal, self.there = np.zeros(size), np.zeros(size)
        self.there[at] = 1
        logs = np.log(track.length_ns)
        logs = self._cut(logs - np.median(logs))
        self.signal[at] = logs
        self.signal[at] = self._cut(logs - (_around(self.signal) / np.maximum(_around(self.there), 1))[at])
        self.spectra: dict[int, tuple[Array, ...]] = {}

    @staticmethod
    def _cut(logs: Array) -> Array:
        limit = 6 * np.median(np.abs(logs)) + 1e-4
        cut: Array = np.clip(logs, -limit, limit)
        return cut

    def spectrum(self, size: int) -> tuple[Array, ...]:
        """Of the signal, its square, and where it is."""
        if size not in self.spectra:
            self.spectra = {size: tuple(np.fft.rfft(part, size) for part in (self.signal, self.signal**2, self.there))}
        return self.spectra[size]

    def likeness(self, other: Sequence) -> tuple[Array, Array]:
        """By lag: the correlation of other's steps with those that are lag further here, in standard deviations of chance; and the lags, as offsets
        of step numbers."""
        size = 1 << (len(self.signal) + len(other.signal) - 1).bit_length()
        mine, yours = self.spectrum(size), other.spectrum(size)
        product, mine_power, your_power, both = (
            np.fft.irfft(a * np.conj(b), size) for a, b in ((mine[0], yours[0]), (mine[1], yours[2]), (mine[2], yours[1]), (mine[2], yours[2]))
        )
        enough = both > FEWEST - 0.5
        power = np.sqrt(np.clip(mine_power, 0, None) * np.clip(your_power, 0, None))
        like = np.where(enough & (power > 1e-9), product / np.maximum(power, 1e-9), -1.0) * np.sqrt(np.maximum(both, 0))
        lags = np.arange(size)
        lags[lags >= len(self.signal)] -= size
        return like, lags + self.first - other.first


def _around(signal: Array) -> Array:
    """Sums over TREND steps around each."""
    sums = np.concatenate([np.zeros(TREND // 2 + 1), np.cumsum(signal)])
    sums = np.concatenate([sums, np.full(TREND // 2, sums[-1])])
    around: Array = sums[TREND:] - sums[:-TREND]
    return around


def against(reference: Sequence, track: Track) -> Aligned:
    out = Aligned(track.host, track.pid, track.rank, len(track.step), "none")
    if reference.track.meets and track.meets:
        like, offsets = reference.likeness(Sequence(track))
        best = np.argpartition(-like, min(CANDIDATES, len(like) - 1))[:CANDIDATES]
        tried = {int(offsets[i]) for i in best if like[i] >= SURE}
        # of the same step all ranks are released at once: nowhere else the ends are as near to each other
        found = _measured(reference.track, track, tried, out)
        if found:
            out = found[0]
            others = found[1:] + _measured(reference.track, track, {out.offset - 1, out.offset + 1}, out)
            out.next_ns = min((one.spread_ns or 0 for one in others), default=None)
    return out if out.how != "none" else _by_time(reference.track, track, out)


def _pairs(reference: Track, track: Track, offset: int) -> tuple[Array, Array]:
    """Rows of both that are the same step."""
    _, mine, yours = np.intersect1d(reference.step, track.step + offset, assume_unique=True, return_indices=True)
    return mine, yours


def _measured(reference: Track, track: Track, offsets: set[int], base: Aligned) -> list[Aligned]:
    """Those at which there are steps that both have, the nearest first."""
    found = [one for offset in offsets if (one := _measure(reference, track, offset, base))]
    return sorted(found, key=lambda one: one.spread_ns or 0)


def _measure(reference: Track, track: Track, offset: int, base: Aligned) -> Aligned | None:
    mine, yours = _pairs(reference, track, offset)
    if not len(mine):
        return None
    apart = track.end_ns[yours] - reference.end_ns[mine]
    clock = int(np.median(apart))
    lengths = reference.length_ns[mine]
    agree = float(np.mean(np.abs(track.length_ns[yours] - lengths) <= SAME * lengths))
    return Aligned(base.host, base.pid, base.rank, base.steps, "collectives", offset, clock, int(np.median(np.abs(apart - clock))), None, agree, len(mine))


def _by_time(reference: Track, track: Track, out: Aligned) -> Aligned:
    """The step of the reference in whose middle most of this rank's steps are, if all clocks are right."""
    middle = track.end_ns - track.length_ns // 2
    at = np.searchsorted(reference.end_ns, middle)
    inside = (at < len(reference.end_ns)) & (middle >= reference.end_ns[0] - reference.length_ns[0])
    if not inside.any():
        return out
    offsets = reference.step[at[inside]] - track.step[inside]
    offset = int(np.median(offsets))
    mine, yours = _pairs(reference, track, offset)
    spread = int(np.median(np.abs(track.end_ns[yours] - reference.end_ns[mine]))) if len(mine) else None
    agree = float(np.mean(offsets == offset))
    return Aligned(out.host, out.pid, out.rank, out.steps, "time", offset, None, spread, None, agree, len(mine))


def judge_clocks(out: Alignment) -> None:
    """Clocks against the median host's, not against the reference's: that one may be wrong itself."""
    by_host: dict[str, list[int]] = {}
    for rank in out.ranks:
        if rank.clock_ns is not None:
            by_host.setdefault(rank.host, []).append(rank.clock_ns)
    hosts = {host: int(np.median(clocks)) for host, clocks in by_host.items()}
    usual = int(np.median(list(hosts.values()))) if hosts else 0
    out.clocks = {host: clock - usual for host, clock in hosts.items()}
    for rank in out.ranks:
        if rank.clock_ns is not None:
            rank.clock_ns -= usual
    out.disagree = sorted(host for host, clock in out.clocks.items() if abs(clock) > CLOCK_NS)


# --- by minutes ---


def minutes_off(rows: list[dict[str, Any]]) -> dict[str, int | None] | None:
    """Of questions/host_pace.sql: the hosts whose clocks are minutes ahead of most hosts', and by how many; None: they differ, by what is not known.
    Ranks that train together have the same mean length of a step in each minute. None of all: that is not so, or there is too little of it."""
    hosts = sorted({row["host"] for row in rows})
    first = min((row["m"] for row in rows), default=0)
    size = max((row["m"] for row in rows), default=0) - first + 1
    if len(hosts) < 3 or size < LEAST_PACES or size * len(hosts) > MOST_PACES:  # of two nobody knows whose is wrong
        return None
    paces = np.full((len(hosts), size), np.nan)
    number = {host: i for i, host in enumerate(hosts)}
    for row in rows:
        paces[number[row["host"]], row["m"] - first] = np.log(row["step"])
    shared = np.isfinite(paces).sum(axis=0) > len(hosts) / 2
    usual = np.full(size, np.nan)
    usual[shared] = np.nanmedian(paces[:, shared], axis=0)
    known = usual[shared][:: max(1, int(shared.sum()) // 500)]
    # how far any two minutes are apart: as chance has it
    chance = float(np.median(np.abs(known[:, None] - known)[~np.eye(len(known), dtype=bool)])) if len(known) >= LEAST_PACES else 0.0
    here = np.array([_apart(usual, pace, 0) for pace in paces])
    if (here < chance / 4).sum() <= len(hosts) / 2:
        return None
    most = min(FURTHEST, size - LEAST_PACES)
    out: dict[str, int | None] = {}
    for i in np.flatnonzero((here > chance / 2) & (np.isfinite(paces).sum(axis=1) >= LEAST_PACES)):
        best = min(range(-most, most + 1), key=lambda lag: (_apart(usual, paces[i], lag), abs(lag)))
        out[hosts[i]] = best if _apart(usual, paces[i], best) < chance / 4 else None
    return out


def _apart(usual: Array, pace: Array, lag: int) -> float:
    """How far the lengths are apart when pace is so many minutes late."""
    size = len(usual)
    both = np.abs(usual[max(0, -lag) : size - max(0, lag)] - pace[max(0, lag) : size - max(0, -lag)])
    both = both[~np.isnan(both)]
    return float(np.median(both)) if len(both) >= LEAST_PACES else np.inf
