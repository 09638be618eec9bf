# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Streams of GPUs and phases in the flame page's view of one step over time, in a real browser: against `export -f chrome`
of the same recording, the log of the doubles of CUDA's libraries, and phases by instants that are computed here.
"""

from collections import Counter

import gpu
import helpers
import pytest
import recfile as rec
from replay.test_flame_page import browser, opened  # noqa: F401
from replay.test_flame_lanes import during, exported, phases_of, same, show, steps_of, streams_of


@helpers.needs_bpf
@gpu.needs_doubles
@gpu.needs_cupti
def test_of_a_job(gpu_jobs, bench, opened):  # noqa: F811
    """A loop whose operators launch kernels: streams by the doubles' own log, phases by the sums of `report --steps`."""
    job = gpu_jobs.python("gpu_loop.py", "--batches", 40, injection=gpu.INJECT).until_ready()
    record = bench.record("-p", job.pid, "--gpu", "cupti", "--timeline").until_armed()
    job.release()
    job.truth()
    assert record.wait() == helpers.OK, record.what()
    *_, window = [row for kind, row in rec.read_records(record.file) if kind == "WINDOW"]
    page = opened(record.file)
    trace = exported(record.file, window.start_ns)
    log = [(op["start"], op["end"]) for op in job.log.ops("kernel", "copy", "set", recorded=True)]
    rows = {row["index"]: row["phases"] for row in helpers.report(record.file, "--steps")["steps"]}
    seen = []
    for step, span in steps_of(page).items():
        show(page, step)
        for (_, device, stream), items in streams_of(page).items():
            same(items, during(trace[device, stream], span))
            seen += items
        found = Counter()
        for begin, end, name in phases_of(page):
            found[name] += (min(end, span[1]) - max(begin, span[0])) / 1e6
        # BPF takes a phase for ended when it learns of it. What the loop does before it calls the model the report takes out of forward.
        said = rows[step]
        assert found == pytest.approx({name: found[name] if name == "forward" else s for name, s in said.items() if s and name != "other"}, abs=50e-6)
        assert said["forward"] - 50e-6 <= found["forward"] <= said["forward"] + said["other"] + 50e-6
    # Each is work of the log, with the error of two clocks.
    log = [((op["start"] - window.start_ns) / 1000, (op["end"] - window.start_ns) / 1000) for op in job.log.ops("kernel", "copy", "set", recorded=True)]
    assert len(seen) >= 16 * len(rows)
    for begin, end, _ in seen:
        assert min(abs(begin - a) + abs(end - b) for a, b in log) < 50
