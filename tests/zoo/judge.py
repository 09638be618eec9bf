# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Holds what a report told against what was expected and against the program's own clock: right, wrong or abstained, each with why."""

import bisect
import re
import statistics
from dataclasses import dataclass

from cases import VAGUE_CAUSES, VAGUE_CLASSES

RIGHT, ABSTAINED, WRONG = "right", "abstained", "wrong"
COUNT_SHARE, COUNT_LEAST = 0.02, 2  # steps that may be missing or too many: both ends of the window
MEDIAN_SHARE, MEDIAN_SECONDS = 0.05, 0.0003
ALIGNED_STEPS, ALIGNED_SECONDS = 100, 8  # the harness, too, may wait for a CPU before it sees that a recording has begun
GROUP_SHARE = 0.05  # of the time of all steps: slow steps that lost less are no statement
QUOTA_SHARE = 0.05  # of the periods of a quota, that may be used up or not where the kernel has it otherwise: both ends of the window
COPIED_SHARE = 0.4  # of the memory that copied pages take: it is known by a sample of them
STARVED_SHARE = 0.05  # of the window, for which the program was ready to run and did not: other load is to blame, too
DELAY_SHARE, DELAY_PART = 0.05, 0.3  # of the window, and of the kernel's figure, by which a wait for a CPU may differ from that figure
TIMED_PART = 1.2  # so many times what the kernel, or the program's own clock, has of a wait may slow steps have lost to it
RANK_PART = 0.5  # of what a rank is said to take longer for, that the kernel has to have of it, where other load is to blame


@dataclass
class Truth:
    steps: list  # their ends, by the program's clock
    begin: float  # of the recording's window, by the same clock
    delayed_share: float  # of the window, for which the thread that trains waited for a CPU, by /proc
    quota: list = None  # periods of its quota of CPU time, and in how many that was used up, by the kernel
    labels: list = None  # when labels ended, by the program's clock
    threads: dict = None  # by pid: how much CPU time its first thread had in the window, for how long it waited for a CPU, and its steps; by /proc
    timed: list = None  # begin and end of what the program timed itself
    memory: float = None  # bytes a second by which the memory of all its processes grew, a page that they share once: Pss_Anon of smaps_rollup

    def of(self, found):
        """Durations of the steps that ended while the report's steps lasted, and for how long these did."""
        begin, end = told_ends(found)[0] - found["steps"][0]["duration_s"], told_ends(found)[-1]
        offset = self.offset(found)
        # a boundary of ours and the program's own are some calls of Python apart
        slack = min(step["duration_s"] for step in found["steps"]) / 2
        first = bisect.bisect_left(self.steps, begin + offset - slack)
        last = bisect.bisect_right(self.steps, end + offset + slack)
        ends = self.steps[first:last]
        return [b - a for a, b in zip(ends, ends[1:])], end - begin

    def offset(self, found):
        """The program's clock less the report's: that at which the first steps fit best, not far from when recording was said to begin."""
        told = told_ends(found)[:ALIGNED_STEPS]
        best = (float("inf"), self.begin)
        near = bisect.bisect_left(self.steps, self.begin + told[0] - ALIGNED_SECONDS)
        for first in range(near, len(self.steps) - len(told) + 1):
            if self.steps[first] > self.begin + told[0] + ALIGNED_SECONDS:
                break
            apart = [own - ours for own, ours in zip(self.steps[first:], told)]
            middle = statistics.median(apart)
            best = min(best, (sum(abs(a - middle) for a in apart), middle))
        return best[1]

    def delayed_seconds(self, seconds):
        """Of the process that waited longest for a CPU."""
        return max([self.delayed_share * seconds, *(delayed for _, delayed, _ in (self.threads or {}).values())])

    def excess_seconds(self):
        """By how much the waits that the program timed are longer than an ordinary one."""
        lasted = [end - begin for begin, end in self.timed or []]
        middle = statistics.median(lasted) if lasted else 0
        return sum(max(0, one - middle) for one in lasted)


@dataclass
class Texts:
    """What else is judged: the report as it is printed, and the calls of actions and labels by name."""

    steps: str
    calls: dict


def told_ends(found):
    return [step["start_s"] + step["duration_s"] for step in found["steps"]]


def rates(found, truth):
    """Steps a second and median step, of the program and of the report."""
    durations, seconds = truth.of(found)
    told = [step["duration_s"] for step in found["steps"]]
    own = (len(durations) / seconds, statistics.median(durations) if durations else 0)
    return own, (len(told) / seconds, statistics.median(told)), len(durations)


def judge_steps(found, truth):
    if not found["steps"]:
        return [(ABSTAINED, "no steps")]
    own, told, count = rates(found, truth)
    if abs(len(found["steps"]) - count) > max(COUNT_LEAST, COUNT_SHARE * count):
        return [(WRONG, "%d steps, in truth %d" % (len(found["steps"]), count))]
    if abs(told[1] - own[1]) > max(MEDIAN_SECONDS, MEDIAN_SHARE * own[1]):
        return [(WRONG, "median %.4g ms, in truth %.4g ms" % (told[1] * 1e3, own[1] * 1e3))]
    return [(RIGHT, "")]


