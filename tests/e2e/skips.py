# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Which tests may be skipped where tests run by themselves: with CI set, any other skip fails the run (tests/run.py), for somebody must see that a test did
not run. What only `make test-all` runs is no skip: it is not chosen.
"""

import re

ALLOWED = [
    # (what the test's name has, what its reason has): both are regular expressions
    (r"^e2e/test_gpu_hardware\.py::", r"^no driver of NVIDIA is here$"),
    (r"^e2e/test_service\.py::", r"^no (systemd-analyze|promtool)$"),
    (r"^e2e/test_manners\.py::test_manual\[", r"^there is no man$"),
]


def unexpected(tests):
    """[(name, reason)] of the skipped ones of tests, [(name, outcome, reason)], that are not allowed."""
    skipped = [(name, reason) for name, outcome, reason in tests if outcome == "skipped"]
    return [(name, reason) for name, reason in skipped if not any(re.search(a, name) and re.search(b, reason) for a, b in ALLOWED)]
