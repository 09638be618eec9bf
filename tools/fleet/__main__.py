# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""python tools/fleet STORE ...: generate.py has the options."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder, whose profile.py would stand for Python's
from fleet.generate import main  # noqa: E402

main()
