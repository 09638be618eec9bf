# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs that fill what a recording has room for: what matters still counts, and what does not fit is told."""

import helpers

OTHER = "(other labels)"


@helpers.needs_bpf
def test_labels(bench):
    record, truth = bench.recorded("floods.py", "labels", "--different", 30000, "--steps", 500, "--around", 1500)
    found = helpers.report(record.file)
    rows = {row["name"]: row for row in found["actions"]}
    for name in ("Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad", "backward"):
        assert rows[name]["count"] == truth["steps"], name
    assert found["window"]["steps"] == truth["steps"]
    own = [row for name, row in rows.items() if name.startswith(("item ", "around ", OTHER)) or name == "my own"]
    assert sum(row["count"] for row in own) == truth["labels"] + truth["around"] + 500
    items = [row for name, row in rows.items() if name.startswith("item ")]
    assert len(items) >= 1000 and all(row["count"] == 1 for row in items)
    assert found["lost"]["names_folded"] == rows[OTHER]["count"]
    helpers.check_lost_at_most(found, "names_folded", "rows_folded")
    print(len(items), rows[OTHER], truth)


@helpers.needs_bpf
def test_children(bench):
    record, truth = bench.recorded("floods.py", "children", "--different", 1000, options=["--syscalls"], cold=True)
    found = helpers.report(record.file, "--io")
    for name in ("getppid", "sched_yield", "getpriority", "umask"):
        assert sum(r["count"] for p in found["processes"] for r in p["syscalls"] if r["name"] == name) >= truth["children"], name
    assert found["lost"] == {}


@helpers.needs_bpf
def test_files(bench):
    record, truth = bench.recorded("floods.py", "files", "--different", 70000, options=["--syscalls"], cold=True)
    found = helpers.report(record.file, "--io")
    child = next(p for p in found["processes"] if p["pid"] == truth["child"])
    row = next(r for r in child["files"] if r["path"] == truth["path"])
    assert (row["reads"], row["read_bytes"], row["written_bytes"]) == (truth["reads"], 5 * truth["reads"], 5)
