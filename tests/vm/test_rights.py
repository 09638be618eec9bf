# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Less than root, on each kernel: the capabilities that docs/safety.md names suffice, and without any one of them the message names it."""
import os
import subprocess
import time

import pytest
from test_kernels import HERE, KERNELS, STEPFLAME, parse, targets  # noqa: F401

pytestmark = pytest.mark.vm

CALLS = 2 * 100  # of both threads; those of the child are apart
ALONE = {"multi": ["bpf", "perfmon"], "events": ["bpf", "perfmon", "dac_override"], "perf": ["sys_admin"]}
WAYS = {"6.1": ["events", "perf"], "6.12": ["multi", "events", "perf"], "7": ["multi", "events", "perf"]}


@pytest.fixture(scope="module", params=KERNELS)
def recordings(request, targets):  # noqa: F811
    version = request.param
    begin = time.monotonic()
    done = subprocess.run([HERE / "run.sh", version, "env", f"STEPFLAME={STEPFLAME}", HERE / "rights.sh", targets],
                          capture_output=True, text=True, env={**os.environ, "VM_TIMEOUT": "900"})
    if done.returncode == 1 and not done.stdout:
        pytest.skip(f"no machine with Linux {version}: {done.stderr.strip()}")
    print(f"Linux {version}: booted and done in {time.monotonic() - begin:.1f} s", done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    return version, {tuple(name.split()): run.values for name, run in parse(done.stdout).items() if name}


def test_ways(recordings):
    """Each way in which this kernel attaches probes was tried."""
    version, runs = recordings
    assert {way for way, _, _ in runs} == set(WAYS[version])


def test_all_suffice(recordings):
    for (way, whose, missing), values in recordings[1].items():
        if missing == "all":
            assert values["record_status"] == "0" and int(values["counted"]) >= CALLS, (way, whose, values)


def test_each_is_needed_and_named(recordings):
    for (way, whose, missing), values in recordings[1].items():
        if missing not in ("all", "paranoid"):
            assert values["record_status"] == "3" and f"CAP_{missing.upper()}" in values["said"] and "missing" in values["said"], (way, whose, values)
            assert values["target_status"] == "0"


def test_paranoid_kernel_is_named(recordings):
    for (way, _, missing), values in recordings[1].items():
        if missing == "paranoid":
            assert values["record_status"] == "3", (way, values)
            assert "kernel.perf_event_paranoid is above 2: CAP_SYS_ADMIN missing" in values["said"], (way, values)


def test_no_set_is_left_out(recordings):
    version, runs = recordings
    wanted = {(way, whose, missing) for way in WAYS[version] for whose, each in (("own", ALONE[way]), ("others", ["sys_ptrace"]))
              for missing in ["all", *each]}
    assert {name for name in runs if name[2] != "paranoid"} == wanted
