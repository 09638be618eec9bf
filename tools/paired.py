# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the tools that measure share: a job that writes down how far it came, stepflame on a job, and a median with its spread."""
import array
import ctypes
import json
import os
import re
import resource
import signal
import statistics
import struct
import subprocess
import sys
import time


# A Job that trains: KIND (plain, functions, lightning) WIDTH BATCH. Behind each step, when that was and the CPU time of its thread.
TRAINING = r"""
import array, logging, sys, time, warnings
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import torch
kind, width, batch, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
if kind == "transformer":
    layer = torch.nn.TransformerEncoderLayer(width // 8, 4, width // 2, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Unflatten(1, (8, -1)), torch.nn.TransformerEncoder(layer, 2), torch.nn.Flatten(), model)
data = torch.utils.data.TensorDataset(torch.randn(20000, width), torch.randint(0, 10, (20000,)))
loader = torch.utils.data.DataLoader(data, batch_size=batch)
loss_of = torch.nn.functional.cross_entropy
log = open(out, "ab", buffering=0)
times = array.array("d")
def stamp():
    times.extend((time.monotonic(), time.thread_time()))
    if len(times) >= 64:
        log.write(times.tobytes())
        del times[:]
def outer(depth):
    return outer(depth - 1) if depth else sum(range(200))
if kind != "lightning":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print("ready", flush=True)
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
            for _ in range(20 if kind == "functions" else 0):
                outer(20)
            for _ in range(20 if kind == "labels" else 0):
                with torch.profiler.record_function("part"):
                    outer(2)
            stamp()
import lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model
    def training_step(self, batch, index):
        return loss_of(self.model(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
    def on_train_batch_end(self, *args):
        stamp()
print("ready", flush=True)
lightning.Trainer(max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False,
                  enable_progress_bar=False, enable_model_summary=False).fit(Module(), loader)
"""


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

    def stamps(self) -> list[tuple[float, float]]:
        """Of TRAINING: (when, CPU time so far), in seconds."""
        times = self.times()
        return list(zip(times[::2], times[1::2]))


class Asked:
    """A script that prints a line of JSON when it is ready (`said`), and then one for each line that it reads: it does what it is asked, and is idle else."""

    def __init__(self, folder: str, script: str, env: dict | None = None):
        path = os.path.join(folder, "job.py")
        with open(path, "w") as f:
            f.write(script)
        self.process = subprocess.Popen([sys.executable, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env={**os.environ, **(env or {})})
        self.pid = self.process.pid
        self.said = self._answer()

    def _answer(self):
        for line in self.process.stdout:
            if line.startswith(("{", "[")) or re.match(r"[0-9.]", line):
                return json.loads(line)
        sys.exit("bench: the job ended")

    def ask(self, what: str):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self._answer()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class BareProbes:
    """Uprobes whose program only counts its hits: by the bpf system call itself, so that nothing of stepflame is in it."""

    MAP_CREATE, MAP_LOOKUP, PROG_LOAD, LINK_CREATE = 0, 1, 5, 28
    ARRAY, KPROBE, UPROBE_MULTI = 2, 2, 48

    def __init__(self, path: str, offsets: list[int], pid: int):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.map = self._bpf(self.MAP_CREATE, struct.pack("=IIII", self.ARRAY, 4, 8, 1))
        # r1 = &value; r2 = 1; lock *r1 += r2; r0 = 0; exit
        code = struct.pack("=" + "BBhi" * 6, 0x18, 0x21, 0, self.map, 0, 0, 0, 0, 0xB7, 2, 0, 1, 0xDB, 0x21, 0, 0, 0xB7, 0, 0, 0, 0x95, 0, 0, 0)
        self.code, self.license = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
        attr = struct.pack("=IIQQ", self.KPROBE, len(code) // 8, ctypes.addressof(self.code), ctypes.addressof(self.license))
        self.prog = self._bpf(self.PROG_LOAD, attr + struct.pack("=IIQII16sII", 0, 0, 0, 0, 0, b"", 0, self.UPROBE_MULTI))
        self.path = ctypes.create_string_buffer(path.encode())
        self.offsets = (ctypes.c_uint64 * len(offsets))(*offsets)
        attr = struct.pack("=IIIIQQQQIII", self.prog, 0, self.UPROBE_MULTI, 0, ctypes.addressof(self.path),
                           ctypes.addressof(self.offsets), 0, 0, len(offsets), 0, pid)
        self.link = self._bpf(self.LINK_CREATE, attr)

    def _bpf(self, command: int, attr: bytes) -> int:
        buffer = ctypes.create_string_buffer(attr, 144)
        fd = self.libc.syscall(321, command, buffer, 144)
        if fd < 0:
            sys.exit(f"bench: bpf command {command}: {os.strerror(ctypes.get_errno())}")
        return fd

    def hits(self) -> int:
        key, value = ctypes.c_uint32(0), ctypes.c_uint64(0)
        self._bpf(self.MAP_LOOKUP, struct.pack("=IIQQQ", self.map, 0, ctypes.addressof(key), ctypes.addressof(value), 0))
        return value.value

    def stop(self) -> int:
        hits = self.hits()
        for fd in (self.link, self.prog, self.map):
            os.close(fd)
        return hits


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
