# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What stepflame prints at a terminal of some width."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import helpers

COLOURS = re.compile("\x1b\\[[0-9;]*m")


def at_terminal(columns, *args, env=()):
    """What a terminal with so many columns shows; a None in env unsets a variable."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {key: value for key, value in os.environ.items() if key != "COLUMNS"} | dict(env)
    env = {key: value for key, value in env.items() if value is not None}
    process = subprocess.Popen([helpers.STEPFLAME, *map(str, args)], stdout=its, env=env)
    os.close(its)
    text = b""
    try:
        while part := os.read(ours, 65536):
            text += part
    except OSError:  # EIO: the other side is closed
        pass
    os.close(ours)
    assert process.wait(60) == helpers.OK
    return text.decode().replace("\r\n", "\n")
