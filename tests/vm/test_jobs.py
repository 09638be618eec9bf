# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Training jobs with torch on other kernels: end-to-end tests run there, whose truth is torch.profiler's and the jobs' own. Each takes minutes."""

import os
import subprocess
import sys

import pytest
from test_kernels import HERE, STEPFLAME

pytestmark = [pytest.mark.vm, pytest.mark.long]

PYTHON = os.environ.get("STEPFLAME_PYTHON", sys.executable)
PATIENCE = "10"  # times slower than the machine that emulates
TESTS = {  # a report each
    "simple": "test_plain.py::test_labels[torch 2]",
    "operators": "test_ops.py::test_equals_torch_profiler[torch 2-mlp]",
    "exact": "test_exact.py::test_with_torch[steps]",
}


@pytest.mark.parametrize("version", ["6.1", "6.12", "7"])
@pytest.mark.parametrize("report", TESTS)
def test_report(version, report):
    """A pass, or a skip that says what the kernel lacks."""
    inside = ["env", f"STEPFLAME={os.path.abspath(STEPFLAME)}", f"STEPFLAME_PATIENCE={PATIENCE}", f"STEPFLAME_PYTHON={PYTHON}",
              "PYTHONDONTWRITEBYTECODE=1", PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", HERE.parent / "e2e" / TESTS[report]]
    done = subprocess.run([HERE / "run.sh", version, *inside], capture_output=True, text=True,
                          env={**os.environ, "VM_MEMORY": "4G", "VM_TIMEOUT": "1800"})
    if done.returncode == 1 and not done.stdout:
        pytest.skip(f"no machine with Linux {version}: {done.stderr.strip()}")
    print(done.stderr)
    assert done.returncode == 0, done.stdout
    if " skipped" in done.stdout:
        pytest.skip(done.stdout)
