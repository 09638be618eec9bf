# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every command of `stepflame fleet` that the README and docs/ show is one that it takes."""

import shlex

import pytest
from documented import commands

from stepflame.fleet import cli

SHOWN = [command for command in commands() if command.split()[0] == "fleet"]


@pytest.mark.parametrize("command", SHOWN)
def test_command(command):
    cli.parser().parse_args(shlex.split(command)[1:])
