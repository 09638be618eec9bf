# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The page of a job: each rank against time, coloured by how slow it was there, and what was found. One file, which opens without a network.

In: a Fleet whose scope is the job. Out: the file. Figures of ranks are bytes, of which page_data.js makes figures again; texts come from the tables
and so from programs of others: the page shows them as text alone, and its policy runs no script but its own.
"""

from __future__ import annotations

import base64
import calendar
import gzip
import html
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StepflameError
from . import report
from .engine import Fleet, Row
from .schema import PHASES
from .text import clock, line, moment

Array = NDArray[Any]

FOLDER = Path(__file__).parent
SCRIPTS = ("page_data.js", "page_heat.js", "page_main.js")
MOST_TIMES, MOST_CELLS = 240, 720_000  # of the map: it stays small, and a time becomes longer than a minute
DETAILS = 12_000  # cells of which waits and stacks are in the page
STACKS = 5  # of each
RECORDINGS = 50  # of each rank
WORST = 20
NUMBERS = ("at", "seen", "rested", "steps", "slow", "longest", "mhz", "sync", *PHASES)
POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'"


def write(fleet: Fleet, job: str, out: str | os.PathLike[str]) -> None:
    answer = report.report(fleet, job)
    data, planes, worst = collect(fleet, answer)
    text = assemble(data, planes, without_script(answer, worst))
    temporary = Path(f"{os.fspath(out)}.{secrets.token_hex(8)}.tmp")  # cannot be guessed: nobody else can have put a link there
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, out)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StepflameError("cannot write %s: %s" % (os.fspath(out), error.strerror or error), "name a file that you may write with -o") from None


# --- figures ---


class Map:
    """Figures of each rank at each time, [rank, time]; -1: none."""

    def __init__(self, rows: list[Row], count: int):
        self.rows = rows
        self.figures = {name: np.full((len(rows), count), -1, np.int64) for name in NUMBERS}
        for number, row in enumerate(rows):
            cells = np.array(row["cells"].split(","), np.int64).reshape(-1, len(NUMBERS))
            for column, name in enumerate(NUMBERS):
                self.figures[name][number, cells[:, 0]] = cells[:, column]
        self.seen = self.figures["steps"] > 0
        self.hosts = np.unique([row["host"] for row in rows], return_inverse=True)[1]
        step = sum(np.maximum(self.figures[phase], 0) for phase in PHASES)
        self.step = np.where(self.seen, step, np.nan)
        self.own = np.where(self.seen, step - np.maximum(self.figures["comm"], 0), np.nan)
        usual = self.usual_ranks(self.own)
        self.middle_step, self.middle_own = _medians(self.step), _medians(self.own, usual)
        whole = self.middle_step[self.middle_step > 0]
        self.usual = float(np.median(whole)) if len(whole) else 1.0
        self.middle_phases = {phase: _medians(np.where(self.seen, self.figures[phase], np.nan), usual) for phase in PHASES}
        self.excess = self.above(self.own)

    def above(self, own: Array) -> Array:
        """By how much of a step a rank's time is above that of the usual ranks."""
        with np.errstate(invalid="ignore", divide="ignore"):
            excess: Array = np.nan_to_num((own - _medians(own, self.usual_ranks(own))) / self.middle_step)
        return excess

    def usual_ranks(self, own: Array) -> Array:
        """[rank, time]: whose median is the usual figure. Of two hosts, or two ranks, it is the faster one, as in questions/slow.sql."""
        usual: Array = ~np.isnan(own)
        for column in np.flatnonzero(usual.any(axis=0)):
            there = np.flatnonzero(usual[:, column])
            side = self.hosts[there]
            if len(there) == 2:
                side = there
            first, *others = np.unique(side)
            if len(others) == 1:
                ones, other_ones = there[side == first], there[side == others[0]]
                slower = other_ones if np.median(own[ones, column]) <= np.median(own[other_ones, column]) else ones
                usual[slower, column] = False
        return usual

    def planes(self) -> dict[str, Array]:
        """Bytes, as page_data.js reads them."""
        figures = self.figures
        mhz = figures["mhz"]
        usual_mhz = max(1.0, float(np.median(mhz[mhz > 0]))) if (mhz > 0).any() else 1.0
        longest = np.maximum(1, np.where(self.seen, figures["longest"], 1) / self.usual)
        whole = np.maximum(1, np.maximum(figures["seen"], 0) + np.maximum(figures["rested"], 0)).max()
        out = {
            "own": self.excess_bytes(self.excess),
            "longest": np.where(self.seen, 1 + np.round(8 * np.log2(longest)), 0),
            "slow": np.maximum(0, figures["slow"]),
            "mhz": np.where(mhz > 0, np.round(100 * mhz / usual_mhz), 0),
            "seen": np.ceil(200 * np.maximum(0, figures["seen"]) / whole),
            "rested": np.ceil(200 * np.maximum(0, figures["rested"]) / whole),
        }
        if (figures["sync"] > 0).any():
            out["alone"] = self.excess_bytes(self.above(self.own - figures["sync"]))
        for phase in PHASES:
            out[phase] = np.where(self.seen, _folded(figures[phase] / self.usual, 1, 200, 255), 0)
        return {name: np.clip(plane, 0, 255).astype(np.uint8) for name, plane in out.items() if plane.any()}

    def excess_bytes(self, excess: Array) -> Array:
        return np.where(self.seen, 128 + np.sign(excess) * _folded(np.abs(excess), 0.2, 80, 127), 0)

    def usual_mhz(self) -> int | None:
        mhz = self.figures["mhz"]
        return int(np.median(mhz[mhz > 0])) if (mhz > 0).any() else None

    def worst(self) -> Array:
        """Ranks, those first that were longest above the others."""
        return np.argsort(-np.maximum(0, self.excess).sum(axis=1), kind="stable")


