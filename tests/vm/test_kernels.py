# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stepflame on other kernels: each boots once, runs inside.sh, and the tests compare what came out.

The targets count their own calls; stepflame's counts are held against those. STEPFLAME names another binary than
build/stepflame.
"""
import json
import os
import pathlib
import re
import subprocess
import time

import pytest

pytestmark = pytest.mark.vm

HERE = pathlib.Path(__file__).resolve().parent
STEPFLAME = os.environ.get("STEPFLAME", str(HERE.parents[1] / "build" / "stepflame"))
DOUBLES = pathlib.Path(STEPFLAME).parent / "tests" / "gpu"
# The oldest supported, without uprobe_multi; a long-term one with it; the newest that Debian has.
KERNELS = ["6.1", *(pytest.param(version, marks=pytest.mark.long) for version in ("6.12", "7"))]
# Every function begins with a push, behind which it may return early.
CFLAGS = ["-O1", "-g", "-Wall", "-Wextra", "-Werror",
          "-fno-omit-frame-pointer", "-fcf-protection=none", "-fno-shrink-wrap", "-I", str(HERE.parents[1])]


@pytest.fixture(scope="session")
def targets(tmp_path_factory):
    out = tmp_path_factory.mktemp("targets")

    def build(name, compiler, source, *flags):
        subprocess.run([compiler, *CFLAGS, str(HERE / source), "-o", str(out / name), *flags], check=True)

    build("libtarget.so", "gcc", "targetlib.c", "-shared", "-fPIC")
    build("target", "gcc", "target.c", f"-L{out}", "-ltarget", "-lpthread", "-Wl,-rpath,$ORIGIN")
    build("throw", "g++", "throw.cpp", "-rdynamic")
    return out


class Run:
    """One block of inside.sh's output: values["vm_work"], and the report if stepflame recorded."""

    def __init__(self):
        self.values = {}
        self.report_text = ""

    @property
    def report(self):
        return json.loads(self.report_text)

    def count(self, symbol):
        """Calls that stepflame saw in the target itself; those of its child are apart."""
        pid = self.report["target"][0]["pid"]
        return sum(a["count"] for a in self.report["actions"] if a["name"].endswith(symbol) and a["pid"] == pid)


def parse(text):
    """Splits the output into runs by name; "" is what comes before the first: the kernel's own values."""
    runs = {"": Run()}
    run, in_report = runs[""], False
    for line in text.splitlines():
        if line.startswith("== "):
            run = runs[line[3:]] = Run()
        elif line in ("-- report", "-- end"):
            in_report = line == "-- report"
        elif in_report:
            run.report_text += line + "\n"
        else:
            key, _, value = line.partition("=")
            run.values[key] = value
    return runs


@pytest.fixture(scope="module", params=KERNELS)
def machine(request, targets):
    version = request.param
    begin = time.monotonic()
    done = subprocess.run([HERE / "run.sh", version, "env", f"STEPFLAME={STEPFLAME}", HERE / "inside.sh", targets, DOUBLES],
                          capture_output=True, text=True)
    if done.returncode == 1 and not done.stdout:
        pytest.skip(f"no machine with Linux {version}: {done.stderr.strip()}")
    with request.config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
        print(f"\nLinux {version}: booted and done in {time.monotonic() - begin:.1f} s")
    print(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    return parse(done.stdout)


def recorded(machine, name):
    if name not in machine:
        pytest.skip(f"{STEPFLAME} is not built")
    assert machine[name].values["record_status"] == "0"
    return machine[name]


def test_kernel_has_what_tracing_needs(machine, request):
    values = machine[""].values
    assert values["kernel"].startswith(request.node.callspec.params["machine"] + ".")
    assert [k for k in ("btf", "tracefs", "debugfs", "bpf", "cgroup2", "root_read_only") if values[k] != "yes"] == []


@pytest.mark.parametrize("name,counts", [
    ("plain", {"vm_work": "1000", "vm_recurse": "10", "vm_work_child": "500"}),
    ("plain_throw", {"vm_pass": "500", "vm_pass_caught": "250"}),
])
def test_target_runs_untraced(machine, name, counts):
    assert machine[name].values == {"target_status": "0", **counts}


@pytest.mark.parametrize("name,symbol", [("work", "vm_work"), ("recurse", "vm_recurse")])
def test_every_call_is_counted(machine, name, symbol):
    run = recorded(machine, name)
    assert run.values["target_status"] == "0"
    assert run.count(symbol) == int(run.values[symbol])
    assert run.report["lost"] == {}


def test_exceptions_pass_a_probed_function(machine):
    """A return probe would abort the target. Calls that an exception ended may be counted or not; others must be."""
    run = recorded(machine, "throw")
    assert run.values["target_status"] == "0"
    total, caught = int(run.values["vm_pass"]), int(run.values["vm_pass_caught"])
    assert total - caught <= run.count("vm_pass") <= total
    assert "stack_full" not in run.report["lost"]


def test_calls_of_cuda_are_counted(machine):
    """Each call of CUDA and NCCL that lies in no other, as the doubles log them, and their bytes; and nothing is left behind."""
    run = recorded(machine, "gpu")
    assert run.values["target_status"] == "0"
    report = run.report
    assert [t["tier"] for t in report["tiers"]] == [1]
    seen = {row["name"]: (row["count"], row["bytes"] or 0) for row in report["apis"]}
    watched = re.findall(r"X\((\w+), [A-Z_]+, \d", (HERE.parents[1] / "include" / "gpu.h").read_text())
    truth = {name: tuple(map(int, run.values[name].split())) for name in watched if name in run.values}
    assert truth["cudaLaunchKernel"][0] == 486  # 8 a step, and 3 that are captured
    assert seen == truth
    assert "unwound" not in report["lost"]
    assert run.values["events_left"] == "0"
