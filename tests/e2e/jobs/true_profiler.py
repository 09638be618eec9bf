# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Lightning's SimpleProfiler as the truth of a job, and a Lightning that keeps quiet."""

import logging
import warnings

from lightning.pytorch.profilers import SimpleProfiler


def quiet_lightning():
    warnings.filterwarnings("ignore")
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)


class TrueSimpleProfiler(SimpleProfiler):
    """Lightning's own figures, and when each action was first started."""

    def __init__(self):
        super().__init__()
        self.first = {}
        self.text = None

    def start(self, action_name):
        self.first.setdefault(action_name, len(self.first))
        super().start(action_name)

    def summary(self):
        self.text = super().summary()
        return self.text

    def truth(self):
        return {
            "actions": dict(self.recorded_durations),
            "order": sorted(self.first, key=self.first.get),
            "start": self.start_time,
            "text": self.text,
        }
