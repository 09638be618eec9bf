# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A queue that waits in C looks like a lock to the kernel: is the wait told as one for the thread that fills it? Truth: how the job is written."""

import helpers
import recfile

pytestmark = helpers.needs_bpf


def test_queue_in_c(bench):
    record, truth = bench.recorded("queue_in_c.py", "--batches", 80)
    kinds = list(recfile.read_records(record.file))
    rows = [row for kind, row in kinds if kind == "AWAITED"]
    codes = {row.id: row for kind, row in kinds if kind == "CODE"}
    places = {(codes[row.code].first_line, row.on) for row in rows if row.code in codes}
    assert (truth["taken"], 1) in places and (truth["taken"], 0) not in places, (places, truth)
    verdict = helpers.report(record.file, "--steps")["verdict"]
    assert verdict["class"] != "lock-bound" and verdict["cause"] in ("sleep", "thread_wait"), verdict
