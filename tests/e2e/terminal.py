# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What stepflame prints at a terminal of some width."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios

import helpers

COLOURS = re.compile("\x1b\\[[0-9;]*m")


def at_terminal(columns, *args, env=(), both=False):
    """What a terminal with so many columns shows, both: also of stderr; a None in env unsets a variable."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {key: value for key, value in os.environ.items() if key != "COLUMNS"} | dict(env)
    env = {key: value for key, value in env.items() if value is not None}
    process = subprocess.Popen([helpers.STEPFLAME, *map(str, args)], stdout=its, stderr=its if both else None, env=env)
    os.set_blocking(ours, False)
    text, ended = b"", False
    while True:  # its side stays open: to close it could lose what is still on the way
        try:
            text += os.read(ours, 65536)
        except BlockingIOError:
            if ended:
                break
            select.select([ours], [], [], 0.01)
            ended = process.poll() is not None
    os.close(its)
    os.close(ours)
    assert process.wait(60) == helpers.OK
    return text.decode().replace("\r\n", "\n")
