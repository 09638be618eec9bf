# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The tables of what model.py's job did, as recordings would give them. In: Job, Timeline, and what of it was seen. Out: files of a store."""

import dataclasses
import datetime
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from .model import RANKS_OF_HOST, Host, Job, Timeline, generator
from .profile import GLOBAL, Profile
from .rows import tables
from .schema import HOUR, MINUTE, PARTS, SECOND

SLOW = 1.5  # of an ordinary step
RECORDED_NS = 15 * SECOND  # at a time, where it rests between


@dataclasses.dataclass
class Seen:
    """What was recorded. late: rank, minute; skew, rest, gap: of a host."""

    begin_ns: int
    spread: float
    late: dict[int, float]
    skew: dict[int, float]
    rest: dict[int, float]
    gap: dict[int, tuple[float, ...]]
    steps_of: frozenset[int]


@dataclasses.dataclass
class Place:
    folder: Path
    cluster: str
    job: str
    first_host: int

    def host(self, number: int) -> str:
        return f"node-{self.first_host + number:05d}"

    def path(self, table: str, host: int, hour_ns: int) -> Path:
        at = datetime.datetime.fromtimestamp(hour_ns / SECOND, datetime.timezone.utc)
        job = re.sub(r"[^A-Za-z0-9._-]", "_", self.job)
        return self.folder / table / f"date={at:%Y-%m-%d}" / f"cluster={self.cluster}" / f"job={job}" / f"{self.host(host)}-{at:%H}.parquet"


