# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stepflame where the kernel restricts root, for real: lockdown, Yama and SELinux, each in a machine of its own."""
import os
import subprocess

import pytest
from test_kernels import HERE, STEPFLAME

pytestmark = [pytest.mark.vm, pytest.mark.long]

VERSION = "6.1"
TARGET = "import time\nwhile True: time.sleep(0.01)"
# The target must go on after its recording, whatever came of that.
RECORD = f"""
"$PYTHON" -c "{TARGET}" & target=$!
sleep 3
"$STEPFLAME" record -p $target -d 2 -o /tmp/a.rec
echo "record=$?"
kill -0 $target && echo target=runs
"$STEPFLAME" doctor
"""


def inside(append, script):
    done = subprocess.run([HERE / "run.sh", VERSION, "env", f"STEPFLAME={STEPFLAME}", "PYTHON=/usr/bin/python3", "bash", "-c", script],
                          capture_output=True, text=True, env={**os.environ, "VM_APPEND": append})
    if done.returncode == 1 and not done.stdout:
        pytest.skip(f"no machine with Linux {VERSION}: {done.stderr.strip()}")
    return done.stdout, done.stderr


def test_lockdown_for_integrity_permits_recording():
    out, err = inside("lockdown=integrity", RECORD)
    assert "record=0\ntarget=runs\n" in out, out + err
    assert "integrity: does not restrict stepflame" in out


def test_lockdown_for_confidentiality_is_named():
    out, err = inside("lockdown=confidentiality", RECORD)
    assert "record=5\ntarget=runs\n" in out, out + err
    assert "error: the kernel is locked down for confidentiality" in err and "fix: boot with lockdown=integrity" in err
    assert "FAIL  BPF programs                  the kernel is locked down for confidentiality" in out


@pytest.mark.parametrize("scope", range(3))
def test_yama_does_not_stop_root(scope):
    out, err = inside("", f"echo {scope} > /proc/sys/kernel/yama/ptrace_scope" + RECORD)
    assert "record=0\ntarget=runs\n" in out, out + err
    assert f"{scope}: does not restrict stepflame" in out and "FAIL" not in out


def test_yama_that_lets_nobody_read_is_named():
    out, err = inside("", "echo 3 > /proc/sys/kernel/yama/ptrace_scope" + RECORD)
    assert "record=3\ntarget=runs\n" in out, out + err
    assert "kernel.yama.ptrace_scope is 3" in err and "FAIL  Yama" in out


def test_selinux_is_named():
    out, err = inside("security=selinux selinux=1 enforcing=1", "mount -t selinuxfs s /sys/fs/selinux\n" + RECORD)
    assert "record=0\ntarget=runs\n" in out, out + err  # without a policy all is allowed
    assert "WARN  SELinux                       enforcing" in out
