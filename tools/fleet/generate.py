# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Writes the tables of a training job of many ranks, with faults that are known, as `stepflame fleet import` would have: for tests and measurements.

    python tools/fleet STORE --ranks 10000 --hours 1 --step 0.5 --steps none \\
        --plant slow-host:host=37,begin=20,percent=8 --plant stall:rank=901,begin=44,seconds=30

STORE/truth.json says what was planted. In: model.py's job. Out: the store's files, one of each table for each host and hour.
Several calls may fill one store, each with a --job or --run of its own.

Plants, with times in minutes since the job's first:
    slow-host:host=H,begin=M[,end=M][,percent=8]     its ranks compute longer
    throttled-gpu:rank=R,begin=M[,end=M][,percent=40] the clock of its GPU falls, and it computes longer
    slow-link:hosts=H+H,begin=M[,percent=20]         the collective of the ranks of a host lasts longer, by a share of --step, on these hosts
    bad-shard:rank=R,begin=M,end=M[,every=M][,percent=60] its data come late, by a share of --step; again in each epoch of `every` minutes
    stall:rank=R,begin=M[,seconds=30]                once it reads a disk in its data, and all others wait
    regression:action=PHASE[,percent=30]             all ranks are longer in forward, backward, optimizer or data; only in --run b
"""

import argparse
import contextlib
import datetime
import json
import multiprocessing
import subprocess
import sys
from pathlib import Path

from . import profile, recorded, tables
from .model import Job, Plant, timeline

PLANTS = {
    "slow-host": {"hosts", "begin", "end", "percent"},
    "throttled-gpu": {"rank", "begin", "end", "percent"},
    "slow-link": {"hosts", "begin", "end", "percent"},
    "bad-shard": {"rank", "begin", "end", "every", "percent"},
    "stall": {"rank", "begin", "seconds"},
    "regression": {"action", "percent"},
}
USUAL = {"slow-host": 8, "throttled-gpu": 40, "slow-link": 20, "bad-shard": 60, "regression": 30}
BEGIN = "2026-11-02T10:00:00"
CHECKPOINT_SECONDS = 1.5


def fail(what: str, why: str, fix: str) -> None:
    print(f"tools/fleet: error: {what}: {why}\n  fix: {fix}", file=sys.stderr)
    sys.exit(2)


def plant_of(text: str) -> Plant:
    kind, _, rest = text.partition(":")
    if kind not in PLANTS:
        fail(f"--plant {text}", f"no such plant as {kind}", "one of " + ", ".join(PLANTS))
    plant = Plant(kind, percent=USUAL.get(kind, 0), seconds=30 if kind == "stall" else 0)
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        key = "hosts" if key == "host" else key
        if key not in PLANTS[kind]:
            fail(f"--plant {text}", f"{kind} has no {key}", "one of " + ", ".join(sorted(PLANTS[kind])))
        try:
            setattr(plant, key, tuple(map(int, value.split("+"))) if key == "hosts" else int(value) if key == "rank" else value if key == "action" else float(value))
        except ValueError:
            fail(f"--plant {text}", f"{value} is no number", "a number")
    return plant


def pairs(texts: list[str], option: str) -> dict[int, str]:
    """{7: "30"} of 7=30"""
    try:
        return {int(text.partition("=")[0]): text.partition("=")[2] for text in texts}
    except ValueError:
        fail(f"{option} {' '.join(texts)}", "what stands before = is no number", "the number of a host or rank")


def ranks_of(text: str, ranks: int) -> frozenset[int]:
    """all, none, or 0-7,12"""
    if text in ("all", "none"):
        return frozenset(range(ranks) if text == "all" else ())
    out = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        out |= set(range(int(first), int(last or first) + 1))
    return frozenset(out)


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--ranks", type=int, default=64, help="8 on a host")
    parser.add_argument("--hours", type=float, default=1)
    parser.add_argument("--step", type=float, metavar="SECONDS", help="of an ordinary step (default 0.5, or as it was recorded)")
    parser.add_argument("--steps", default="all", metavar="all|none|RANKS", help="whose steps get rows of their own: by far the largest table (0-7,12)")
    parser.add_argument("--from", dest="recordings", action="append", type=Path, default=[], metavar="RECORDING", help="recordings of a real job, whose steps, waits, samples, actions and ops the ranks then have")
    parser.add_argument("--plant", action="append", default=[])
    parser.add_argument("--checkpoints", type=float, default=20, metavar="MINUTES", help="all ranks write one (default 20; 0: never)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--job", default="train")
    parser.add_argument("--run", choices=("a", "b"), help="the job is JOB-a or JOB-b; b is a week later, and regressions are in it alone")
    parser.add_argument("--cluster", default="c1")
    parser.add_argument("--begin", default=BEGIN, help="UTC, default " + BEGIN)
    parser.add_argument("--first-host", type=int, default=0, metavar="N", help="the job runs on node-N and those that follow")
    parser.add_argument("--spread", type=float, default=4, metavar="SECONDS", help="in which the hosts attach")
    parser.add_argument("--late", nargs="+", default=[], metavar="RANK=MINUTE", help="attached only then")
    parser.add_argument("--skew", nargs="+", default=[], metavar="HOST=SECONDS", help="its clock is ahead by so much")
    parser.add_argument("--rest", nargs="+", default=[], metavar="HOST=SHARE", help="recorded for this share of the time, and left alone for --budget in the rest")
    parser.add_argument("--gap", nargs="+", default=[], metavar="HOST=FROM-TO", help="not seen in these minutes")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    return parser


def check(plants: list[Plant], ranks: int) -> None:
    hosts = -(-ranks // 8)
    for plant in plants:
        if plant.rank >= ranks or any(host >= hosts for host in plant.hosts):
            fail(f"--plant {plant.kind}", f"the job has {ranks} ranks on {hosts} hosts", "a smaller number, or more --ranks")
        if "hosts" in PLANTS[plant.kind] and not plant.hosts or "rank" in PLANTS[plant.kind] and plant.rank < 0:
            fail(f"--plant {plant.kind}", "it does not say where", "host=N or rank=N")
        if plant.kind == "regression" and plant.action not in ("forward", "backward", "optimizer", "data"):
            fail("--plant regression", f"there is no phase {plant.action!r} to make longer", "action=optimizer")


def profile_of(asked: argparse.Namespace) -> profile.Profile:
    if not asked.recordings:
        return profile.synthetic((asked.step or 0.5) * 1e9)
    try:
        return recorded.recorded(asked.recordings, asked.step * 1e9 if asked.step else None)
    except (OSError, KeyError, IndexError, ValueError, subprocess.CalledProcessError) as error:
        fail("--from", str(error), "a recording of a training job, or a folder that `stepflame export -f arrow` wrote")
        raise


def main(words: list[str] | None = None) -> None:
    asked = options().parse_args(words)
    plants = [plant_of(text) for text in asked.plant]
    check(plants, asked.ranks)
    plants = [plant for plant in plants if plant.kind != "regression" or asked.run == "b"]
    if asked.checkpoints:
        plants += [Plant("checkpoint", begin=minute * asked.checkpoints, seconds=CHECKPOINT_SECONDS) for minute in range(1, int(asked.hours * 60 / asked.checkpoints) + 1)]
    profile = profile_of(asked)
    job = Job(profile, asked.ranks, sum(profile.base.values()) / 1e9, asked.hours, asked.seed + (asked.run == "b") * 7919, plants)
    begin = datetime.datetime.fromisoformat(asked.begin).replace(tzinfo=datetime.timezone.utc) + datetime.timedelta(days=7 * (asked.run == "b"))
    seen = tables.Seen(
        begin_ns=int(begin.timestamp()) * 10**9,
        spread=asked.spread,
        late={rank: float(minute) for rank, minute in pairs(asked.late, "--late").items()},
        skew={host: float(seconds) for host, seconds in pairs(asked.skew, "--skew").items()},
        rest={host: float(share) for host, share in pairs(asked.rest, "--rest").items()},
        gap={host: tuple(map(float, text.split("-"))) for host, text in pairs(asked.gap, "--gap").items()},
        steps_of=ranks_of(asked.steps, asked.ranks),
    )
    name = asked.job + (f"-{asked.run}" if asked.run else "")
    place = tables.Place(asked.store / "v1", asked.cluster, name, asked.first_host)
    with multiprocessing.Pool(asked.workers) if asked.workers > 1 else contextlib.nullcontext() as pool:
        each = pool.map if pool else lambda function, items: list(map(function, items))
        times = timeline(job, each, asked.workers)
        writer = tables.Writer(job, times, seen, place)
        rows = sum(each(writer.write, range(job.hosts)))
    say_truth(asked.store / "truth.json", name, writer)
    print(f"{asked.ranks} ranks, {asked.hours:g} h, {len(times.released)} steps of {writer.usual_ns / 1e9:.4g} s: {rows} rows in {asked.store}")


def say_truth(path: Path, name: str, writer: tables.Writer) -> None:
    said = json.loads(path.read_text()) if path.exists() else {"jobs": {}}
    said["jobs"][name] = writer.truth()
    path.write_text(json.dumps(said, indent=1) + "\n")