class Cells:
    """What the phases consist of: waits by cause, and what is on the CPU. From a matrix of PARTS, to one of cells."""

    def __init__(self, profile: Profile):
        self.waits = [(PARTS.index(w.part or w.phase), w.phase, w.cause, w.share, w.place) for w in profile.waits]
        self.stall = [s.frames[-1] for s in profile.stacks if s.cause == "disk_read"]
        self.stall_place = self.stall[0] if self.stall else profile.waits[0].place
        kinds = sorted({(phase, cause) for _, phase, cause, _, _ in self.waits} | {("data", "disk_read")})
        self.kinds = kinds  # of rows of `waits`
        self.kind_of = [kinds.index((phase, cause)) for _, phase, cause, _, _ in self.waits] + [kinds.index(("data", "disk_read"))]
        self.places = [place for *_, place in self.waits] + [self.stall_place]

    def of(self, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Waits, [row, wait]: those of the profile, then the stall. What is on the CPU, [row, part]."""
        clean = parts.copy()
        clean[:, PARTS.index("data")] -= parts[:, PARTS.index("stall")]
        clean[:, PARTS.index("stall")] = 0
        waits = np.empty((len(parts), len(self.waits) + 1), np.int64)
        oncpu = clean.copy()
        for i, (part, _, _, share, _) in enumerate(self.waits):
            waits[:, i] = clean[:, part] * share
            oncpu[:, part] -= waits[:, i]
        waits[:, -1] = parts[:, PARTS.index("stall")]
        return waits, oncpu


@dataclasses.dataclass
class RankHour:
    """A rank's hour: its minutes (of its host's clock), and, by minute, sums over steps."""

    rank: int
    minutes: np.ndarray
    seen_ns: np.ndarray
    rested_ns: np.ndarray
    steps: np.ndarray
    rest_steps: np.ndarray
    slow: np.ndarray
    longest: np.ndarray
    parts: np.ndarray
    waits: np.ndarray
    oncpu: np.ndarray
    each: dict[str, np.ndarray] | None  # the steps themselves
    count: int
    shortest_parts: np.ndarray
    longest_parts: np.ndarray


class Writer:
    def __init__(self, job: Job, timeline: Timeline, seen: Seen, place: Place):
        self.job, self.timeline, self.seen, self.place = job, timeline, seen, place
        self.usual_ns = float(np.median(np.diff(timeline.released))) * 1e9
        self.cells = Cells(job.profile)

    def since_ns(self, rank: int) -> int:
        """When it is attached, by the true clock."""
        spread = generator(self.job, 5, rank // RANKS_OF_HOST).random() * self.seen.spread
        return self.seen.begin_ns + int((self.seen.late.get(rank, 0) * 60 + spread) * SECOND)

    def first_step(self, rank: int) -> int:
        """The job's number of the first step that is whole after it was attached."""
        edges, _, _ = Host(self.job, rank // RANKS_OF_HOST).steps(self.timeline, 0, self.steps_until(self.since_ns(rank)) + 2)
        begins = edges[:, rank % RANKS_OF_HOST] * 1e9 + self.seen.begin_ns
        return int(np.searchsorted(begins, self.since_ns(rank)))

    def steps_until(self, ns: int) -> int:
        return int(np.searchsorted(self.timeline.released, (ns - self.seen.begin_ns) / 1e9))

    @property
    def end_ns(self) -> int:
        return self.seen.begin_ns + int(self.job.hours * HOUR)

    def write(self, number: int) -> int:
        """All files of a host; returns the rows."""
        host, skew = Host(self.job, number), int(self.seen.skew.get(number, 0) * SECOND)
        rows, so_far = 0, {}
        begin, end = self.seen.begin_ns + skew, self.end_ns + skew
        first = [self.first_step(host.first + r) for r in range(host.width)] if self.seen.steps_of else [0] * host.width
        for hour_ns in range(begin // HOUR * HOUR, end, HOUR):
            found = self.hour(host, hour_ns, skew, first)
            if found:
                for table, made in tables(self, host, hour_ns, skew, found, so_far).items():
                    path = self.place.path(table, number, hour_ns)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    pq.write_table(made, path.with_suffix(".new"), compression="zstd")
                    path.with_suffix(".new").rename(path)
                    rows += made.num_rows
        return rows

    def hour(self, host: Host, hour_ns: int, skew: int, first: list[int]) -> list[RankHour]:
        begin, end = max(hour_ns, self.seen.begin_ns + skew), min(hour_ns + HOUR, self.end_ns + skew)
        k0 = max(0, self.steps_until(begin - skew) - 2)
        k1 = min(self.steps_until(end - skew) + 1, len(self.timeline.released))
        started, ended, parts = host.steps(self.timeline, k0, k1)
        base = self.seen.begin_ns + skew
        started, ended = [(seconds * 1e9).astype(np.int64) + base for seconds in (started, ended)]
        matrix = np.stack([(parts[name] * 1e9).astype(np.int64) for name in PARTS], axis=2)
        others = [i for i, name in enumerate(PARTS) if name not in (GLOBAL, "stall")]
        matrix[:, :, PARTS.index(GLOBAL)] = ended - started - matrix[:, :, others].sum(axis=2)
        out = []
        for r in range(host.width):
            made = self.rank_hour(host, r, (begin, end), skew, (started[:, r], ended[:, r], matrix[:, r]), k0 - first[r])
            if len(made.minutes):
                out.append(made)
        return out

    def rank_hour(self, host: Host, r: int, span: tuple[int, int], skew: int, made: tuple, number: int) -> RankHour:
        started, ended, parts = made
        rank = host.first + r
        since = self.since_ns(rank) + skew
        begin, end = max(span[0], since), span[1]
        minutes = np.arange(begin // MINUTE, -(-end // MINUTE)) * MINUTE if begin < end else np.empty(0, np.int64)
        seen_ns = np.minimum(minutes + MINUTE, end) - np.maximum(minutes, begin)
        rested_ns = np.zeros_like(seen_ns)
        whole = (started >= since) & (ended >= begin) & (ended < end)
        if host.number in self.seen.gap:
            gap = [self.seen.begin_ns + skew + int(minute * MINUTE) for minute in self.seen.gap[host.number]]
            seen_ns -= np.clip(np.minimum(minutes + MINUTE, gap[1]) - np.maximum(minutes, gap[0]), 0, None)
            whole &= (ended <= gap[0]) | (started >= gap[1])
        rests = np.zeros(len(started), bool)
        if host.number in self.seen.rest:
            cycle = int(RECORDED_NS / self.seen.rest[host.number])
            rests = whole & (((started - since) % cycle >= RECORDED_NS) | ((started - since) // cycle != (ended - since) // cycle))
            recorded = _recorded(minutes + MINUTE - since, cycle) - _recorded(np.maximum(minutes - since, 0), cycle)
            rested_ns = np.maximum(0, seen_ns - recorded)
            seen_ns = seen_ns - rested_ns
        kept = (seen_ns > 0) | (rested_ns > 0)
        minutes, seen_ns, rested_ns = minutes[kept], seen_ns[kept], rested_ns[kept]
        keep = np.flatnonzero(whole & ~rests)
        at = np.searchsorted(minutes, ended[keep] // MINUTE * MINUTE)
        count = len(minutes)
        own, duration = parts[keep], (ended - started)[keep]
        slow = duration > SLOW * self.usual_ns
        runs = np.flatnonzero(np.diff(at, prepend=-1))
        each, waits, oncpu = None, None, None
        if rank in self.seen.steps_of:
            step_waits, step_oncpu = self.cells.of(own)
            each = {"started": started[keep], "ended": ended[keep], "step": keep + number, "parts": own, "waits": step_waits, "oncpu": step_oncpu, "slow": slow}
            waits, oncpu = _sums(step_waits, runs, at, count), _sums(step_oncpu, runs, at, count)
        sums = _sums(own, runs, at, count)
        if each is None:
            waits, oncpu = self.cells.of(sums)
        longest = np.zeros(count, np.int64)
        longest[at[runs]] = np.maximum.reduceat(duration, runs) if len(keep) else 0
        edge = (own.min(axis=0), own.max(axis=0)) if len(keep) else (np.zeros(len(PARTS), np.int64),) * 2
        rest_steps = np.bincount(np.searchsorted(minutes, ended[rests] // MINUTE * MINUTE), minlength=count)[:count]
        steps, slow_steps = np.bincount(at, minlength=count), np.bincount(at[slow], minlength=count)
        return RankHour(rank, minutes, seen_ns, rested_ns, steps, rest_steps, slow_steps, longest, sums, waits, oncpu, each, len(keep), *edge)

    def truth(self) -> dict:
        def clock(minute: float) -> str | None:
            at = self.seen.begin_ns / SECOND + minute * 60
            return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).isoformat() if minute < float("inf") else None

        plants = []
        for plant in self.job.plants:
            ranks = [plant.rank] if plant.rank >= 0 else [r for h in plant.hosts for r in range(h * RANKS_OF_HOST, min(self.job.ranks, (h + 1) * RANKS_OF_HOST))]
            hosts = [self.place.host(h) for h in plant.hosts or ([plant.rank // RANKS_OF_HOST] if plant.rank >= 0 else [])]
            said = {"kind": plant.kind, "hosts": hosts, "ranks": ranks, "begin": clock(plant.begin), "end": clock(plant.end)}
            said |= {name: getattr(plant, name) for name in ("percent", "seconds", "every", "action") if getattr(plant, name)}
            plants.append(said)
        seen = self.seen
        out = {"cluster": self.place.cluster, "ranks": self.job.ranks, "begin": clock(0), "end": clock(self.job.hours * 60), "usual_step_ns": round(self.usual_ns)}
        out["planted"] = [plant for plant in plants if plant["kind"] != "checkpoint"]
        out["checkpoints"] = [plant["begin"] for plant in plants if plant["kind"] == "checkpoint"]
        out |= {"late": seen.late, "skew": {self.place.host(h): s for h, s in seen.skew.items()}, "rest": {self.place.host(h): s for h, s in seen.rest.items()}}
        out |= {"gap": {self.place.host(h): [clock(m) for m in g] for h, g in seen.gap.items()}}
        # the job's own number of the step that has number 0 in `steps`
        out["first_steps"] = {rank: self.first_step(rank) for rank in sorted(seen.steps_of)[:1024]}
        return out


def _recorded(ns: np.ndarray, cycle: int) -> np.ndarray:
    """What was recorded in so long, where each cycle begins with RECORDED_NS that are."""
    return ns // cycle * RECORDED_NS + np.minimum(ns % cycle, RECORDED_NS)


def _sums(rows: np.ndarray, runs: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
    out = np.zeros((count, rows.shape[1]), np.int64)
    if len(rows):
        out[at[runs]] = np.add.reduceat(rows, runs, axis=0)
    return out
