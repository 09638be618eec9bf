# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs with several interpreters: no thread is shown in functions that another one runs, and what is not shown is said."""

import json

import dumped_samples
import helpers
import pythons

pytestmark = helpers.needs_bpf

by_python = pythons.parametrize({**pythons.of_minor(8, 11, 12, 13, 15), **pythons.FREE_THREADED}, long=(11, 13))


def start(bench, python):
    job = bench.process(python, helpers.JOBS / "subinterpreters.py")
    line = job.until_says(r"^\{.*\}$", helpers.READY_SECONDS, "stdout").group()
    return job, {int(tid): name for tid, name in json.loads(line).items()}


def check_stack(names, name, in_other):
    """`names`: of a thread's functions; `name`: of the thread, None for those that began within an interpreter."""
    work = {n.partition("_")[2] for n in names if n.startswith(("run_", "work_"))}
    if name is None:
        assert work <= {"inner"}, names
    elif name == "main":
        assert work <= {"main"}, names
    elif in_other:
        assert work <= {name} and "host" not in names, (name, names)
    else:
        assert not work, (name, names)


@by_python
def test_dump(bench, python):
    job, tids = start(bench, python)
    in_other = pythons.MINOR[python] >= 12
    seen = {}
    for _ in range(3):
        result = helpers.stepflame("dump", "-p", job.pid, "--json")
        assert result.returncode == helpers.OK, result
        found = json.loads(result.stdout)
        assert found["hidden_stacks"] >= 3
        for thread in found["threads"]:
            names = [frame["name"].rpartition(".")[2] for frame in thread["frames"]]
            if thread["tid"] == job.pid:
                assert names[-2:] == ["main", "<module>"], names
            else:
                check_stack(names, tids.get(thread["tid"]), in_other)
                seen.setdefault(tids.get(thread["tid"]), set()).update(names)
    assert "work_main" in seen["main"] and "work_inner" in seen[None]
    assert ("work_wait" if in_other else "host") in seen["wait"]
    assert "more stacks, of other interpreters in these threads, are not shown" in helpers.stepflame("dump", "-p", job.pid).stdout


@by_python
def test_record(bench, python):
    job, tids = start(bench, python)
    in_other = pythons.MINOR[python] >= 12
    record = bench.record("-p", job.pid, "-d", 1)
    assert record.wait() == helpers.OK, record.what()
    samples = dumped_samples.Samples(record.file)
    seen, of_main = {}, []
    for sample in samples:
        names = [frame.name.rpartition(".")[2] for frame in sample.stack]
        if sample.tid == job.pid:
            of_main.append(names[-2:])
        else:
            check_stack(names, tids.get(sample.tid), in_other)
            seen.setdefault(tids.get(sample.tid), set()).update(names)
    assert "work_main" in seen["main"] and "work_inner" in seen[None]
    # a stack may be met while it is made
    assert of_main.count(["main", "<module>"]) >= 0.95 * len(of_main) > 0 and {*map(tuple, of_main)} <= {("main", "<module>"), ()}, of_main
    for name in tids.values():
        assert name == "main" or ("host" if not in_other else "run_" + name) in seen[name] or name == "inner", (name, seen)
    assert any(sample.cause == "gil" for sample in samples) == (python not in pythons.FREE_THREADED.values())
    assert any("has several interpreters" in note for note in helpers.report(record.file)["notes"])


@pythons.parametrize(pythons.of_minor(12))
def test_exact(bench, python):
    """All interpreters' calls are counted, also those of one that begins meanwhile; what was written is put back."""
    job, _ = start(bench, python)
    record = bench.record("-p", job.pid, "--exact=force", "-d", 1)
    assert record.wait() == helpers.OK, record.what()
    report = json.loads(helpers.report_text(record.file, "--advanced", "--json", "--limit", 0))
    counted = {f["name"] for action in report["actions"] for f in action["functions"] if f["ncalls"]}
    assert {"work_main", "work_spin", "work_wait", "work_inner"} <= counted, counted
    assert job.running()
