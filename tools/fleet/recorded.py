# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A Profile of recordings of a real job: generate.py --from. In: recordings, which the program exports as tables, or folders of such tables.

What a step consists of, how it varies, what it waits for, its stacks, actions, operators and kernels are the recorded ones. Phases that the model
does not know are in "other". Made up is what a recording of few ranks does not have: the collective of the ranks of a host, and, where there is none at
all, that of all ranks.
"""

import collections
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from .profile import (
    AFTER,
    BEFORE,
    GLOBAL,
    GLOBAL_LINE,
    LOCAL,
    LOCAL_LINE,
    PHASES,
    QUANTILES,
    Action,
    Op,
    Profile,
    Stack,
    Wait,
    normal,
)

KNOWN = (*BEFORE, *AFTER, "comm", "checkpoint")
STACKS_OF_EACH = 6  # of a phase and cause
PROGRAM = os.environ.get("STEPFLAME", str(Path(__file__).resolve().parents[2] / "build/stepflame"))


def tables(path: Path) -> dict[str, pa.Table]:
    if path.is_dir():
        return {file.stem: pa.ipc.open_file(file).read_all() for file in path.glob("*.arrow")}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([PROGRAM, "export", path, "-f", "arrow", "-o", folder], check=True, stdin=subprocess.DEVNULL)
        return tables(Path(folder))


def phase_of(phase: str | None) -> str | None:
    return phase if phase in KNOWN or phase is None else "other"


def phase_of_action(kind: str, name: str) -> str:
    for phase, words in (("optimizer", ("ptimizer",)), ("data", ("DataLoader", "__next__"))):
        if kind == "label" and any(word in name for word in words):
            return phase
    return kind if kind in KNOWN else "other"


def recorded(paths: list[Path], step_ns: float | None) -> Profile:
    """step_ns: what an ordinary step is scaled to, without waits for others."""
    rows: dict[str, list[dict]] = collections.defaultdict(list)
    names: dict[int, tuple[str, ...]] = {}
    steps, seen_ns = [], 0
    for path in paths:
        found = tables(path)
        names |= {row["stack"]: tuple(row["frames"]) for row in found["stacks"].to_pylist()}
        steps.append({name: found["steps"][f"{name}_ns"].to_numpy() for name in PHASES})
        for name in ("ranks", "windows", "waits", "samples", "actions", "ops", "gpu"):
            rows[name] += found[name].to_pylist()
        seen_ns += sum(row["seen_ns"] for row in found["windows"].to_pylist())
    each = {name: np.concatenate([step[name] for step in steps]) for name in PHASES}
    count = len(each["other"])
    if count < 10:
        raise ValueError(f"{count} steps in {len(paths)} recordings are too few: record longer")
    each["other"] = each["other"] + sum(each[name] for name in PHASES if name not in KNOWN)
    mean = {name: float(each[name].mean()) for name in KNOWN}
    base = {phase: float(np.median(each[phase])) for phase in BEFORE + AFTER}
    own = sum(base.values())
    # who comes last into a collective does not wait in it
    base[GLOBAL] = float(np.quantile(each["comm"], 0.05)) or 0.05 * own
    base[LOCAL] = base[GLOBAL]
    scale = step_ns / sum(base.values()) if step_ns else 1.0
    ratios = {phase: quantiles(each[phase] / base[phase]) if base[phase] > 0 else np.ones(QUANTILES, np.float32) for phase in BEFORE + AFTER}
    mhz = [row["gpu_mhz"] for row in rows["windows"] if row["gpu_mhz"]]
    first = rows["ranks"][0]
    return Profile(
        {name: ns * scale for name, ns in base.items()}, ratios | {LOCAL: normal(0.03)}, np.ones(QUANTILES, np.float32), waits_of(rows["waits"], mean, count),
        stacks_of(rows["samples"], names, seen_ns), actions_of(rows["actions"], mean, count), ops_of(rows["ops"], mean, count), kernels_of(rows["gpu"], count),
        first["gpu"], float(np.median(mhz)) if mhz else 1755.0, first["python"] or "", first["torch"] or "",
    )  # fmt: skip


def quantiles(ratios: np.ndarray) -> np.ndarray:
    """Without the longest and the shortest: of thousands of ranks one would have it in each step."""
    return np.quantile(ratios, np.linspace(0.02, 0.98, QUANTILES)).astype(np.float32)


def waits_of(rows: list[dict], mean: dict[str, float], count: int) -> list[Wait]:
    ns, places = collections.Counter(), {}
    for row in sorted(rows, key=lambda row: row["ns"]):
        key = (phase_of(row["phase"]), row["cause"])
        ns[key] += row["ns"]
        places[key] = row["place"] or ""
    out = []
    for (phase, cause), total in ns.items():
        share = min(1.0, total / count / mean[phase]) if mean[phase] else 0
        for part, place in ((GLOBAL, places[phase, cause]), (LOCAL, LOCAL_LINE)) if phase == "comm" else (("", places[phase, cause]),):
            out.append(Wait(phase, cause, share, place, part))
    if not any(wait.phase == "comm" for wait in out):
        out += [Wait("comm", "collective", 0.97, line, part) for part, line in ((LOCAL, LOCAL_LINE), (GLOBAL, GLOBAL_LINE))]
    return out


def stacks_of(rows: list[dict], names: dict[int, tuple[str, ...]], seen_ns: int) -> list[Stack]:
    weights: dict[tuple, collections.Counter] = collections.defaultdict(collections.Counter)
    for row in rows:
        weights[phase_of(row["phase"]), row["cause"]][row["stack"]] += row["weight_ns"]
    out = []
    for (phase, cause), of in weights.items():
        whole = seen_ns if phase is None else sum(ns for _, ns in of.most_common(STACKS_OF_EACH))
        for stack, ns in of.most_common(STACKS_OF_EACH):
            out.append(Stack(phase, cause, ns / whole, names[stack], GLOBAL if phase == "comm" else ""))
        if phase == "comm":
            out.append(Stack(phase, cause, 1, (*names[of.most_common(1)[0][0]][:1], LOCAL_LINE), LOCAL))
    if not any(stack.phase == "comm" for stack in out):
        out += [Stack("comm", cause, 1, (line,), part) for part, line in ((LOCAL, LOCAL_LINE), (GLOBAL, GLOBAL_LINE)) for cause in (None, "collective")]
    if not any(stack.cause == "disk_read" and stack.phase == "data" for stack in out):  # of a stall
        out.append(Stack("data", "disk_read", 1, ("data.py:44 Shards.open",)))
    return out


def totals(rows: list[dict], keys: tuple[str, ...]) -> dict[tuple, tuple[int, int, int]]:
    out: dict[tuple, tuple[int, int, int]] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        before = out.get(key, (0, 0, 0))
        out[key] = (before[0] + row["n"], before[1] + row["total_ns"], before[2] + row["self_ns"])
    return {key: value for key, value in out.items() if value[0] > 0 and value[1] > 0}


def actions_of(rows: list[dict], mean: dict[str, float], count: int) -> list[Action]:
    out = [Action("comm", "reduce_scatter_tensor", "comm", part=LOCAL)]
    for (kind, name), (n, total, own) in totals(rows, ("kind", "name")).items():
        phase = phase_of_action(kind, name)
        if mean[phase] > 0:
            out.append(Action(kind, name, phase, total / count / mean[phase], own / total, n / count, GLOBAL if phase == "comm" else ""))
    return out


def ops_of(rows: list[dict], mean: dict[str, float], count: int) -> list[Op]:
    out = []
    for (kind, name, action), (n, total, own) in totals(rows, ("kind", "name", "action")).items():
        phase = phase_of_action("label", action) if action and action not in KNOWN else action or "other"
        if mean[phase] > 0:
            out.append(Op(kind, name, action, phase, total / count / mean[phase], own / count / mean[phase], n / count))
    return out


def kernels_of(rows: list[dict], count: int) -> list[tuple[str, str, float, float]]:
    ns, n = collections.Counter(), collections.Counter()
    for row in rows:
        ns[row["kind"], row["name"]] += row["ns"]
        n[row["kind"], row["name"]] += row["n"]
    whole = sum(ns.values())
    return [(kind, name, n[kind, name] / count, of / whole) for (kind, name), of in ns.most_common(40)] if whole else []
