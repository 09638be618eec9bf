# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A synchronous training job of many ranks, step by step: what each rank does itself, and how long it then waits for the others.

A step of a rank: data, forward, backward; a collective of the ranks of its host (it ends when the last of them has come, and the data has moved);
a collective of all hosts (likewise); optimizer and the rest. So the slowest rank makes the step's length for all, and all others wait.

In: a Profile, what is planted. Out: Timeline, and Host.steps. The same numbers come out each time that a block of steps is asked for: nothing is kept.
"""

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np
from .profile import AFTER, BEFORE, GLOBAL, LOCAL, QUANTILES, Profile

RANKS_OF_HOST = 8
RANK_SIGMA, HOST_SIGMA = 0.004, 0.002  # no two GPUs are alike
HICCUPS_PER_RANK_HOUR = 0.02
EVERYWHERE = ("regression", "checkpoint")
ONCE = ("stall", "checkpoint")
COMPUTE = ("forward", "backward", "optimizer")


@dataclasses.dataclass
class Plant:
    """kind and what generate.py's --plant says; begin, end, every: in minutes since the job's first."""

    kind: str
    hosts: tuple[int, ...] = ()
    rank: int = -1
    begin: float = 0
    end: float = float("inf")
    every: float = 0
    percent: float = 0
    seconds: float = 0
    action: str = ""
    step: int = -1  # of what happens once: when; timeline() finds it

    def active(self, minute: np.ndarray) -> np.ndarray:
        within = (minute - self.begin) % self.every + self.begin if self.every else minute
        return (minute >= self.begin) & (within < self.end)


@dataclasses.dataclass
class Job:
    profile: Profile
    ranks: int
    step: float
    hours: float
    seed: int
    plants: list[Plant]

    @property
    def hosts(self) -> int:
        return -(-self.ranks // RANKS_OF_HOST)

    @property
    def block(self) -> int:
        """Steps that are made at once: a minute of them."""
        return max(16, round(60 / self.step))


@dataclasses.dataclass
class Timeline:
    """released: seconds at which the ranks leave the last collective of each step. blocks: when each block begins, and its pace."""

    released: np.ndarray
    blocks: list[tuple[float, float]]

    def minutes(self, job: Job, block: int) -> np.ndarray:
        begin, pace = self.blocks[block]
        return (begin + pace * np.arange(job.block)) / 60


def generator(job: Job, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence([job.seed, *key])))


class Host:
    def __init__(self, job: Job, number: int):
        self.job, self.number = job, number
        self.first = number * RANKS_OF_HOST
        self.width = min(RANKS_OF_HOST, job.ranks - self.first)
        rng = generator(job, 1, number)
        factor = 1 + HOST_SIGMA * rng.standard_normal() + RANK_SIGMA * rng.standard_normal(self.width)
        self.factor = np.clip(factor, 1 - 3 * RANK_SIGMA, 1 + 3 * RANK_SIGMA).astype(np.float32)
        self.plants = [p for p in job.plants if number in p.hosts or self.first <= p.rank < self.first + self.width or p.kind in EVERYWHERE]

    def own(self, block: int, minute: np.ndarray) -> dict[str, np.ndarray]:
        """Seconds by phase, [step, rank]; of AFTER: those of the step before. "stall": the part of data in which it reads a disk."""
        job, profile = self.job, self.job.profile
        rng, size = generator(job, 2, self.number, block), (job.block, self.width)
        common = profile.common[generator(job, 3, block).integers(0, QUANTILES, job.block, dtype=np.uint16)][:, None]
        out = {}
        for phase in BEFORE + AFTER:
            out[phase] = profile.ratios[phase][rng.integers(0, QUANTILES, size, dtype=np.uint16)] * np.float32(profile.base[phase] / 1e9)
            if phase in COMPUTE:
                out[phase] *= self.factor * (common if phase != "optimizer" else 1)
        out[LOCAL] = profile.ratios[LOCAL][rng.integers(0, QUANTILES, job.block, dtype=np.uint16)] * np.float32(profile.base[LOCAL] / 1e9)
        for step in np.flatnonzero(rng.random(job.block) < HICCUPS_PER_RANK_HOUR * self.width * job.step / 3600):
            out["forward"][step, rng.integers(self.width)] *= 1.4
        out["checkpoint"] = np.zeros(size, np.float32)
        out["stall"] = np.zeros(size, np.float32)
        for plant in self.plants:
            self.plant(plant, out, minute, plant.step % job.block if plant.step >= 0 and plant.step // job.block == block else None, rng)
        return out

    def plant(self, plant: Plant, out: dict[str, np.ndarray], minute: np.ndarray, once: int | None, rng: np.random.Generator) -> None:
        """once: the row in which it happens, if it is in this block."""
        factor = np.where(plant.active(minute), 1 + plant.percent / 100, 1).astype(np.float32)
        of_rank = plant.rank - self.first
        if plant.kind == "slow-host":
            for phase in COMPUTE:
                out[phase] *= factor[:, None]
        elif plant.kind == "throttled-gpu":
            for phase in COMPUTE:
                out[phase][:, of_rank] *= factor
        elif plant.kind == "slow-link":
            out[LOCAL] += (factor - 1) * np.float32(self.job.step)
        elif plant.kind == "bad-shard":
            out["data"][:, of_rank] += (factor - 1) * np.float32(self.job.step)
        elif plant.kind == "stall" and once is not None:
            out["data"][once, of_rank] += plant.seconds
            out["stall"][once, of_rank] = plant.seconds
        elif plant.kind == "checkpoint" and once is not None:
            out["checkpoint"][once] = plant.seconds * (1 + 0.1 * rng.random(self.width))
        elif plant.kind == "regression":
            out[plant.action] *= factor[:, None]

    def longest(self, block: int, minute: np.ndarray) -> np.ndarray:
        """How long after the end of a step's collectives the last rank of this host has come to the collective of the next, and has done its own."""
        own = self.own(block, minute)
        return sum(own[phase] for phase in BEFORE + AFTER + ("checkpoint",)).max(axis=1) + own[LOCAL]

    def steps(self, timeline: Timeline, first: int, end: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Begin and end of steps first to end - 1 in seconds, and their parts in seconds, all [step, rank]."""
        job = self.job
        blocks = range(first // job.block, end // job.block + 1)
        made = [self.own(block, timeline.minutes(job, block)) for block in blocks]
        rows = slice(first - blocks[0] * job.block, end + 1 - blocks[0] * job.block)
        own = {name: np.concatenate([part[name] for part in made])[rows] for name in made[0]}
        released = timeline.released[max(0, first - 1) : end]
        released = (np.concatenate([[0.0], released]) if not first else released)[:, None]
        # what is after the last collective, was made with the next step
        after = sum(own[phase].astype(np.float64) for phase in AFTER + ("checkpoint",))
        edges = released + after
        parts = {name: own[name][:-1].astype(np.float64) for name in BEFORE + ("stall",)}
        parts |= {name: own[name][1:].astype(np.float64) for name in AFTER + ("checkpoint",)}
        come = edges[:-1] + sum(parts[phase] for phase in BEFORE)
        done = come.max(axis=1) + own[LOCAL][:-1]
        parts[LOCAL] = done[:, None] - come
        parts[GLOBAL] = np.broadcast_to((released[1:, 0] - done)[:, None], come.shape)
        return edges[:-1], edges[1:], parts


def _longest(task: tuple[Job, range, int, np.ndarray]) -> np.ndarray:
    job, hosts, block, minute = task
    return np.max([Host(job, host).longest(block, minute) for host in hosts], axis=0)


def timeline(job: Job, each: Callable[[Callable, Iterable], list], workers: int) -> Timeline:
    """The length of each step, to the end of the job, by blocks. each: map, perhaps in several processes."""
    share = -(-job.hosts // workers)
    chunks = [range(begin, min(begin + share, job.hosts)) for begin in range(0, job.hosts, share)]
    made, released, now, pace = Timeline(np.empty(0), []), [], 0.0, job.step
    while now < job.hours * 3600 or len(made.blocks) < 2:
        block = len(made.blocks)
        made.blocks.append((now, pace))
        for plant in job.plants:
            if plant.kind in ONCE and plant.step < 0 and plant.begin * 60 < now + job.block * pace:
                plant.step = block * job.block + max(0, int((plant.begin * 60 - now) / pace))
        longest = np.max(each(_longest, [(job, chunk, block, made.minutes(job, block)) for chunk in chunks]), axis=0)
        ratio = job.profile.ratios[LOCAL][generator(job, 4, block).integers(0, QUANTILES, job.block)]
        lengths = longest.astype(np.float64) + ratio * (job.profile.base[GLOBAL] / 1e9)
        released.append(now + np.cumsum(lengths))
        # the median: one stall says nothing about the pace
        now, pace = float(released[-1][-1]), float(np.median(lengths))
    made.blocks.append((now, pace))
    made.released = np.concatenate(released)
    return made
