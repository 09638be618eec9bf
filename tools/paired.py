# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the tools that measure share: a job that writes down how far it came, stepflame on a job, and a median with its spread."""
import array
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import time


def wait_for(path: str, text: str, process: subprocess.Popen, seconds: float = 60) -> None:
    """Until the process has written the text to the file."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if text in open(path).read():
            return
        if process.poll() is not None:
            break
        time.sleep(0.005)
    sys.exit(f"no '{text}' in time:\n{open(path).read()}")


def spread(values: list[float], form: str = ".4f") -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


class Job:
    """A script that says "ready", and whose last argument is the file to which it appends the times (doubles) of what it did."""

    def __init__(self, folder: str, script: str, *args: str):
        path, said, self.times_path = (os.path.join(folder, name) for name in ("job.py", "job.out", "job.times"))
        with open(path, "w") as out:
            out.write(script)
        open(self.times_path, "w").close()
        with open(said, "w") as out:
            self.process = subprocess.Popen([sys.executable, path, *args, self.times_path], stdout=out, stderr=subprocess.STDOUT)
        self.pid = self.process.pid
        wait_for(said, "ready", self.process)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def cpu_seconds(self) -> float:
        """Of its first thread: what other processes take of the machine is not in it."""
        return int(open(f"/proc/{self.pid}/schedstat").read().split()[0]) / 1e9

    def times(self) -> list[float]:
        raw = open(self.times_path, "rb").read()
        times = array.array("d")
        times.frombytes(raw[: len(raw) // 8 * 8])
        return list(times)


class Recording:
    """`stepflame record` of a process, from when it is armed."""

    def __init__(self, stepflame: str, folder: str, pid: int, *options: str):
        self.stepflame = stepflame
        self.file, said = os.path.join(folder, "bench.rec"), os.path.join(folder, "record.err")
        with open(said, "w") as err:
            command = [stepflame, "record", "-p", str(pid), "-o", self.file, *options]
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err)
        wait_for(said, "armed", self.process)

    def memory(self) -> int:
        """Bytes resident now."""
        status = open(f"/proc/{self.process.pid}/status").read()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) * 1024

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu = usage.ru_utime + usage.ru_stime
        self.bytes = os.path.getsize(self.file)

    def report(self, *options: str) -> dict:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = subprocess.check_output([self.stepflame, "report", self.file, *options, "--json"])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.report_cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return json.loads(text)