def is_delayed(found, truth):
    """Whether the steps waited for a CPU for as long as the kernel says of one of the program's processes."""
    told = sum(phase["waits"].get("run_queue", 0) for phase in found["all"]["phases"]) / found["all"]["total_s"]
    seconds = found["window"]["seconds"]
    shares = [truth.delayed_share, *(delayed / seconds for _, delayed, _ in (truth.threads or {}).values())]
    return any(share >= STARVED_SHARE and abs(told - share) <= max(DELAY_SHARE, DELAY_PART * share) for share in shares)


def judge_class(found, expect, truth):
    """Other load, too, may be what limits it. (What is said of a rank, judge_straggler judges.)"""
    told = found["verdict"]["class"]
    of_machine = (told == "CPU-starved" and is_delayed(found, truth)) or (told == "straggler" and expect.straggler is None)
    if told in expect.classes or of_machine:
        return [(RIGHT, "")]
    return [(ABSTAINED if told in VAGUE_CLASSES else WRONG, "class %s" % told)]


def names_match(name, functions, python):
    """Before CPython 3.11 code has no qualified name."""
    if python == "3.10":
        return name in {function.rpartition(".")[2] for function in functions}
    return name in functions or any(name.endswith("." + function) for function in functions)


def judge_group(group, expected, python):
    """What the report says of the steps that lost most, with those that were expected to."""
    out = []
    if group["cause"] not in expected.causes:
        return [(ABSTAINED if group["cause"] in VAGUE_CAUSES else WRONG, "slow steps: %s" % group["cause"])]
    if expected.functions:
        where = group["where"]
        if not where:
            out.append((ABSTAINED, "no place"))
        elif not names_match(where[0]["name"], expected.functions, python):
            coarse = where[0]["name"] in expected.coarse
            out.append((ABSTAINED, "place only %s" % where[0]["name"]) if coarse else (WRONG, "place %s" % where[0]["name"]))
    if expected.every:
        rhythm = group["rhythm"]
        if not rhythm:
            out.append((ABSTAINED, "no rhythm"))
        elif not rhythm["shortest"] <= expected.every <= rhythm["longest"]:
            out.append((WRONG, "rhythm %s" % rhythm_text(rhythm)))
    return out or [(RIGHT, "")]


def is_so(group, found, case, truth):
    """Whether slow steps that are not the fault's have lost so much: to other load by the kernel, to a wait by the program's own clock."""
    if group["cause"] == "run_queue":
        return group["over_s"] <= TIMED_PART * truth.delayed_seconds(found["window"]["seconds"])
    if group["cause"] in case.timed:
        return group["over_s"] <= TIMED_PART * truth.excess_seconds()
    return group["cause"] in case.tolerated


def judge_slow(found, case, truth):
    expect, python = case.expect, case.python
    total = found["all"]["total_s"] if found["all"] else 0
    groups = [g for g in found["causes"] if g["over_s"] >= GROUP_SHARE * total and not is_so(g, found, case, truth)]
    if expect.slow:
        if not groups:
            return [(RIGHT if expect.slow.optional else ABSTAINED, "slow steps not told")]
        return judge_group(groups[0], expect.slow, python)
    return [(WRONG, "slow steps: %s" % g["cause"]) for g in groups if g["cause"] != "unknown"] or [(RIGHT, "")]


def lacks_cpu(found, truth):
    """
    Whether the kernel says of a rank that is told to be slower that it waited longer for a CPU, or needed more CPU time for the same steps,
    than the others: by half of what is told at least.
    """
    threads = {int(pid): row for pid, row in (truth.threads or {}).items() if row[2]}
    own = threads.pop(found["straggler"]["pid"], None)
    if not own or not threads:
        return False
    column = 1 if found["verdict"]["cause"] == "run_queue" else 0 if "its CPU is slower" in found["verdict"]["why"] else None
    if column is None:
        return False
    others = statistics.mean(row[column] / row[2] for row in threads.values())
    return own[column] / own[2] - others >= RANK_PART * found["verdict"]["share"] * found["median_s"]


def judge_straggler(found, expect, truth):
    """With other load on the machine a rank may have less of a CPU than the others, or a slower one."""
    told = found["straggler"]
    if expect.straggler is None:
        return [(WRONG, "straggler %s" % told["rank"])] if told and not lacks_cpu(found, truth) else []
    if not told:
        return [(ABSTAINED, "no straggler")]
    return [(RIGHT if told["rank"] == expect.straggler else WRONG, "straggler %s" % told["rank"])]


def judge_place(found, expect, python):
    """Of the verdict: "train.py:20 Items.read", or several places with what called them."""
    told = found["verdict"]["place"]
    if expect.place is None:
        return []
    if not told:
        return [(ABSTAINED, "the verdict has no place")]
    if expect.no_place and expect.no_place in told:
        return [(WRONG, "the verdict's place %s" % told)]
    words = re.findall(r"[^\s,]+", told)
    return [(RIGHT if any(names_match(word, expect.place, python) for word in words) else WRONG, "the verdict's place %s" % told)]


