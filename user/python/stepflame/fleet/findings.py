# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What holds a job up: which rank or host, since when, how much, and what it does meanwhile.

In: answers to the questions in questions/, of one job. Out: Findings. A minute counts when a figure is far from the median over the job's ranks: by a
share of a step, and by deviations (median absolute ones). A finding has several such minutes, so that chance makes none.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from .engine import Fleet, Row
from .schema import PHASES
from .text import clock, count, duration, iso, line, moment, percent, ranges, several

SHARE = 0.03  # of a step
DEVIATIONS = 6
LEAST_MINUTES = 3
GAP_MINUTES = 2  # within a time that is one
OTHER_HOSTS = 8  # whose samples those of a slow rank are held against
MOST = 12  # findings that are looked at closely
LOW_CLOCK = 0.95
OFTEN = 0.1  # of the minutes: what is no finding is said from there on


@dataclass
class Finding:
    kind: str  # slow-host, slow-rank, throttled-gpu, late-data, slow-link, stall
    hosts: list[str]
    ranks: list[int]
    said: str  # one sentence
    since: int
    until: int | None  # None: it lasts
    excess_ns: float  # of a step
    step_ns: float
    times: list[tuple[int, int]] = field(default_factory=list)
    because: list[str] = field(default_factory=list)


    def as_dict(self) -> dict[str, Any]:
        times = [(iso(a), iso(b + 1)) for a, b in self.times]
        return {**asdict(self), "since": iso(self.since), "until": None if self.until is None else iso(self.until), "times": times}


@dataclass
class Job:
    """What is known of a job before it is searched."""

    fleet: Fleet
    first: int
    last: int
    ranks_of: dict[str, set[int]]  # by host
    has_gpu: bool
    gpu_of: dict[tuple[str, int], str] = field(default_factory=dict)  # the names of GPUs, by host and rank
    doubts: list[str] = field(default_factory=list)  # why it is not known that nothing holds it up


@dataclass
class Times:
    """Minutes in which something was so, as stretches."""

    stretches: list[tuple[int, int]]
    minutes: list[int]

    @classmethod
    def of(cls, minutes: Iterable[int]) -> Times:
        found: list[list[int]] = []
        ordered = sorted(set(minutes))
        for m in ordered:
            if found and m - found[-1][1] <= GAP_MINUTES:
                found[-1][1] = m
            else:
                found.append([m, m])
        return cls([(a, b) for a, b in found], ordered)

    def lasting(self) -> Times:
        """Without minutes that stand alone."""
        return Times.of(m for m in self.minutes if any(a <= m <= b and b > a for a, b in self.stretches))

    def said(self, job: Job) -> str:
        first, last = self.stretches[0][0], self.stretches[-1][1]
        lasts = job.last - last <= GAP_MINUTES
        if len(self.stretches) == 1:
            if lasts:
                return "all the time" if first == job.first else "since %s" % moment(first)
            return "from %s to %s" % (moment(first), clock(last + 1))
        begins = [a for a, _ in self.stretches]
        apart = [b - a for a, b in zip(begins, begins[1:])]
        rhythm = statistics.median(apart)
        long = statistics.median(b - a + 1 for a, b in self.stretches)
        even = all(abs(gap - rhythm) <= max(1, 0.1 * rhythm) for gap in apart)
        return "%s of some %d min%s, from %s to %s" % (count(len(apart) + 1, "time"), long, ", every %d min" % rhythm if even and len(apart) > 1 else "", moment(first), clock(last + 1))


@dataclass
class Group:
    """Ranks of a host that are slow at the same times. rows: of questions/slow.sql."""

    kind: str
    host: str
    ranks: list[int]
    times: Times
    rows: list[Row]


def find(job: Job) -> list[Finding]:
    found = slow_ranks(job)
    found += low_clocks(job, found)
    found += slow_links(job)
    found += stalls(job)
    return sorted(found, key=lambda f: (f.kind == "stall", -f.excess_ns * sum(b - a + 1 for a, b in f.times)))


# --- ranks that the others wait for ---


def slow_ranks(job: Job) -> list[Finding]:
    rows = job.fleet.ask("slow", share=SHARE, deviations=DEVIATIONS, with_sync=False)
    found = of_ranks(job, rows, "")
    if job.has_gpu:
        known = {(host, rank) for f in found for host in f.hosts for rank in f.ranks}
        rows = job.fleet.ask("slow", share=SHARE, deviations=DEVIATIONS, with_sync=True)
        rows = [row for row in rows if (row["host"], row["who"]) not in known]
        found += of_ranks(job, rows, "its CPU is late; the others wait in collectives, or for GPUs that do")
    return found


