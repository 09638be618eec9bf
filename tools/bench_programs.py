#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What each BPF program of stepflame takes of a core, by the kernel's own count, on real jobs.

    sudo tools/bench_programs.py [--job NAME...] [--options="-F 0"] [--stepflame PATH...]

Each job trains with everything that `stepflame record` does by default; the counting begins some seconds after the
probes are there. Several --stepflame are compared in turn, round by round. The kernel's count (kernel.bpf_stats_enabled)
costs each run some 20 ns itself, which are not in it; nor is the trap that leads to a probe. "verified" is how many
instructions the kernel's verifier followed before it took the program: what stepflame's start costs.
"""
import argparse
import glob
import importlib.util
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
KNOB = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")

PLAIN = """
import torch, warnings
warnings.filterwarnings("ignore")
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(20000, 1024), torch.randint(0, 10, (20000,)))
while True:
    for x, y in torch.utils.data.DataLoader(data, batch_size=64):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
TRAINER = """
import tempfile, torch, transformers
torch.set_num_threads(1)
config = transformers.BertConfig(vocab_size=100, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256)
data = [{"input_ids": torch.randint(0, 100, (32,)), "labels": torch.tensor(i % 2)} for i in range(512)]
with tempfile.TemporaryDirectory() as folder:
    options = transformers.TrainingArguments(folder, num_train_epochs=10000, per_device_train_batch_size=8, report_to=[], use_cpu=True,
                                             disable_tqdm=True, save_strategy="no")
    transformers.Trainer(transformers.BertForSequenceClassification(config), options, train_dataset=data).train()
"""
JOBS = {
    "demo": [str(HERE / "demo_job.py"), "--seconds", "600"],
    "plain": ["-c", PLAIN],
    "trainer": ["-c", TRAINER],
}


def programs(pid: int) -> dict[int, tuple[int, int, int]]:
    """{id: (runs, ns, verified instructions)} of the programs of a process and of its guardian."""
    ids = {}
    for path in glob.glob(f"/proc/{pid}/fdinfo/*"):
        try:
            text = open(path).read()
        except OSError:
            continue
        found = dict(re.findall(r"^(prog_id|run_cnt|run_time_ns|verified_insns):\s*(\d+)$", text, re.M))
        if len(found) == 4:
            ids[int(found["prog_id"])] = (int(found["run_cnt"]), int(found["run_time_ns"]), int(found["verified_insns"]))
    return ids


def name_of(program: int) -> str:
    shown = subprocess.run(["bpftool", "prog", "show", "id", str(program)], capture_output=True, text=True).stdout
    found = re.search(r"\bname (\S+)", shown)
    return found.group(1) if found else str(program)


def measure(stepflame: str, pid: int, options: list[str], settle: float, seconds: float) -> dict[str, tuple[float, float, int]]:
    """{program: (runs a second, ns a run, verified instructions)}"""
    with tempfile.TemporaryDirectory() as folder:
        recording = subprocess.Popen([stepflame, "record", "-p", str(pid), "-o", f"{folder}/x.rec", *options],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(settle)
        before, begin = programs(recording.pid), time.monotonic()
        time.sleep(seconds)
        after, took = programs(recording.pid), time.monotonic() - begin
        found: dict[str, tuple[float, float, int]] = {}
        for program, (runs, ns, verified) in after.items():
            runs, ns = runs - before.get(program, (0, 0, 0))[0], ns - before.get(program, (0, 0, 0))[1]
            name = name_of(program)
            had = found.get(name, (0, 0, 0))
            found[name] = (had[0] + runs / took, had[1] + ns / took, had[2] + verified)
        recording.terminate()
        recording.wait()
    return {name: (runs, ns / runs if runs else 0, verified) for name, (runs, ns, verified) in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stepflame", nargs="+", default=[str(HERE.parent / "build" / "stepflame")])
    parser.add_argument("--job", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--options", default="", help="of stepflame record")
    parser.add_argument("--settle", type=float, default=4, help="seconds of a recording before the count")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    before = KNOB.read_text()
    KNOB.write_text("1")
    job = None
    try:
        for kind in args.job:
            if kind == "trainer" and not importlib.util.find_spec("transformers"):
                print("trainer: skipped, as transformers is not installed")
                continue
            job = subprocess.Popen([sys.executable, *JOBS[kind]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(12)
            rounds = [[measure(path, job.pid, args.options.split(), args.settle, args.seconds) for path in args.stepflame]
                      for _ in range(args.rounds)]
            job.kill()
            job.wait()
            for at, path in enumerate(args.stepflame):
                show(f"{kind}, {path}", [each[at] for each in rounds])
    finally:
        KNOB.write_text(before)
        if job:
            job.kill()


def show(title: str, rounds: list[dict[str, tuple[float, float, int]]]) -> None:
    """The median of the rounds; the sum's spread beside it."""
    print(f"\n{title}\n\n| program | runs a second | ns a run | % of a core | verified |\n|---|---|---|---|---|")
    rows = []
    for name in set().union(*rounds):
        runs = statistics.median(each.get(name, (0, 0, 0))[0] for each in rounds)
        ns = statistics.median(each[name][1] for each in rounds if name in each)
        rows.append((runs * ns / 1e7, max(each[name][2] for each in rounds if name in each), name, runs, ns))
    for share, verified, name, runs, ns in sorted(rows, reverse=True):
        print(f"| {name} | {runs:,.0f} | {ns:,.0f} | {share:.3f} | {verified:,} |")
    sums = [sum(runs * ns / 1e7 for runs, ns, _ in each.values()) for each in rounds]
    print(f"| all | | | {statistics.median(sums):.3f} ({min(sums):.3f} to {max(sums):.3f}) | {sum(row[1] for row in rows):,} |", flush=True)


if __name__ == "__main__":
    main()