def judge_words(found, expect):
    why = found["verdict"]["why"]
    out = [(WRONG, 'it does not say "%s" but "%s"' % (expect.says, why))] if expect.says and expect.says not in why else []
    evidence = "; ".join(found["verdict"]["evidence"])
    if expect.told and expect.told not in evidence:
        out.append((ABSTAINED, 'its evidence does not say "%s" but "%s"' % (expect.told, evidence)))
    return out + ([(WRONG, 'it says "%s"' % why)] if expect.never and expect.never in why else [])


def judge_quota(found, truth):
    """How often a quota was used up, as the kernel counted from before the recording to behind it."""
    rows = [row["limits"]["throttled"] for row in found["resources"] if row["limits"]]
    told = next((row for row in rows if row), None)
    if not truth.quota or not truth.quota[0]:
        return [(WRONG, "a quota that it does not have")] if told else []
    if not told:
        return [(ABSTAINED, "no periods")]
    share, said = truth.quota[1] / truth.quota[0], told["throttled_periods"] / told["periods"]
    right = told["periods"] <= truth.quota[0] and abs(share - said) <= QUOTA_SHARE
    return [(RIGHT if right else WRONG, "%d of %d periods, in truth %d of %d" % (told["throttled_periods"], told["periods"], *truth.quota[::-1]))]


def judge_more(found, expect, texts):
    """Advice, and what stands anywhere in the report. A share of more than all is wrong, whatever it is of."""
    advice = "; ".join(found["verdict"]["next"])
    said = "; ".join([found["verdict"]["why"], *found["verdict"]["evidence"], advice])
    out = [(WRONG, "a share of %s %%" % share) for share in re.findall(r"(\d+(?:\.\d+)?) %", said) if float(share) > 100]
    printed = " ".join(texts.steps.split())
    if expect.advice and expect.advice not in advice:
        out.append((ABSTAINED, 'no advice "%s" but "%s"' % (expect.advice, advice)))
    if expect.no_advice and expect.no_advice in advice:
        out.append((WRONG, 'it advises "%s"' % advice))
    if expect.prints and expect.prints not in printed:
        out.append((ABSTAINED, 'it does not print "%s"' % expect.prints))
    return out + ([(WRONG, 'it prints "%s"' % expect.prints_no)] if expect.prints_no and expect.prints_no in printed else [])


def judge_copied(texts, truth):
    """How much memory copied pages take, against what the kernel counts."""
    told = re.search(r"copy pages .*?: ([\d.e+]+) MB a minute", " ".join(texts.steps.split()))
    if not told or truth.memory is None:
        return []
    said, own = float(told[1]) / 60, truth.memory / 1e6
    right = abs(said - own) <= COPIED_SHARE * max(said, own)
    return [(RIGHT if right else WRONG, "%.3g MB a second are copied, in truth %.3g" % (said, own))]


def judge_labels(found, expect, truth, texts):
    """Labels ended while the recording lasted: those of the first and the last step may be missing."""
    if not expect.labels:
        return []
    told = sum(calls for name, calls in texts.calls.items() if name.startswith(expect.labels))
    _, seconds = truth.of(found)
    begin = told_ends(found)[0] + truth.offset(found)
    own = bisect.bisect_right(truth.labels, begin + seconds) - bisect.bisect_left(truth.labels, begin)
    right = told and abs(told - own) <= max(COUNT_LEAST, COUNT_SHARE * own)
    return [(RIGHT if right else WRONG, "%d calls of labels, in truth %d" % (told, own))]


def judge(found, case, truth, texts):
    """(right, wrong or abstained; why)"""
    all_of_it = judge_steps(found, truth)
    if found["steps"]:
        all_of_it += judge_class(found, case.expect, truth) + judge_slow(found, case, truth)
        all_of_it += judge_straggler(found, case.expect, truth) + judge_place(found, case.expect, case.python)
        all_of_it += judge_words(found, case.expect) + judge_quota(found, truth)
        all_of_it += judge_copied(texts, truth)
        all_of_it += judge_more(found, case.expect, texts) + judge_labels(found, case.expect, truth, texts)
    for verdict in (WRONG, ABSTAINED):
        why = [text for which, text in all_of_it if which == verdict]
        if why:
            return verdict, "; ".join(why)
    return RIGHT, ""


def rhythm_text(rhythm):
    if not rhythm:
        return "-"
    both = {rhythm["shortest"], rhythm["longest"]}
    return "every " + " or ".join("%d" % n for n in sorted(both))


def group_text(found):
    """The slow steps that lost most, in a few words."""
    total = found["all"]["total_s"] if found.get("all") else 0
    if not found["causes"] or not total:
        return "none slow"
    g = found["causes"][0]
    where = g["where"][0]["name"] if g["where"] else "-"
    return "%s in %s %.1f %%; %s; %s" % (g["cause"], g["phase"] or "-", 100 * g["over_s"] / total, where, rhythm_text(g["rhythm"]))
