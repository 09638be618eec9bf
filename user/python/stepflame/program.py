# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The program stepflame: where it is, and how the package calls it. Imports only os and sys by itself, for the command stepflame waits for it."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

OWN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "native", "stepflame")  # a wheel's


def path() -> str:
    """The program of this package's wheel, else $STEPFLAME, else the first of PATH."""
    if os.access(OWN, os.X_OK):
        return OWN
    chosen = os.environ.get("STEPFLAME")
    if chosen:
        if not is_program(chosen):
            raise error("$STEPFLAME is %s, which is not the program" % chosen, "set it to the path of the program, or unset it")
        return chosen
    for folder in os.get_exec_path():
        found = os.path.join(folder, "stepflame")
        if is_program(found):
            return found
    raise error("the program stepflame is not here: not in this package, and not in PATH", "install the wheel or the Debian package, or set STEPFLAME to the program's path")


def is_program(file: str) -> bool:
    """A script named stepflame is the command of a wheel, which would look for the program again."""
    try:
        with open(file, "rb") as opened:
            return opened.read(4) == b"\x7fELF" and os.access(file, os.X_OK)
    except OSError:
        return False


def error(what: str, fix: str) -> Exception:
    from .errors import StepflameError

    return StepflameError(what, fix)


def words(options: "Dict[str, Any]") -> "List[str]":
    """The program's options: ops=True is --ops, max_size="1G" --max-size=1G, until=["slow", "end"] both; None and False are none."""
    found = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                found.append(option)
            elif one is not None and one is not False:
                found.append("%s=%s" % (option, one))
    return found


def run(command: str, *arguments: str) -> str:
    """What `stepflame COMMAND ARGUMENTS` prints; StepflameError with what it says if it fails."""
    import subprocess

    from .errors import of_output

    try:
        done = subprocess.run([path(), command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except (OSError, ValueError) as failure:
        raise error("cannot run stepflame %s: %s" % (command, failure), "check the arguments, and that the program may run here") from None
    if done.returncode:
        raise of_output(done.stderr.decode(errors="replace"), done.returncode, command)
    return done.stdout.decode(errors="replace")