def of_ranks(job: Job, rows: list[Row], note: str) -> list[Finding]:
    by_rank: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        by_rank[row["host"], row["who"]].append(row)
    slow: dict[tuple[str, int], tuple[Times, list[Row]]] = {}
    single, unawaited = [], []
    many = max(LEAST_MINUTES, OFTEN * (job.last - job.first + 1))
    for key, its in by_rank.items():
        waited = [row for row in its if others_waited(row["excess"], row["others_wait"] - row["waits"])]
        times = Times.of(row["m"] for row in waited).lasting()
        if len(times.minutes) >= LEAST_MINUTES:
            slow[key] = times, [row for row in waited if row["m"] in set(times.minutes)]
        elif len(waited) >= many:
            single.append(key)
        elif len(its) >= many:
            unawaited.append(key)
    doubt(job, single, "slow in some minutes, which stand alone")
    doubt(job, unawaited, "slow, but the others do not wait for it in collectives that were seen: the ranks do not wait for each other")
    groups: list[Group] = []
    for host in sorted({host for host, _ in slow}):
        ranks = {rank: slow[host, rank] for h, rank in slow if h == host}
        late = {rank for rank, (_, its) in ranks.items() if is_late_data(its)}
        # not all that it ever had: a job that begins anew may number its ranks in another way
        on_host = statistics.median(row["on_host"] for _, its in ranks.values() for row in its)
        for kind, kind_of_host, its_ranks in (("slow-rank", "slow-host", sorted(set(ranks) - late)), ("late-data", "late-data", sorted(late))):
            # of a host: the minutes in which half of its slow ranks were slow
            counts = Counter(m for rank in its_ranks for m in ranks[rank][0].minutes)
            times = Times.of(m for m, n in counts.items() if 2 * n >= len(its_ranks))
            if len(its_ranks) > 1 and 2 * len(its_ranks) > on_host and len(times.minutes) >= LEAST_MINUTES:
                groups.append(Group(kind_of_host, host, its_ranks, times, [row for rank in its_ranks for row in ranks[rank][1]]))
            else:
                groups += [Group(kind, host, [rank], *ranks[rank]) for rank in its_ranks]
    groups.sort(key=lambda group: -sum(row["excess"] * row["steps"] for row in group.rows) / len(group.ranks))
    return [of_group(job, group, note, number < MOST) for number, group in enumerate(groups)]


def others_waited(excess: float, more: float) -> bool:
    """Ranks that train together wait for who is late. Those that do not are not held up, however long it takes."""
    return more >= 0.5 * excess


def together(excess: float, apart: float) -> bool:
    """Hosts that train together have equal steps in a minute: one whose steps are longer by what it waits is at other steps than they."""
    return apart < 0.5 * excess


def doubt(job: Job, ranks: list[tuple[str, int]], what: str) -> None:
    if ranks:
        host, who = ranks[0]
        job.doubts.append("%s (host %s) is %s%s" % (rank_name(who), line(host), what, "; so are %d more" % (len(ranks) - 1) if len(ranks) > 1 else ""))


def not_known(job: Job, pace: list[Row], stragglers: float) -> None:
    """What else a job without findings has that forbids to say that nothing holds it up. stragglers: share of the time of steps that ranks wait for them."""
    minutes = sum(row["ranks"] > 1 for row in pace)
    if minutes < LEAST_MINUTES:
        job.doubts.append("steps of several ranks were seen in %s, and a finding takes %d" % (count(minutes, "minute"), LEAST_MINUTES))
        return
    if stragglers >= SHARE:
        job.doubts.append("ranks wait for stragglers in %s of the time of steps" % percent(stragglers))
    spread = job.fleet.ask("spread")[0]
    if max(-spread["below"], spread["above"]) > SHARE:
        job.doubts.append("the ranks' own times are from %.1f %% to %+.1f %% of a step beside the median: too far apart, or too many are slow, to say which is usual" % (100 * spread["below"], 100 * spread["above"]))


def is_late_data(rows: list[Row]) -> bool:
    return bool(statistics.median(row["data"] / row["excess"] for row in rows) > 0.6)


