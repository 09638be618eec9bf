# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The comparison that tests/e2e/test_gpu_hardware.py makes on a GPU, on a made-up trace and a made-up recording."""

import copy
import json
import random

import gpu_compare
import gpu_recorded
import helpers
import pytest
import recfile as rec

KINETO = {rec.KERNEL: "kernel", rec.COPY: "gpu_memcpy", rec.SET: "gpu_memset"}
TAILS = {rec.HTOD: "HtoD (Pinned -> Device)", rec.DTOH: "DtoH (Device -> Pinned)", rec.DTOD: "DtoD (Device -> Device)"}
MANGLED = {"_ZN2at6native13reduce_kernelILi512EfEEvT0_": "void at::native::reduce_kernel<512, float>(float)", "ampere_sgemm_128x64_tn": None}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(what the trace has, what the recording has) of the same three steps."""
    folder = tmp_path_factory.mktemp("compare")
    job = gpu_recorded.random_job(random.Random(5))
    works = list(job.works())
    for i, work in enumerate(works):
        if work.kind == rec.KERNEL:
            work.name = list(MANGLED)[i % 2]
    events = [{"ph": "M", "name": "process_name"}]
    for work in works:
        name = MANGLED.get(work.name) or work.name or ("Memset (Device)" if work.kind == rec.SET else "Memcpy " + TAILS[work.direction])
        args = {} if work.kind == rec.KERNEL else {"bytes": work.size}
        events.append({"ph": "X", "cat": KINETO[work.kind], "name": name, "ts": work.start / 1e3, "dur": work.duration / 1e3, "args": args})
    trace = folder / "trace.json"
    trace.write_text(json.dumps({"traceEvents": events}))
    file = gpu_recorded.write(folder / "made.rec", job)
    found = helpers.report(file, "--gpu", "--limit", 0)
    return gpu_compare.of_trace(trace), gpu_compare.of_report(found)


def test_same(both):
    traced, recorded = both
    assert traced.kernel_count > 20 and len(traced.kernels) == 2 and {"host to device", ""} <= set(traced.copies)
    assert gpu_compare.different(traced, recorded, tolerance=1e-6) == []
    # the same work, asked for in half as many steps
    assert len(gpu_compare.different(traced, recorded, 3, 6)) >= 4


@pytest.mark.parametrize("what", ["count", "missing", "more", "time", "bytes", "direction"])
def test_different(both, what):
    traced, recorded = copy.deepcopy(both)
    name = next(iter(recorded.kernels))
    if what == "count":
        recorded.kernels[name][0] += 1
    elif what == "missing":
        us = recorded.kernels.pop(name)[1]
        recorded.kernels[next(iter(recorded.kernels))][1] += us
    elif what == "more":
        recorded.kernels["new"] = [1, 0]
    elif what == "time":
        for row in recorded.kernels.values():
            row[1] *= 1.05
        for row in recorded.copies.values():
            row[2] *= 1.05
    elif what == "bytes":
        recorded.copies["host to device"][1] += 4
    else:
        recorded.copies["host to host"] = recorded.copies.pop("host to device")
    lines = gpu_compare.different(traced, recorded)
    assert len(lines) == (2 if what == "direction" else 1), lines


def test_hashed(both):
    """A long name, of which the recording has what is for people."""
    traced, recorded = copy.deepcopy(both)
    name = "void at::native::reduce_kernel<512, float>(float)"
    recorded.kernels["at::native::reduce_kernel<...> #0123abcd"] = recorded.kernels.pop(name)
    assert gpu_compare.different(traced, recorded) == []
    recorded.kernels["at::native::reduce_kernel<...> #0123abcd"][0] += 1
    assert len(gpu_compare.different(traced, recorded)) == 2


def test_figures():
    figures = gpu_compare.Figures()
    assert figures.text() == ""
    figures.add("step time, tier 1", 1.0123456)
    figures.add("launches a step", 2000, "calls")
    assert figures.text().splitlines() == ["| step time, tier 1 | 1.012  |", "| launches a step   |  2000 calls |"]
