# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The answers of `stepflame fleet`: each a dictionary, which --json prints, and its text, one screen."""

from __future__ import annotations

import datetime
import glob
import os
import statistics
from collections import defaultdict
from typing import Any

from ..errors import StepflameError
from . import findings
from .engine import Fleet, Raw, Row
from .schema import PHASES
from .text import count, duration, figure, hours_said, iso, line, moment, paragraph, percent, ranges, several, table

Answer = dict[str, Any]
SPENT = {
    "compute": "compute", "host_bound": "host-bound", "data": "data", "communication": "communication", "stragglers": "waiting for stragglers",
    "checkpoint": "checkpoint", "validation": "validation", "compile": "compile", "between_steps": "between steps", "not_seen": "not seen",
}  # fmt: skip


GPU_TIME = {"copy": "copies", "idle_host": "idle since the CPU asked late", "idle_data": "idle since data came late", "idle_launch": "idle for launches", "idle_other": "idle for other work"}
RECORDINGS = 20  # of a finding
PROCESS = ("cluster", "job", "host", "pid")
MOST_STEPS_BYTES = 64 << 20  # that a report reads to compare clocks: a few seconds


# --- report JOB ---


def report(fleet: Fleet, name: str) -> Answer:
    fleet.kept.add("windows")
    jobs = fleet.ask("jobs")
    if not jobs:
        raise no_rows(fleet, name)
    job, processes = one_cluster(jobs, name), fleet.ask("processes")
    told = clocks(fleet, {p["host"] for p in processes}, {(p["host"], p["pid"]) for p in processes} if fleet.scope.uid is not None else None)
    ahead = {host: round(seconds / 60) for host, seconds in (told or {}).items() if seconds and round(seconds / 60)}
    if ahead:
        fleet.align(ahead)
        job, processes = one_cluster(fleet.ask("jobs"), name), fleet.ask("processes")
    lying = fleet.count_odd("windows")
    said: Answer = {**job, "job": name, "begin": iso(job["first_m"]), "end": iso(job["last_m"] + 1), "findings": [], "twice": [], "links_told": True}
    spent = fleet.ask("spend", by=Raw("p.job"))[0]
    said["spent_hours"] = {key: spent[key] for key in SPENT}
    said["hours"], said["with_gpu"] = spent["hours"], spent["with_gpu"] or 0
    said["seen_share"] = job["seen"] / 3.6e12 / spent["hours"] if spent["hours"] else 0.0
    said["rested_share"] = job["rested"] / 3.6e12 / spent["hours"] if spent["hours"] else 0.0
    pace = fleet.ask("pace")
    said["step_ns"] = statistics.median(row["step"] for row in pace) if pace else None
    said["restarts"] = restarts(processes)
    said["endings"] = [{"rank": p["who"], "host": p["host"], "ending": p["ending"], "at": p["last_m"]} for p in processes if p["ending"] and p["ending"] != "exit status 0"]
    said["doubts"] = []
    if fleet.ask("twice"):
        said["twice"] = twins(processes)
    elif job["ranks"] > 1 and not said["step_ns"]:
        said["doubts"] = ["no step that takes time was seen" + (", only counted in rests" if job["rest_steps"] else "")]
    elif pace:
        ranks_of: dict[str, set[int]] = defaultdict(set)
        for p in processes:
            ranks_of[p["host"]].add(p["who"])
        gpu_of = {(p["host"], p["who"]): p["gpu"] or "" for p in processes}
        asked = findings.Job(fleet, job["first_m"], job["last_m"], ranks_of, bool(said["with_gpu"]), gpu_of)
        said["findings"] = with_recordings(fleet, [finding.as_dict() for finding in findings.find(asked)])
        if not said["findings"] and job["ranks"] > 1:
            in_steps = spent["seen"] - spent["between_steps"]
            said["links_told"] = job["hosts"] < 2 or fleet.ask("link_places")[0]["places"] > 1
            findings.not_known(asked, pace, spent["stragglers"] / in_steps if in_steps else 0)
        said["doubts"] = list(dict.fromkeys(asked.doubts))
    said["gpu_time_ns"] = {row["name"]: row["ns"] for row in fleet.ask("gpu_time")}
    said["clocks"], said["moved_minutes"] = told, fleet.ahead
    said["hosts_that_lie"] = lying
    said["left_out"] = fleet.left_out()
    return said