def of_group(job: Job, group: Group, note: str, closely: bool) -> Finding:
    """closely: also what it does meanwhile, which takes some queries."""
    host, ranks, times, kind = group.host, group.ranks, group.times, group.kind
    excess, step, waits, others_wait = mean_of_step(group.rows, "excess", "step", "waits", "others_wait")
    it, others = alone(job, [host], ranks, times.minutes) if closely else ({}, {})
    clock_said = low_clock(it, others)
    if clock_said and kind == "slow-rank":
        kind = "throttled-gpu"
    who = "host %s (ranks %s)" % (line(host), ranges(ranks)) if len(ranks) > 1 else "%s (host %s)" % (rank_name(ranks[0]), line(host))
    what = {"late-data": "gets its data late", "throttled-gpu": "has a GPU that is throttled"}.get(kind, "is slow")
    said = "%s %s %s: a step of its own takes %s longer than the others', who wait for it: %s of a step" % (who, what, times.said(job), duration(excess), percent(excess / step))
    because = ["waits %s a step in collectives, the others %s" % (duration(waits), duration(others_wait)), note, clock_said]
    if closely:
        because += [phases_said(it, others), *meanwhile(job, [host], ranks, times.minutes)]
    return Finding(kind, [host], ranks, said, times.stretches[0][0], ends(job, times), excess, step, times.stretches, [text for text in because if text])


def mean_of_step(rows: list[Row], *keys: str) -> list[float]:
    steps = sum(row["steps"] for row in rows)
    return [sum(row[key] * row["steps"] for row in rows) / steps for key in keys]


def rank_name(who: int) -> str:
    return "rank %d" % who if who >= 0 else "process %d" % -who


def ends(job: Job, times: Times) -> int | None:
    last = times.stretches[-1][1]
    return None if job.last - last <= GAP_MINUTES else last + 1


def alone(job: Job, hosts: list[str], ranks: list[int], minutes: list[int]) -> tuple[Row, Row]:
    gpus = sorted({job.gpu_of.get((host, rank), "") for host in hosts for rank in ranks})
    rows = {row["it"]: row for row in job.fleet.ask("alone", ranks=ranks, hosts=hosts, minutes=minutes, gpus=gpus)}
    return rows.get(1, {}), rows.get(0, {})


def low_clock(it: Row, others: Row) -> str:
    mhz, usual = it.get("gpu_mhz"), others.get("gpu_mhz")
    if not mhz or not usual or mhz > LOW_CLOCK * usual:
        return ""
    return "its GPU runs at %.0f MHz, the others' at %.0f" % (mhz, usual)


def phases_said(it: Row, others: Row) -> str:
    if not it or not others:
        return ""
    more = {phase: it[phase] / it["steps"] - others[phase] / others["steps"] for phase in PHASES if phase != "comm"}
    best = sorted((phase for phase in more if more[phase] > 0.1 * max(more.values())), key=lambda phase: -more[phase])[:3]
    return "longer in " + several(["%s (+%s)" % (phase, duration(more[phase])) for phase in best]) if best and more[best[0]] > 0 else ""


