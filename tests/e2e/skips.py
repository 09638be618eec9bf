# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Which tests may be skipped where tests run by themselves: with CI set, or pytest's --no-unexpected-skips, any other skip fails the run,
for somebody must see that a test did not run. What only `make test-long` runs is no skip: it is not chosen.
"""

import re

EXIT_BIT = 8  # of the exit code, beside pytest's own 0 to 5
NONE_CHOSEN = 5

ALLOWED = [
    # (what the test's id has, what its reason has): both are regular expressions
    (r"e2e/test_gpu_hardware\.py::", r"^no driver of NVIDIA is here$"),
    (r"e2e/test_manners\.py::test_manual\[", r"^there is no man$"),
]


class Watch:
    """A plugin of pytest: lists each skip that is not allowed, and makes a run that has one a failed one."""

    def __init__(self):
        self.unexpected = []

    def look(self, report):
        # an expected failure is a skip to pytest, but for this
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not any(re.search(name, report.nodeid) and re.search(why, reason) for name, why in ALLOWED):
            self.unexpected.append((report.nodeid, reason))

    def pytest_runtest_logreport(self, report):
        self.look(report)

    def pytest_collectreport(self, report):
        self.look(report)

    def pytest_sessionfinish(self, session):
        if self.unexpected:
            session.exitstatus = EXIT_BIT | (session.exitstatus % NONE_CHOSEN)

    def pytest_terminal_summary(self, terminalreporter):
        if self.unexpected:
            terminalreporter.section("skipped, and may not be (tests/e2e/skips.py)", red=True)
            for name, reason in self.unexpected:
                terminalreporter.line("%s: %s" % (name, reason))