def with_recordings(fleet: Fleet, found: list[Answer]) -> list[Answer]:
    """Each finding with the recordings that have its ranks in its times: those of them first that have most of these."""
    hosts = sorted({host for finding in found for host in finding["hosts"]})
    rows = recordings(fleet, all=False, hosts=hosts, most=200) if hosts else []
    for finding in found:
        times = [[datetime.datetime.fromisoformat(at.replace("Z", "+00:00")) for at in span] for span in finding["times"]]
        its = []
        for row in rows:
            shared = sum(max(0.0, (min(row["until"], b) - max(row["since"], a)).total_seconds()) for a, b in times)
            if shared and row["host"] in finding["hosts"] and row["who"] in finding["ranks"]:
                its.append((shared, row))
        its.sort(key=lambda pair: (-pair[0], pair[1]["who"], pair[1]["machine"], pair[1]["path"]))
        finding["recordings"] = [row for _, row in its[:RECORDINGS]]
    return found


def recordings(fleet: Fleet, **parameters: Any) -> list[Row]:
    """With the times that the minutes of their ranks count as."""
    rows = fleet.ask("recordings", **parameters)
    for row in rows:
        ahead = datetime.timedelta(minutes=fleet.ahead.get(row["host"], 0))
        row["since"], row["until"] = row["since"] - ahead, row["until"] - ahead
    return rows


def one_cluster(jobs: list[Row], name: str) -> Row:
    if len(jobs) > 1:
        raise StepflameError("job %s ran in %d clusters: %s" % (name, len(jobs), several([job["cluster"] for job in jobs])), "choose one with --cluster", 2)
    return jobs[0]


def clocks(fleet: Fleet, hosts: set[str], processes: set[tuple[str, int]] | None) -> dict[str, float | None] | None:
    """Of these processes, or of all: seconds by which hosts' clocks are wrong, as the ends of the same steps tell. Of hosts of which these tell nothing,
    for steps have no rows, or too many, or ranks do not meet: as the lengths of steps tell."""
    files = [] if fleet.remote else glob.glob("%s/%s" % (glob.escape(fleet.root), fleet.scope.pattern("steps")))
    if not files or sum(map(os.path.getsize, files)) > MOST_STEPS_BYTES:
        return clocks_by_minutes(fleet)
    from .align import align  # it wants numpy

    found = align(os.path.dirname(fleet.root), fleet.scope, processes)
    others = (clocks_by_minutes(fleet) if hosts - set(found.clocks) else None) or {}
    by_steps = {host: found.clocks[host] / 1e9 for host in found.disagree}
    return {**{host: seconds for host, seconds in others.items() if host not in found.clocks}, **by_steps}


def clocks_by_minutes(fleet: Fleet) -> dict[str, float | None] | None:
    """The same to a minute, as the lengths of steps tell; None of a host: its clock, or what it trains, is another one."""
    from .align import minutes_off

    off = minutes_off(fleet.ask("host_pace"))
    return None if off is None else {host: None if minutes is None else 60.0 * minutes for host, minutes in off.items()}


def no_rows(fleet: Fleet, name: str) -> StepflameError:
    left_out = fleet.left_out()
    return StepflameError("there is nothing of job %s in the store%s" % (name, ", but " + left_out[0] if left_out else ""), "stepflame fleet spend --by job lists the jobs; --since, --until, --cluster, --host and --uid leave others out")


