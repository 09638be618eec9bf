# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The package as it lies in user/python, with the program that the tests have: in this process, and in those that it starts."""

import os
import sys

import helpers

PACKAGE = helpers.ROOT / "user/python"
sys.path.insert(0, str(PACKAGE))
sys.dont_write_bytecode = True  # nothing into the work tree
os.environ.update(PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=os.pathsep.join([str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]), STEPFLAME=helpers.STEPFLAME)
