# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every command of `stepflame fleet` that the README and docs/ show is one that it takes; and the figures in its answers."""

import shlex

import pytest
from documented import commands

from stepflame.fleet import cli
from stepflame.fleet.text import figure

SHOWN = [command for command in commands() if command.split()[0] == "fleet"]


@pytest.mark.parametrize("command", SHOWN)
def test_command(command):
    cli.parser().parse_args(shlex.split(command)[1:])


@pytest.mark.parametrize(
    "value, text",
    [(0, "0"), (0.0000123, "0.0000123"), (0.5, "0.5"), (9.999, "10"), (999.7, "1000"), (2943.6, "2944"), (-1234.6, "-1235"), (1e6, "1000000")],
    ids=str,
)
def test_figures(value, text):
    assert figure(value) == text
