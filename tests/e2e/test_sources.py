# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the house style promises and a program can check. Needs no root."""

import helpers
import pytest


@pytest.mark.parametrize("command", ["ps", "doctor"])
def test_commands_that_only_look(command, tmp_path):
    """They work for root, and for everyone else work or say why not; what is printed is data or one message."""
    result = helpers.stepflame(command, cwd=tmp_path)
    if helpers.why_no_bpf() is None or result.returncode == helpers.OK:
        assert result.returncode == helpers.OK and (result.stdout or "no process with torch" in result.stderr), result
    else:
        assert result.returncode in (helpers.PERMISSION, helpers.UNSUPPORTED) and "fix" in result.stdout + result.stderr, result
    assert list(tmp_path.iterdir()) == []
