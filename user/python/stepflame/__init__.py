# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
stepflame for Python: recordings as tables, and recordings of this process or another one. docs/python-package.md.

The command stepflame is main(): it becomes the program at once, so this module imports nothing but os and sys by itself.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .errors import StepflameError as StepflameError
    from .recorder import attach as attach
    from .recorder import record as record
    from .recording import Recording as Recording
    from .recording import load as load

# name: the module that has it, imported when somebody first asks for the name
LAZY = {"StepflameError": "errors", "attach": "recorder", "record": "recorder", "Recording": "recording", "load": "recording"}
__all__ = ["Recording", "StepflameError", "attach", "load", "record"]


def __getattr__(name: str) -> object:
    if name not in LAZY:
        raise AttributeError("module 'stepflame' has no attribute %r" % name)
    import importlib

    value = getattr(importlib.import_module("stepflame." + LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    return sorted({*globals(), *LAZY})


def main() -> None:
    """The command: `stepflame fleet` is Python, all else the program."""
    if sys.argv[1:2] == ["fleet"]:
        from . import fleet_command

        fleet_command.main()
        return
    from . import program

    try:
        path = program.path()
        os.execv(path, ["stepflame", *sys.argv[1:]])
    except Exception as error:
        sys.exit("stepflame: error: %s" % error)
