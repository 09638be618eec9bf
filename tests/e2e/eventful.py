# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A job of steps of some ms, of which single ones are slow when a test says so."""


class Steps:
    def __init__(self, bench, name="job", ready=True, **job):
        self.events, self.stop, self.part = (bench.directory / (name + end) for end in (".events", ".stop", ".part"))
        self.events.mkdir()
        # Debian's torch multiplies matrices fifty times more slowly
        work = ["--work", 64] if job.get("cold") else []
        self.job = bench.job("events.py", "--stop", self.stop, "--events", self.events, *work, **job)
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
