# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A plugin of pytest for tests/run.py: `-p outcomes --outcomes FILE` writes a line of JSON for each test that ran or was skipped: its name, "passed",
"failed" or "skipped", its seconds, and why. A test whose set-up or end failed has failed; so has a file that cannot be read.
"""

import json


def pytest_addoption(parser):
    parser.addoption("--outcomes", help="a file, to which a line of JSON is added for each test")


def pytest_configure(config):
    if config.getoption("--outcomes") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Writer(config.getoption("--outcomes")))


def reason_of(report):
    """Of a skip; in full of a failure, with what the test printed."""
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        return reason.removeprefix("Skipped: ")
    printed = ["--- %s ---\n%s" % section for section in report.sections]
    return "\n".join([report.longreprtext, *printed])


class Writer:
    def __init__(self, path):
        self.path = path
        self.seconds = {}

    def write(self, name, outcome, seconds, reason=""):
        with open(self.path, "a") as file:
            file.write(json.dumps({"name": name, "outcome": outcome, "seconds": round(seconds, 3), "reason": reason}) + "\n")

    def pytest_runtest_logreport(self, report):
        """A test has three reports: set-up, call, end. What is said of it last holds, unless it has failed before (tests/run.py)."""
        self.seconds[report.nodeid] = seconds = self.seconds.get(report.nodeid, 0) + report.duration
        # an expected failure is a skip to pytest, but for this
        if hasattr(report, "wasxfail") and not report.failed:
            self.write(report.nodeid, "passed", seconds)
        elif report.failed or report.skipped:
            self.write(report.nodeid, "failed" if report.failed else "skipped", seconds, reason_of(report))
        elif report.when == "call":
            self.write(report.nodeid, "passed", seconds)

    def pytest_collectreport(self, report):
        if report.failed or report.skipped:
            self.write(report.nodeid, "failed" if report.failed else "skipped", 0, reason_of(report))
