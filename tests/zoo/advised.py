#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Advice that is tried: a job with a fault is recorded, and what the report promises of its advice held against how much faster the same job
is as it was advised, by its own clock.

The promise is the time that the report says a batch would take, or the share of the time that could be won "at most". Prints a table in
Markdown. Each job runs by itself, and the two of a kind in turn, twice.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import zoo
from cases import Case, Expect, Program

WITHIN = 0.2  # of the time of a step as advised
KINDS = {  # words that the advice has to have
    "own_loader": "set num_workers",
    "few_workers": "more DataLoader workers",
    "restarts": "persistent_workers=True",
    "many_threads": "fewer threads",
    "beside_threads": "fewer threads",
    "generated": "get the next batch while the model works",
    "collects": "gc.freeze()",
    "saves": "save less often",
    "sleeps": "instead of sleeping",
    "evaluates": "do it less often",
    "asks_late": "ask for the next batch before",
    "answers_late": "ask those that the steps wait for earlier",
    "takes_lock": "what the other threads do",
    "opens_far": "a copy on a local disk",
    "validates": "validate less often",
    "recompiles": "torch.compile\\(dynamic=True\\)",
    "beside_others": "see what else runs",
    "in_quota": "raise the CPU limit",
    "spawns": "look at its end in another thread",
    "asks_pipe": "ask for the next batch before",
    "looks_up": "maps files that do not stay in memory",
    "uneven_ranks": "find out what rank 1 does there",
    "syncs": "gradient accumulation with no_sync",
    "jax_recompiles": "the same shapes",
    "jax_awaits": "fewer float\\(\\)",
    "jax_in_python": "under jax.jit",
}
FAULTS = {"beside_others": "hog", "in_quota": "quota", "uneven_ranks": "rank", "looks_up": "memory"}  # of the machine, without which it is as advised
RANKS = {"uneven_ranks": ([], []), "syncs": (["--wide"], ["--wide", "--accumulate"])}  # arguments of ranks.py, as it is and as advised
BATCHES = {"syncs": 8}  # that a step has as advised


def run_of(kind, advised, python, folder, number):
    script = "advised_jax.py" if kind.startswith("jax_") else "advised.py"
    words = ("ranks.py", *RANKS[kind][advised]) if kind in RANKS else (script, kind, *(["advised"] if advised else []))
    zoo.cases.PROGRAMS[kind] = Program(words, ranks=2 if kind in RANKS else 0, about="")
    os.environ["ADVISED_NUMBER"] = str(number)
    Path(folder).mkdir()
    fault = FAULTS.get(kind, "") if not advised else ""
    # alone on its CPU is what one has without others on it
    return zoo.Run(Case(kind, Expect(frozenset()), fault or "-"), python, None, Path(folder))


def step_seconds(run, since):
    """Of the steps from then on, on average: several in turn may be of different lengths."""
    ends = [end for _, end in run.trainer()[1]["step"] if end >= since]
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def promise(found, before):
    """What a step takes as advised, at best. And the workers that are advised."""
    text = "; ".join(found["verdict"]["next"])
    workers = re.search(r"with (\d+) a batch would take ([\d.e+-]+) ms", text)
    if workers:
        return float(workers[2]) / 1e3, int(workers[1])
    share = found["verdict"]["share"]
    return before * (1 - share) if share else None, 0


def measure(run, seconds, file=None):
    """Its step in seconds; of a recorded one what the report says, too."""
    try:
        run.until_trains()
        for pid in zoo.descendants(run.process.pid):
            zoo.put_first(pid)
        run.plant()
        since = time.perf_counter()
        if file:
            since, _ = zoo.record(run, seconds, file)
        else:
            time.sleep(seconds)
        return step_seconds(run, since), zoo.report(file) if file else None
    finally:
        run.end()


def try_kind(kind, python, options, folder):
    before, after, promises, number, found = [], [], [], 0, None
    for i in range(options.rounds):
        took, found = measure(run_of(kind, False, python, folder / ("before%d" % i), 0), options.seconds, folder / ("%d.rec" % i))
        best, number = promise(found, took)
        before.append(took)
        promises += [best] if best else []
        after.append(measure(run_of(kind, True, python, folder / ("after%d" % i), number), options.seconds)[0] / BATCHES.get(kind, 1))
    advice = "; ".join(found["verdict"]["next"])
    took, best, is_now = min(before), min(promises, default=None), min(after)
    if not re.search(KINDS[kind], advice):
        judged = "other advice"
    elif not best:
        judged = "no figure was promised"
    elif abs(is_now - best) <= WITHIN * max(is_now, best):
        judged = "as promised"
    else:
        judged = "better than promised" if is_now < best else "promised too much"
    return "| %s | %s | %s | %.3g | %.3g | %.3g | %s |" % (kind, found["verdict"]["class"], advice[:110], took * 1e3, best * 1e3 if best else 0, is_now * 1e3, judged)


def main():
    p = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    p.add_argument("kinds", nargs="*", help="default: all")
    p.add_argument("--seconds", type=float, default=8, help="length of a recording (default: %(default)s)")
    p.add_argument("--rounds", type=int, default=2, help="how often each job runs; the shortest step counts (default: %(default)s)")
    p.add_argument("--python", default=sys.executable, help="one that has torch")
    p.add_argument("--jax-python", default=os.environ.get("STEPFLAME_JAX_PYTHON"), help="one that has JAX (tools/setup.sh python --jax)")
    options = p.parse_args()
    zoo.end_when_told()
    print("| job | class | advice | ms a step | promised | as advised | |\n|---|---|---|---|---|---|---|")
    for kind in options.kinds or KINDS:
        python = options.jax_python if kind.startswith("jax_") else options.python
        if not python:
            print("| %s | no Python with JAX: --jax-python | | | | | |" % kind)
            continue
        with tempfile.TemporaryDirectory(prefix="advised-") as folder:
            print(try_kind(kind, python, options, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