def meanwhile(job: Job, hosts: list[str], ranks: list[int], minutes: list[int]) -> list[str]:
    """What its samples and waits have more than those of other hosts, of which a few are enough."""
    names = [host for host in sorted(job.ranks_of) if host not in hosts]
    others = names[:: max(1, len(names) // OTHER_HOSTS)][:OTHER_HOSTS]
    parameters: dict[str, Any] = {"ranks": ranks, "hosts": hosts, "others": others, "minutes": minutes}
    steps = {row["it"]: row["steps"] for row in job.fleet.ask("steps_of", **parameters)}
    if not steps.get(1) or not steps.get(0):
        return []
    said = []
    for question, key, text in (("stacks", "path", stack_said), ("places", "place", wait_said)):
        more: dict[tuple[Any, ...], float] = defaultdict(float)
        for row in job.fleet.ask(question, **parameters):
            more[row["phase"], row["cause"], row[key], row.get("leaf")] += row["ns"] / steps[row["it"]] * (1 if row["it"] else -1)
        if more:
            best = max(more, key=lambda k: (more[k], str(k)))
            if more[best] > 0:
                said.append(text(best, more[best]))
    return said


def stack_said(key: tuple[Any, ...], ns: float) -> str:
    phase, cause, path, leaf = key
    frames = path.split(" > ")
    way = " > ".join(frames if len(frames) < 5 else [frames[0], "...", *frames[-2:]])
    return "its samples have more of %s, %s: +%s a step (%s)" % (line(leaf), "on the CPU" if cause is None else "in " + line(cause), duration(ns), line(way))


def wait_said(key: tuple[Any, ...], ns: float) -> str:
    phase, cause, place, _ = key
    return "it waits longer for %s in %s%s (+%s a step)" % (line(cause), line(phase), " at " + line(place) if place else "", duration(ns))


# --- clocks of GPUs, links between hosts ---


def low_clocks(job: Job, found: list[Finding]) -> list[Finding]:
    """Throttled GPUs of ranks for which nobody waits as far as was seen: a CPU does not wait for its own GPU where it runs ahead."""
    if not job.has_gpu:
        return []
    known = {(host, rank) for f in found for host in f.hosts for rank in f.ranks}
    by_rank: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in job.fleet.ask("clocks", deviations=DEVIATIONS):
        if (row["host"], row["who"]) not in known:
            by_rank[row["host"], row["who"]].append(row)
    out = []
    for (host, rank), rows in sorted(by_rank.items()):
        times = Times.of(row["m"] for row in rows).lasting()
        if len(times.minutes) >= LEAST_MINUTES:
            mhz, usual = (statistics.median(row[key] for row in rows) for key in ("mhz", "others"))
            said = "%s (host %s) has a GPU that runs at %.0f MHz, the others' at %.0f, %s; no rank was seen to wait for it" % (rank_name(rank), line(host), mhz, usual, times.said(job))
            out.append(Finding("throttled-gpu", [host], [rank], said, times.stretches[0][0], ends(job, times), 0, 0, times.stretches))
    return out


def slow_links(job: Job) -> list[Finding]:
    by_place: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    apart: dict[str, set[int]] = defaultdict(set)
    for row in job.fleet.ask("links", share=SHARE, deviations=DEVIATIONS):
        if together(row["excess"], row["apart"]):
            by_place[row["place"]][row["host"]].append(row)
        else:
            apart[row["host"]].add(row["m"])
    many = max(LEAST_MINUTES, OFTEN * (job.last - job.first + 1))
    for host, minutes in apart.items():
        if len(minutes) >= many:
            job.doubts.append("host %s waits longer in a collective in %d minutes, in which its steps are longer than the others', too: its clock is another one, or it does not train with them" % (line(host), len(minutes)))
    found = []
    for place, by_host in by_place.items():
        times_of = {host: Times.of(row["m"] for row in rows).lasting() for host, rows in by_host.items()}
        left = {host for host, times in times_of.items() if len(times.minutes) >= LEAST_MINUTES}
        while left:  # hosts with the same times are one finding
            first = min(left)
            same = sorted(host for host in left if abs(times_of[host].stretches[0][0] - times_of[first].stretches[0][0]) <= GAP_MINUTES)
            left -= set(same)
            times = Times.of(m for host in same for m in times_of[host].minutes)
            rows = [row for host in same for row in by_host[host]]
            excess, step, wait, usual = mean_of_step(rows, "excess", "step", "wait", "others_wait")
            said = "%s %s %s longer in a collective than any rank of theirs explains, %s: %s of a step" % (
                "host " + line(same[0]) if len(same) == 1 else "hosts " + several(same), "is" if len(same) == 1 else "are", duration(excess), times.said(job), percent(excess / step))  # fmt: skip
            ranks = sorted(rank for host in same for rank in job.ranks_of.get(host, ()))
            finding = Finding("slow-link", same, ranks, said, times.stretches[0][0], ends(job, times), excess, step, times.stretches)
            finding.because.append("at %s even the rank that waits least there waits %s a step, on the other hosts %s: a slow link, or what moves data" % (line(place), duration(wait), duration(usual)))
            found.append(finding)
    return found


# --- what happened once ---


def stalls(job: Job) -> list[Finding]:
    found = []
    rows = job.fleet.ask("stalls")
    for row in rows:
        if any(abs(other["m"] - row["m"]) <= 1 and (other["lost"], -other["m"]) > (row["lost"], -row["m"]) for other in rows):
            continue  # the same, at the edge of a minute
        ranks = job.fleet.ask("stall_ranks", m=row["m"], lost=row["lost"])
        phases = [key for key in ("data", "forward", "backward", "optimizer", "other", "checkpoint", "validation") if ranks]
        if ranks and len(ranks) <= max(1, row["ranks"] // 2):
            hosts = sorted({r["host"] for r in ranks})
            phase = max(phases, key=lambda key: sum(r[key] for r in ranks))
            who = "%s (host %s)" % (rank_name(ranks[0]["who"]), line(hosts[0])) if len(ranks) == 1 else "ranks %s (%s)" % (ranges(r["who"] for r in ranks), several(hosts))
            said = "at %s all ranks stood still for %s: %s in %s, the others waited for it" % (moment(row["m"]), duration(row["lost"]), who + (" was" if len(ranks) == 1 else " were"), phase)
            because = meanwhile(job, hosts, [r["who"] for r in ranks], [row["m"]])
        else:
            hosts, because = [], []
            ranks = []
            said = "at %s a step of all ranks took %s longer, of all at once" % (moment(row["m"]), duration(row["lost"]))
        found.append(Finding("stall", hosts, [r["who"] for r in ranks], said, row["m"], row["m"] + 1, row["lost"], row["step"], [(row["m"], row["m"])], because))
    return found[:MOST]
