# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A job of steps of some ms, of which single ones are slow when a test says so."""

import sys


class Steps:
    def __init__(self, bench, name="job", ready=True, args=(), **job):
        self.events, self.stop, self.part = (bench.directory / (name + end) for end in (".events", ".stop", ".part"))
        self.events.mkdir()
        # Debian's torch multiplies matrices fifty times more slowly
        work = ["--work", 64] if job.get("cold") else []
        self.job = bench.job("events.py", "--stop", self.stop, "--events", self.events, *work, *args, **job)
        if ready:
            self.job.until_ready()
        self.pid = self.job.pid

    def release_for(self, seconds):
        """Until it has run for so long."""
        self.job.release()
        self.job.until_ran(seconds)

    def sleep(self, seconds):
        """The next step takes so much longer."""
        self.part.write_text(str(seconds))
        self.part.rename(self.events / "event")

    def truth(self):
        self.stop.touch()
        return self.job.truth()


class Watched(Steps):
    """One that `stepflame watch` takes for a job: it leaves out the jobs of other tests, and a fork of another process that has torch is no job of its own."""

    def __init__(self, bench, name="job", env=(), **job):
        assert "torch" not in sys.modules, "a test has imported torch into this process, which is taken for a part of its children's jobs"
        super().__init__(bench, name, cold=True, env={"STEPFLAME_WATCH": "1", **dict(env)}, **job)

    @classmethod
    def pair(cls, bench, **other):
        """Two, which import at the same time."""
        jobs = cls(bench, "one", ready=False), cls(bench, "other", ready=False, **other)
        for steps in jobs:
            steps.job.until_ready()
        return jobs
