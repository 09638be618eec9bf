# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Options of the replay tests."""


def pytest_addoption(parser):
    parser.addoption("--accept", action="store_true", help="write what commands print now as what they shall print (test_expected.py)")
