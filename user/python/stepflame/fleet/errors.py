# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What goes wrong, said as the program says it: what, why, and what to do."""

from __future__ import annotations


class FleetError(Exception):
    def __init__(self, what: str, why: str = "", fix: str = "", status: int = 1):
        super().__init__("%s: %s" % (what, why) if why else what)
        self.fix = fix
        self.status = status

    def said(self) -> str:
        return "stepflame: error: %s" % self + ("\n  fix: %s" % self.fix if self.fix else "")