def restarts(processes: list[Row]) -> list[Row]:
    """When ranks began anew: a later process of the same rank."""
    before: dict[int, Row] = {}
    found = []
    for p in sorted(processes, key=lambda p: (p["first_m"], p["last_m"])):
        old = before.get(p["who"])
        if old and p["who"] >= 0 and p["first_m"] >= old["last_m"] - 1:
            found.append({"rank": p["who"], "at": p["first_m"], "host": p["host"], "pid": p["pid"], "before": old["pid"], "ending": old["ending"]})
        before[p["who"]] = p
    return found


def twins(processes: list[Row]) -> list[Answer]:
    """Of two jobs with one name: by user if they have several, else by hosts that cannot be of one job."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    if len({p["uid"] for p in processes}) > 1:
        for p in processes:
            groups[p["uid"]].append(p)
    else:
        side: dict[str, int] = {}
        for p in sorted(processes, key=lambda p: (p["host"], p["who"])):
            rivals = {side[q["host"]] for q in processes if q["who"] == p["who"] and q["host"] in side and q["host"] != p["host"] and q["first_m"] <= p["last_m"] and p["first_m"] <= q["last_m"]}
            side.setdefault(p["host"], min(set(range(len(rivals) + 1)) - rivals))
            groups[side[p["host"]]].append(p)
    return [{"uid": its[0]["uid"], "hosts": sorted({p["host"] for p in its}), "ranks": sorted({p["who"] for p in its})} for _, its in sorted(groups.items(), key=lambda item: str(item[0]))]


def nothing_found(said: Answer) -> str:
    """What no findings mean."""
    if said["twice"]:
        return "it is not known: several jobs have this name at the same time"
    if said["ranks"] < 2:
        return "nobody: it has one rank; stepflame report --steps says where its time goes"
    if said["doubts"]:
        return "it is not known; nothing was found, but:"
    told = "no rank, host%s: none differs from the others by more than %s of a step for %d minutes" % (", link or GPU" if said["links_told"] else " or GPU", percent(findings.SHARE), findings.LEAST_MINUTES)
    return told + ("" if said["links_told"] else "; of links it is not known: all ranks wait in one collective, alike")


def chooses(group: Answer, all_of: list[Answer]) -> str:
    """The option that asks for one of several jobs with one name."""
    if len(all_of) == 1:
        return ": nothing in the store tells them apart, so give each job a name of its own"
    if len({one["uid"] for one in all_of}) > 1 and group["uid"] is not None:
        return ": --uid %d" % group["uid"]
    return ": --host " + ",".join(map(line, group["hosts"][:4])) + ("..." if len(group["hosts"]) > 4 else "")


def report_text(said: Answer) -> str:
    hours = "GPU hours" if said["with_gpu"] else "rank-hours"
    lines = [
        paragraph("Job", "%s in cluster %s: %s on %s, from %s to %s UTC, %s %s" % (line(said["job"]), line(said["cluster"]), count(said["ranks"], "rank"), count(said["hosts"], "host"), moment(said["first_m"]), moment(said["last_m"] + 1), hours_said(said["hours"]), hours)),
        paragraph("Seen", "%s of that time, %s%s" % (percent(said["seen_share"]), count(said["steps"], "step"), "; %s was left alone for a budget, with %s that were only counted" % (percent(said["rested_share"]), count(said["rest_steps"], "step")) if said["rested"] else "")),
    ]
    if said["step_ns"]:
        lines.append(paragraph("Pace", "%s a step, %s steps a second; the longest took %s" % (duration(said["step_ns"]), figure(1e9 / said["step_ns"]), duration(said["longest"]))))
    spent = said["spent_hours"]
    parts = sorted((key for key in SPENT if spent[key] > 0.0005 * said["hours"]), key=lambda key: -spent[key])
    lines.append(paragraph("Goes into", ", ".join("%s %s" % (SPENT[key], percent(spent[key] / said["hours"])) for key in parts)))
    gpu_time = said["gpu_time_ns"]
    if gpu_time:
        shares = ["%s %s" % (GPU_TIME.get(name, name), percent(ns / sum(gpu_time.values()))) for name, ns in sorted(gpu_time.items(), key=lambda item: -item[1])]
        lines.append(paragraph("GPUs", "in the windows of CUPTI: " + ", ".join(shares)))
    if said["restarts"]:
        last = said["restarts"][-1]
        ending = ", the one before: %s" % line(last["ending"]) if last["ending"] else ""
        lines.append(paragraph("Began anew", "%s, last rank %d on %s at %s%s" % (count(len(said["restarts"]), "time"), last["rank"], line(last["host"]), moment(last["at"]), ending)))
    for end in said["endings"][:3]:
        lines.append(paragraph("Ended", "%s (host %s) at %s: %s" % (findings.rank_name(end["rank"]), line(end["host"]), moment(end["at"]), line(end["ending"]))))
    off = {host: seconds for host, seconds in (said["clocks"] or {}).items() if seconds is not None}
    if off:
        moved = "; whole minutes of that are taken off all times of these hosts" if said["moved_minutes"] else ""
        worst = sorted(off, key=lambda host: -abs(off[host]))
        if said["hosts"] == 2 and len(worst) == 2:  # nobody knows whose is wrong
            ahead = max(off.items(), key=lambda item: item[1])[0]
            lines.append(paragraph("Clocks", "of the two hosts are %s s apart, and that of %s is ahead%s" % (figure(max(off.values()) - min(off.values())), line(ahead), moved)))
        else:
            lines.append(paragraph("Clocks", "of %s are wrong: %s%s" % (count(len(worst), "host"), several(["%s %s%s s" % (line(host), "+" if off[host] > 0 else "", figure(off[host])) for host in worst]), moved)))
    unlike = [line(host) for host, seconds in (said["clocks"] or {}).items() if seconds is None]
    if unlike:
        lines.append(paragraph("" if off else "Clocks", "%s: steps by minute are not those of the other hosts, so a clock is wrong there, or something else trains; what is said of it may be due to that" % several(unlike)))
    if said["twice"]:
        lines.append(paragraph("Two jobs", "have this name at the same time; nothing is said of ranks before you choose one:"))
        for group in said["twice"]:
            lines.append(paragraph("", "ranks %s of user %s on %s%s" % (ranges(group["ranks"]), group["uid"], several(group["hosts"]), chooses(group, said["twice"]))))
    elif not said["findings"]:
        lines.append(paragraph("Held up by", nothing_found(said)))
        lines += [paragraph(" " * 12 + "- ", doubt) for doubt in said["doubts"]]
    else:
        shown = said["findings"][:8]
        for number, finding in enumerate(shown, 1):
            lines.append(paragraph("%-12s%d. " % ("" if number > 1 else "Held up by", number), finding["said"]))
            lines += [paragraph(" " * 15 + "- ", text) for text in [*finding["because"], *recorded_in(finding)]]
        if len(said["findings"]) > len(shown):
            lines.append(paragraph("", "%d more: --json" % (len(said["findings"]) - len(shown))))
    return "\n".join(lines)


def recorded_in(finding: Answer) -> list[str]:
    files = dict.fromkeys((row["machine"], row["path"]) for row in finding["recordings"])
    if not files:
        return []
    machine, path = next(iter(files))
    more = " and %d more" % (len(files) - 1) if len(files) > 1 else ""
    return ["recorded in %s on %s%s (process %d)" % (line(path), line(machine), more, finding["recordings"][0]["pid"])]


# --- compare A B ---


def compare(a: Fleet, b: Fleet, names: tuple[str, str]) -> Answer:
    said: Answer = {"a": names[0], "b": names[1]}
    paces = [pace_of(fleet, name) for fleet, name in zip((a, b), names)]
    said["steps"] = [sum(row["steps"] for row in pace) for pace in paces]
    said["minutes"] = [len(pace) for pace in paces]
    said["phases"] = [changed(paces, key) for key in ("step", *PHASES)]
    said["phases"] = [row for row in said["phases"] if row["a_ns"] or row["b_ns"]]
    step = said["phases"][0]["a_ns"]
    said["waits"] = differences(step, *(per_step(fleet.ask("step_waits"), steps, ("phase", "cause"), "ns") for fleet, steps in zip((a, b), said["steps"])))
    # actions and operators are counted from the beginning of a recording: they have no minutes
    said["whole"] = all(fleet.scope.since is None and fleet.scope.until is None for fleet in (a, b))
    said["not_compared"] = []
    for kind in ("actions", "ops") if said["whole"] else ():
        both = [totals(fleet, kind) for fleet in (a, b)]
        # those of one alone would all be new
        said[kind] = differences(step, *(per_step(rows, rows[0]["steps"], ("kind", "name"), "self") for rows in both)) if all(both) else []
        said["not_compared"] += [kind] if any(both) and not all(both) else []
    for fleet in (a, b):
        fleet.count_odd("windows")
    said["left_out"] = sorted(set(a.left_out() + b.left_out()))
    return said


def totals(fleet: Fleet, table: str) -> list[Row]:
    return fleet.ask("totals", table=Raw(table), group=Raw("host, pid, since, kind, name" + ", action" * (table == "ops")))


def pace_of(fleet: Fleet, name: str) -> list[Row]:
    jobs = fleet.ask("jobs")
    if not jobs:
        raise no_rows(fleet, name)
    one_cluster(jobs, name)
    if fleet.ask("twice"):
        raise StepflameError("%s is the name of several jobs at the same time" % name, "stepflame fleet report %s says how to choose one" % name, 2)
    pace = fleet.ask("pace")
    if not pace or not statistics.median(row["step"] for row in pace):
        raise StepflameError("no step of %s was seen that took time" % name, "stepflame fleet report %s says what was seen" % name)
    return pace


def changed(paces: list[list[Row]], key: str) -> Row:
    """Medians over minutes, and the error of their difference: two standard errors of both medians. Of less than three minutes it is not known."""
    middle = [statistics.median(row[key] for row in pace) for pace in paces]
    error = 0.0
    for pace, m in zip(paces, middle):
        error += (1.2533 * 1.4826 * statistics.median(abs(row[key] - m) for row in pace)) ** 2 / len(pace)
    more, bound = middle[1] - middle[0], 2 * error**0.5
    return {"name": key, "a_ns": middle[0], "b_ns": middle[1], "change_ns": more, "error_ns": bound, "changed": min(map(len, paces)) >= findings.LEAST_MINUTES and abs(more) > max(bound, 0.02 * middle[0])}


def per_step(rows: list[Row], steps: int, keys: tuple[str, ...], value: str) -> dict[tuple[Any, ...], float]:
    return {tuple(row[key] for key in keys): row[value] / steps for row in rows} if steps else {}


def differences(step: float, a: dict[tuple[Any, ...], float], b: dict[tuple[Any, ...], float]) -> list[Row]:
    """The largest, from 1 % of a step on."""
    rows: list[Row] = [{"name": list(key), "a_ns": a.get(key, 0.0), "b_ns": b.get(key, 0.0), "change_ns": b.get(key, 0.0) - a.get(key, 0.0)} for key in {*a, *b}]
    return sorted((row for row in rows if abs(row["change_ns"]) >= 0.01 * step), key=lambda row: (-abs(row["change_ns"]), str(row["name"])))


def compare_text(said: Answer) -> str:
    step = said["phases"][0]
    verdict = "a step takes %s (%s) %s in %s than in %s" % (
        duration(abs(step["change_ns"])), percent(abs(step["change_ns"]) / step["a_ns"]), "longer" if step["change_ns"] > 0 else "less", line(said["b"]), line(said["a"]))  # fmt: skip
    if not step["changed"]:
        few = min(said["minutes"])
        verdict = "a step takes as long in both, as far as can be known" if few >= findings.LEAST_MINUTES else "it is not known: steps were seen in %s of one, and it takes %d" % (count(few, "minute"), findings.LEAST_MINUTES)
    by = [row for row in said["phases"][1:] if row["changed"] and row["change_ns"] * step["change_ns"] > 0 and abs(row["change_ns"]) > 0.1 * abs(step["change_ns"])]
    if step["changed"] and by:
        verdict += ", in " + several(["%s (%+.0f %%)" % (row["name"], 100 * row["change_ns"] / row["a_ns"]) if row["a_ns"] else row["name"] for row in sorted(by, key=lambda row: -abs(row["change_ns"]))])
    rows = [(row["name"], duration(row["a_ns"]), duration(row["b_ns"]), duration(row["change_ns"]), "%+.1f %%" % (100 * row["change_ns"] / row["a_ns"]) if row["a_ns"] else "new", "" if row["changed"] else "may be chance") for row in said["phases"]]
    lines = [paragraph("Verdict", verdict), "", table(("a step of an ordinary rank", "A", "B", "change", "", ""), rows)]
    for kind, title in (("waits", "waits, of a step, mean of all ranks"), ("actions", "actions, of a step, mean of all ranks"), ("ops", "operators, of a step, mean of all ranks")):
        if said.get(kind):
            cells = [(" ".join(str(part) for part in row["name"] if part), duration(row["a_ns"]), duration(row["b_ns"]), duration(row["change_ns"])) for row in said[kind][:5]]
            lines += ["", table((title, "A", "B", "change"), cells)]
    if said["not_compared"]:
        lines += ["", "not compared: %s, of which one of the two has none whose whole recording is in the store" % several(said["not_compared"])]
    if not said["whole"]:
        lines += ["", "actions and operators are counted from the beginning of a recording, and have no times: compare whole jobs"]
    return "\n".join(lines)


# --- hosts, spend, ops ---


def hosts(fleet: Fleet) -> Answer:
    """A host is slow in a job when its ranks' own time is far from that of the job's other hosts, by the same bounds as in a report."""
    fleet.count_odd("windows")
    twice = {(row["cluster"], row["job"]) for row in fleet.ask("twice")}
    by_host: dict[str, list[Row]] = defaultdict(list)
    for row in fleet.ask("hosts"):
        if (row["cluster"], row["job"]) not in twice:
            deviation = row["deviation"] if row["hosts"] > 2 else 0
            row["slow"] = row["excess"] > findings.SHARE and row["excess"] > findings.DEVIATIONS * deviation and findings.others_waited(row["excess"], row["waited"])
            # one slow GPU does not move the median of a host's ranks
            row["slow_rank"] = row["worst"] > findings.SHARE and row["worst"] > findings.DEVIATIONS * deviation and findings.others_waited(row["worst"], row["worst_waited"])
            by_host[row["host"]].append(row)
    rows = []
    for host, jobs in by_host.items():
        slow = [job for job in jobs if job["slow"] or job["slow_rank"]]
        rows.append({"host": host, "jobs": len(jobs), "slow_in": len(slow), "excess": statistics.median(job["excess"] for job in jobs), "worst": max(job["worst"] for job in jobs), "hours": sum(job["hours"] for job in jobs), "slow_jobs": [job["job"] for job in slow]})
    rows.sort(key=lambda row: (-row["slow_in"] / row["jobs"], -row["slow_in"], -row["worst"], row["host"]))
    return {"hosts": rows, "jobs_of_one_name": sorted(job for _, job in twice), "left_out": fleet.left_out()}


def hosts_text(said: Answer) -> str:
    rows = said["hosts"]
    always = [row for row in rows if row["slow_in"] == row["jobs"] and row["jobs"] > 1]
    sometimes = [row for row in rows if row["slow_in"] and row not in always]
    verdict = "%s of %d: %s" % (count(len(always), "host is", "hosts are"), len(rows), several([row["host"] for row in always])) if always else "no host of %d" % len(rows)
    lines = [paragraph("Slow in each of several jobs", verdict, 30), paragraph("Slow in a job", count(len(sometimes), "other host"), 30)]
    if always or sometimes:
        cells = [(row["host"], "%d of %d" % (row["slow_in"], row["jobs"]), hours_said(row["hours"]), "%+.1f %%" % (100 * row["excess"]), "%+.1f %%" % (100 * row["worst"]), several(row["slow_jobs"], 3)) for row in (always + sometimes)[:20]]
        lines += ["", table(("host", "slow in jobs", "rank-hours", "its ranks", "worst rank", "jobs"), cells)]
    if said["jobs_of_one_name"]:
        lines.append(paragraph("Left out", "jobs of which two have one name: " + several(said["jobs_of_one_name"]), 30))
    return "\n".join(lines)


def spend(fleet: Fleet, by: str) -> Answer:
    fleet.count_odd("windows")
    rows = fleet.ask("spend", by=Raw({"job": "p.job", "host": "p.host", "user": "u.uid"}[by]))
    return {"by": by, "rows": rows, "left_out": fleet.left_out()}


def spend_text(said: Answer) -> str:
    rows = said["rows"]
    hours = sum(row["hours"] for row in rows)
    if not hours:
        return "there is nothing in the store for this time"
    unit = "GPU hours" if all(row["with_gpu"] == row["processes"] for row in rows) else "rank-hours"
    sums = {key: sum(row[key] for row in rows) for key in SPENT}
    shown = [key for key in SPENT if sums[key] > 0.0005 * hours]
    cells: list[tuple[Any, ...]] = [(SPENT[key], hours_said(sums[key]), percent(sums[key] / hours)) for key in sorted(shown, key=lambda key: -sums[key])]
    lines = ["%s %s in %s" % (hours_said(hours), unit, count(len(rows), said["by"])), "", table(("all", "hours", "share"), cells), ""]
    best = sorted(shown, key=lambda key: -sums[key])[:5]
    cells = [("unknown" if row["name"] is None else row["name"], hours_said(row["hours"]), *(percent(row[key] / row["hours"]) for key in best)) for row in rows[:15] if row["hours"]]
    lines.append(table((said["by"], "hours", *(SPENT[key] for key in best)), cells))
    if len(rows) > 15:
        lines.append("%d more: --json" % (len(rows) - 15))
    return "\n".join(lines)


def ops(fleet: Fleet, limit: int) -> Answer:
    fleet.count_odd("ops")
    overlaps = overlapping(fleet.ask("ops_spans"))
    rows = ask_ops(fleet, overlaps, limit)
    processes = {tuple(row[key] for key in PROCESS) for row in overlaps}
    many = ["%s of %s: longer ones counted the same operators at that time" % (count(len(overlaps), "recording"), count(len(processes), "process", "processes"))]
    return {"ops": rows, "overlapping": overlaps, "left_out": (many if overlaps else []) + fleet.left_out()}


def overlapping(spans: list[Row]) -> list[Row]:
    """Of recordings of one process those that are left out, so that no time counts twice: the longest stays, then each that overlaps none that does."""
    kept: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    out = []
    for row in sorted(spans, key=lambda row: (row["since"] - row["until"], row["since"])):
        others = kept[tuple(row[key] for key in PROCESS)]
        if any(row["since"] < other["until"] and other["since"] < row["until"] for other in others):
            out.append(row)
        else:
            others.append(row)
    return out


def ask_ops(fleet: Fleet, left_out: list[Row], limit: int) -> list[Row]:
    text = fleet.engine.text
    us = datetime.timedelta(microseconds=1)
    begin = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)
    rows = ["(%s, %d, %d)" % (", ".join(text(row[key]) for key in PROCESS[:3]), row["pid"], (row["since"] - begin) // us) for row in left_out]
    return fleet.ask("ops", twice=Raw(", ".join(rows) or "('', '', '', 0, 0)"), since_us=Raw(fleet.engine.to_us % "ops.since"), limit=limit)


def ops_text(said: Answer) -> str:
    rows = said["ops"]
    if not rows:
        return "no operators in the store: record with --ops, or watch with it"
    cells = [(row["name"], row["kind"], row["jobs"], row["processes"], row["n"], hours_said(row["self"] / 3.6e12)) for row in rows]
    return table(("operator", "kind", "jobs", "processes", "calls", "own hours"), cells)