def _medians(figures: Array, of: Array | bool = True) -> Array:
    """Of each time; 0 where nobody was seen."""
    figures = np.where(of, figures, np.nan)
    out = np.zeros(figures.shape[1])
    there = ~np.isnan(figures).all(axis=0)
    out[there] = np.nanmedian(figures[:, there], axis=0)
    return out


def _folded(value: Array, knee: float, steps: int, most: int) -> Array:
    """In equal steps up to the knee, and sixths of an octave beyond."""
    beyond = steps + np.round(6 * np.log2(np.maximum(value, knee) / knee))
    return np.minimum(most, np.where(value <= knee, np.round(np.maximum(value, 0) / knee * steps), beyond))


def collect(fleet: Fleet, answer: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Array], list[dict[str, Any]]]:
    first, last = answer["first_m"], answer["last_m"]
    times = min(MOST_TIMES, max(1, MOST_CELLS // max(1, answer["ranks"])))
    width = -(-(last - first + 1) // times)
    count = -(-(last - first + 1) // width)
    span = {"first": first, "width": width, "count": count}
    found = Map(fleet.ask("page_cells", **span), count)
    number_of = {(row["host"], row["who"]): number for number, row in enumerate(found.rows)}
    findings = [finding_of(finding, found.rows, first, width, count) for finding in answer["findings"]]
    worst = found.worst()
    hosts = sorted({row["host"] for row in found.rows})
    host_number = {host: number for number, host in enumerate(hosts)}
    data = {
        "job": answer["job"], "cluster": answer["cluster"], "first": first, "width": width, "count": count, "usual": round(found.usual),
        "mhz": found.usual_mhz(), "hosts": hosts,
        "ranks": [row["who"] for row in found.rows], "pids": [row["pid"] for row in found.rows], "host": [host_number[row["host"]] for row in found.rows],
        "usualStep": _whole(found.middle_step), "usualOwn": _whole(found.middle_own), "usualPhases": {phase: _whole(middle) for phase, middle in found.middle_phases.items() if middle.any()},
        "findings": findings, "nothing": nothing(answer), "worst": worst[:WORST].tolist(), "left_out": answer["left_out"], "seen_share": answer["seen_share"], "rested_share": answer["rested_share"],
        "recordings": recordings(fleet, number_of),
    }  # fmt: skip
    data["details"] = details(fleet, found, chosen(findings, worst, max(8, DETAILS // count)), span, number_of)
    return data, found.planes(), worst_rows(found, worst[:WORST], first, width)


def _whole(figures: Array) -> list[int]:
    whole: list[int] = np.round(figures).astype(np.int64).tolist()
    return whole


def nothing(answer: dict[str, Any]) -> list[str]:
    """What it means that nothing was found, as in a report."""
    return [report.nothing_found(answer), *answer["doubts"]]


def finding_of(finding: dict[str, Any], rows: list[Row], first: int, width: int, count: int) -> dict[str, Any]:
    """With ranks as numbers of rows, and times as numbers of columns. A finding without ranks is of its hosts'; without hosts, of all."""
    hosts, ranks = set(finding["hosts"]), set(finding["ranks"])
    of = [number for number, row in enumerate(rows) if (not hosts or row["host"] in hosts) and (not ranks or row["who"] in ranks)]
    times = [[max(0, (minute_of(a) - first) // width), min(count, -(-(minute_of(b) - first) // width))] for a, b in finding["times"]]
    return {"kind": finding["kind"], "said": finding["said"], "because": finding["because"], "rows": of if hosts or ranks else [], "times": times}


def minute_of(text: str) -> int:
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")) // 60


def chosen(findings: list[dict[str, Any]], worst: Array, most: int) -> list[int]:
    """The ranks of which the page has waits and stacks: those of findings, the worst, and the most usual one."""
    out = dict.fromkeys([int(worst[len(worst) // 2])] if len(worst) else [])
    out |= dict.fromkeys(row for finding in findings for row in finding["rows"][:16])
    out |= dict.fromkeys(worst.tolist())
    return list(out)[:most]


def details(fleet: Fleet, found: Map, rows: list[int], span: dict[str, int], number_of: dict[tuple[str, int], int]) -> dict[str, Any]:
    """Waits: rank, time, phase, cause, place, microseconds of a step. Stacks: rank, time, path, thousandths of its samples. Texts by number."""
    out: dict[str, Any] = {"rows": rows, "texts": [], "waits": [], "stacks": []}
    if not rows:
        return out
    texts: dict[str, int] = {}
    only = {"ranks": tuple(sorted({found.rows[row]["who"] for row in rows})), "hosts": tuple(sorted({found.rows[row]["host"] for row in rows}))}
    wanted, steps = set(rows), found.figures["steps"]

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    for wait in fleet.ask("page_waits", **span, **only):
        row = number_of.get((wait["host"], wait["who"]))
        # of a step 0.1 %, or more
        if row in wanted and steps[row, wait["slot"]] > 0 and wait["ns"] >= 0.001 * found.usual * steps[row, wait["slot"]]:
            us = round(wait["ns"] / 1000 / int(steps[row, wait["slot"]]))
            out["waits"].append([row, wait["slot"], number(wait["phase"]), number(wait["cause"]), number(wait["place"] or ""), us])
    for stack in fleet.ask("page_stacks", **span, **only, stacks=STACKS):
        row = number_of.get((stack["host"], stack["who"]))
        if row in wanted:
            out["stacks"].append([row, stack["slot"], number(stack["path"]), round(1000 * stack["share"])])
    out["texts"] = list(texts)
    # columns, which pack better
    out["waits"], out["stacks"] = (list(map(list, zip(*out[name]))) for name in ("waits", "stacks"))
    return out


def recordings(fleet: Fleet, number_of: dict[tuple[str, int], int]) -> dict[str, Any]:
    """Which recordings have a rank, and the minutes between which they do: [row, pid, machine, path, first, last], as columns, texts by number."""
    texts: dict[str, int] = {}
    rows = []
    for row in report.recordings(fleet, all=True, hosts=(), most=RECORDINGS):
        number = number_of.get((row["host"], row["who"]))
        if number is not None:
            named = (texts.setdefault(row[key], len(texts)) for key in ("machine", "path"))
            rows.append([number, row["pid"], *named, *(int(row[key].timestamp() // 60) for key in ("since", "until"))])
    return {"texts": list(texts), "rows": list(map(list, zip(*rows)))}


def worst_rows(found: Map, worst: Array, first: int, width: int) -> list[dict[str, Any]]:
    out = []
    for number in worst.tolist():
        at = int(found.excess[number].argmax())
        row = found.rows[number]
        out.append({"rank": row["who"], "host": row["host"], "at": first + at * width, "excess": float(found.excess[number, at])})
    return [row for row in out if row["excess"] > 0]


# --- the file ---


def without_script(answer: dict[str, Any], worst: list[dict[str, Any]]) -> str:
    """What a browser shows that runs no scripts."""
    said = "".join("<li>%s</li>" % html.escape(line(finding["said"])) for finding in answer["findings"]) or "".join("<li>%s</li>" % html.escape(line(text)) for text in nothing(answer))
    rows = "".join("<tr><td>%d<td>%s<td>%s<td>%+.1f %%" % (row["rank"], html.escape(line(row["host"])), moment(row["at"]), 100 * row["excess"]) for row in worst)
    return (
        "<h1>job %s in cluster %s, %s to %s UTC</h1><h2>Found</h2><ol>%s</ol><h2>Ranks whose own time was longest above the others'</h2>"
        "<table><tr><th>rank<th>host<th>worst at<th>then, of a step%s</table>"
    ) % (html.escape(line(answer["job"])), html.escape(line(answer["cluster"])), moment(answer["first_m"]), clock(answer["last_m"] + 1), said, rows)


def assemble(data: dict[str, Any], planes: dict[str, Array], noscript: str) -> str:
    nonce = secrets.token_hex(16)
    data = {**data, "planes": [[name, plane.size] for name, plane in planes.items()]}
    head = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    body = len(head).to_bytes(4, "little") + head + b"".join(plane.tobytes() for plane in planes.values())
    packed = base64.b64encode(gzip.compress(body, 9, mtime=0)).decode()
    part = {name: (FOLDER / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", *SCRIPTS)}
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="%s">\n'
        '<meta name="viewport" content="width=device-width">\n<title>stepflame fleet</title>\n<style nonce="%s">\n%s</style>\n</head>\n<body>\n%s'
        '<noscript>%s</noscript>\n<script type="application/octet-stream" id="data">%s</script>\n<script nonce="%s">\n\'use strict\';\n%s</script>\n</body>\n</html>\n'
    ) % (POLICY % (nonce, nonce), nonce, part["page.css"], part["page.html"], noscript, packed, nonce, "".join(part[name] for name in SCRIPTS))
