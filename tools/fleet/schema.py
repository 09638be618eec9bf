# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Columns of the tables (docs/tables.md), and arrays for them. What the generator's steps consist of, by column."""

import hashlib

import numpy as np
import pyarrow as pa
from .profile import BEFORE, CAUSES, GLOBAL, LOCAL, PHASES

MINUTE, HOUR, SECOND = 60 * 10**9, 3600 * 10**9, 10**9
PERIOD_NS = 10**7  # of samples
PARTS = (*BEFORE, LOCAL, GLOBAL, "optimizer", "other", "checkpoint", "stall")  # columns of what a step consists of; stall is a part of data
TEXT, TIME, LONG, INT, REAL, YES = pa.dictionary(pa.int32(), pa.utf8()), pa.timestamp("us", "UTC"), pa.int64(), pa.int32(), pa.float64(), pa.bool_()
TYPES = {"t": TEXT, "T": TIME, "l": LONG, "i": INT, "d": REAL, "b": YES}
PHASE_NS = " ".join(f"l:{phase}_ns" for phase in PHASES)
KEY = "t:host i:pid i:rank?"
SCHEMAS = {
    "ranks": f"{KEY} i:local_rank? i:world_size? t:launcher t:job_id? i:restarts? l:uid? t:cgroup? t:gpu? i:cpus t:python? t:torch? t:jax? t:stepflame t:kernel"
    " t:steps_by? T:since T:until b:ended t:ending?",
    "windows": f"{KEY} T:minute l:seen_ns l:rested_ns l:steps l:rest_steps l:step_ns l:longest_ns {PHASE_NS} l:oncpu_ns? l:gc_ns l:slow_steps l:lost d:budget?"
    " d:accounted? d:measured? d:error? l:cpu_ns? l:rss_bytes? l:throttled_ns? d:gpu_busy? d:gpu_mhz? d:gpu_watts?",
    "steps": f"{KEY} T:minute T:start l:step l:duration_ns {PHASE_NS} l:gc_ns l:oncpu_ns? {' '.join(f'l:wait_{cause}_ns?' for cause in CAUSES)} t:cause?",
    "waits": f"{KEY} T:minute t:phase t:cause t:place? l:n l:ns",
    "samples": f"{KEY} T:minute t:phase? b:main t:cause? l:stack l:n l:weight_ns",
    "stacks": "l:stack f:frames",
    "actions": f"{KEY} T:since T:until t:kind t:name l:n l:total_ns l:self_ns l:min_ns l:max_ns",
    "ops": f"{KEY} T:since T:until t:kind t:name t:action? l:n l:total_ns l:self_ns l:self_cpu_bytes l:self_device_bytes",
    "gpu": f"{KEY} i:device T:since T:until t:kind t:name l:n l:ns",
}


def schema(table: str) -> pa.Schema:
    fields = []
    for word in SCHEMAS[table].split():
        kind, _, name = word.partition(":")
        # the format's own name of a list's item
        made = pa.list_(pa.field("item", pa.utf8(), nullable=False)) if kind == "f" else TYPES[kind]
        fields.append(pa.field(name.rstrip("?"), made, nullable=name.endswith("?")))
    return pa.schema(fields)


def texts(values: list[str | None], codes: np.ndarray) -> pa.DictionaryArray:
    """The texts that codes count; None becomes null."""
    known = sorted({value for value in values if value is not None})
    number = np.array([known.index(value) if value is not None else -1 for value in values], np.int32)
    out = number[codes]
    return pa.DictionaryArray.from_arrays(pa.array(out, pa.int32(), mask=out < 0), pa.array(known, pa.utf8()))


def times(ns: np.ndarray) -> pa.Array:
    return pa.array(np.asarray(ns) // 1000, pa.int64()).cast(TIME)


def stack_id(frames: tuple[str, ...]) -> int:
    return int.from_bytes(hashlib.sha256("\n".join(frames).encode()).digest()[:8], "little", signed=True)


def phases_of(parts: np.ndarray) -> dict[str, np.ndarray]:
    column = {name: parts[:, i] for i, name in enumerate(PARTS)}
    zero = np.zeros(len(parts), np.int64)
    return {phase: column[LOCAL] + column[GLOBAL] if phase == "comm" else column.get(phase, zero) for phase in PHASES}
