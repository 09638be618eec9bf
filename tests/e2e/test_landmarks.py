# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Collections of garbage, collectives and waits for the GPU, against what the job is told of them."""

import helpers
import pytest

pytestmark = helpers.needs_bpf

RELATIVE = 0.02
GC_PER_CALL = 5e-6  # both ends of our interval lie before those of gc.callbacks, by the making and the call of a callback


def rows_of(found, kind):
    return {name: row for name, row in helpers.actions(found).items() if row["kind"] == kind}


@pytest.mark.alone
def test_garbage_collections(bench, python):
    record, truth = bench.recorded("garbage.py", python=python)
    found = helpers.report(record.file, "--all")
    rows = rows_of(found, "gc")
    assert len(rows) == 3
    helpers.check_counts(rows, {name: g["count"] for name, g in truth["generations"].items()})
    totals = {name: (g["count"], g["seconds"]) for name, g in truth["generations"].items()}
    helpers.check_totals(rows, totals, RELATIVE, GC_PER_CALL, truth["delayed"])
    # labels inside of collections and collections inside of labels
    assert helpers.actions(found)["finalizer"]["count"] == truth["labels"] > 0
    assert found["lost"] == {}
    # one by one, too
    pauses = {"gc generation %d" % g["generation"]: g for g in helpers.report(record.file, "--advanced")["interpreter"]["gc"]}
    for name, row in rows.items():
        assert pauses[name]["count"] == row["count"]
        assert pauses[name]["total_s"] == pytest.approx(row["total_s"], abs=1e-9)
        assert pauses[name]["max_s"] == pytest.approx(row["max_s"], abs=1e-9)
    # none of it where Lightning's own table has none
    assert rows_of(helpers.report(record.file), "gc") == {}


# torch.profiler's names of c10d's operators, as torch 1.13 and 2.x have them.
COMM = {
    "c10d::allreduce_": "comm all_reduce",
    "c10d::broadcast_": "comm broadcast",
    "c10d::reduce_": "comm reduce",
    "c10d::allgather_": "comm all_gather",
    "c10d::barrier": "comm barrier",
    "c10d::send": "comm send",
    "c10d::recv_": "comm recv",
}
WAIT_PER_CALL = 20e-6  # the job's clock lies outside of Python's call of Work.wait


def recorded_ranks(bench, python, *args):
    """[(report, truth)] of both ranks, of which each is recorded by a stepflame of its own."""
    meet = bench.directory / "meet"
    jobs = [bench.job("ranks.py", "--rank", rank, "--meet", meet, *args, python=python) for rank in (0, 1)]
    for job in jobs:
        job.until_ready()
    records = [bench.record("-p", job.pid).until_armed() for job in jobs]
    for job in jobs:
        job.release()
    truths = [job.truth() for job in jobs]
    for record in records:
        assert record.wait() == helpers.OK, record.what()
    return [(helpers.report(record.file, "--all"), truth) for record, truth in zip(records, truths)]


@pytest.mark.alone
def test_collectives(bench, python):
    for found, truth in recorded_ranks(bench, python):
        rows = rows_of(found, "comm")
        wait = rows.pop("comm wait")
        assert len(truth["ops"]) == 5
        helpers.check_counts(rows, {COMM[name]: count for name, count in truth["ops"].items()})
        assert wait["count"] == truth["waits"]
        totals = {"comm wait": (truth["waits"], truth["wait_seconds"])}
        helpers.check_totals({"comm wait": wait}, totals, RELATIVE, WAIT_PER_CALL, truth["delayed"])
        assert wait["total_s"] < truth["wait_seconds"]
        assert found["lost"] == {}


def test_collectives_of_ddp(bench, python):
    for found, truth in recorded_ranks(bench, python, "--ddp"):
        rows = rows_of(found, "comm")
        assert rows.pop("comm wait")["count"] >= truth["steps"]  # those of gloo's own threads, too
        assert truth["ops"] == {"c10d::allreduce_": truth["steps"], "c10d::barrier": truth["steps"]}
        names = ("comm all_reduce", "comm barrier", "comm finalize_backward")
        helpers.check_counts(rows, dict.fromkeys(names, truth["steps"]))
        # they are part of the backward that makes them
        backward = rows_of(found, "backward")["backward"]
        inside = sum(row["total_s"] for name, row in rows.items() if name != "comm barrier")
        assert backward["count"] == truth["steps"]
        assert backward["self_s"] == pytest.approx(backward["total_s"] - inside, abs=1e-6)
        assert found["lost"] == {}


def test_gpu_waits(bench):
    record, truth = bench.recorded("gpu_waits.py")
    if not truth["calls"]:
        pytest.skip("torch %s has mapped no libcudart" % truth["cuda"])
    found = helpers.report(record.file, "--all")
    rows = rows_of(found, "sync")
    helpers.check_counts(rows, {name: call["count"] for name, call in truth["calls"].items()})
    for name, call in truth["calls"].items():
        assert 0 < rows[name]["total_s"] < call["seconds"]
    assert found["lost"] == {}
    assert rows_of(helpers.report(record.file), "sync") == {}


def test_kept_landmarks(bench, tmp_path, monkeypatch):
    """Those of torch's libraries are looked for once; a file of them that is not whole is made anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    seen, files = [], []
    for spoil in (False, True, False):
        record, truth = bench.recorded("plain_loop.py", "--epochs", 1)
        found = helpers.report(record.file, "--all")
        assert helpers.actions(found)["backward"]["count"] == truth["steps"]
        seen.append({name: row["count"] for name, row in helpers.actions(found).items()})
        paths = sorted((tmp_path / "cache" / "stepflame").glob("*.landmarks"))
        files.append([path.read_bytes() for path in paths])
        for path, kept in zip(paths, files[0]) if spoil else ():
            path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    assert files[0] and files[0] == files[1] == files[2]
    assert seen[0] == seen[1] == seen[2]
