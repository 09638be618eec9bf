# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The operator report against torch's own key_averages().table(), byte for byte. Needs no root and no kernel."""

import inspect
import json
import os
import pathlib
import random
import re
import subprocess
import types

import pytest
import recfile as rec

torch = pytest.importorskip("torch")
profiler_util = pytest.importorskip("torch.autograd.profiler_util")
if "group_by_overload_name" not in inspect.signature(profiler_util.EventList.key_averages).parameters:
    pytest.skip("this torch's table has another layout", allow_module_level=True)

from torch.nn import functional as F  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPFLAME = str(ROOT / os.environ.get("STEPFLAME", "build/stepflame"))
PID = 4242
START = 1_000_000_000
PREFIX = "autograd::engine::evaluate_function: "
DTYPES = {"float": 6, "double": 7, "long int": 4, "bool": 11, "int": 3}


def report(path, *args):
    return subprocess.run([STEPFLAME, "report", str(path), "--ops", *args], capture_output=True, timeout=60)


def report_json(path, *args):
    result = report(path, "--json", *args)
    assert result.returncode == 0 and not result.stderr
    return json.loads(result.stdout)


class Recording:
    """Records of operators, names and groups interned."""

    def __init__(self):
        self.records = [rec.host(), rec.target(PID), rec.window(START, START + 10**9, 10, 1)]
        self.names, self.groups, self.codes = {}, {}, {}

    def name(self, text):
        if not text:
            return 0
        if text not in self.names:
            self.names[text] = len(self.names) + 1
            self.records.append(rec.name(self.names[text], text))
        return self.names[text]

    def group(self, words, source=None, module=None):
        key = words, source, module
        if key not in self.groups:
            self.groups[key] = len(self.groups) + 1
            self.records.append(rec.op_group(self.groups[key], words, self.code(source), self.name(module)))
        return self.groups[key]

    def code(self, source):
        """source: "FILE(LINE): FUNCTION"."""
        if not source:
            return 0
        if source not in self.codes:
            self.codes[source] = len(self.codes) + 1
            file, line, function = re.fullmatch(r"(.*)\((\d+)\): (.*)", source, re.S).groups()
            self.records.append(rec.code(self.codes[source], self.name(file), self.name(function), int(line)))
        return self.codes[source]

    def op(self, kind, name, calls, total_ns, self_ns, action=None, group=0, pid=PID, **rest):
        self.records.append(
            rec.op(pid, kind, self.name(name), calls, total_ns, self_ns, self.name(action), group, **rest)
        )

    def write(self, path):
        path.write_bytes(rec.recording(self.records))
        return path


def check(result, expected):
    assert result.returncode == 0 and not result.stderr
    expected = expected.encode()
    assert result.stdout[: len(expected)].decode() == expected.decode()
    below = result.stdout[len(expected) :].decode()
    assert re.match(r"(\d+ more rows? \(--limit \d+\)\n)?(not recorded: .*\n)?(operators: .*\n)?window: ", below), below


# ---- a real run of torch.profiler ----


def mlp():
    model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        loss = F.cross_entropy(model(torch.randn(64, 784)), torch.randint(10, (64,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def convolutions():
    layers = [
        torch.nn.Conv2d(3, 8, 3, stride=(2, 1), padding=(1, 2)),
        torch.nn.BatchNorm2d(8),
        torch.nn.Conv2d(8, 16, (3, 2), dilation=(1, 2), groups=4),
        torch.nn.Conv2d(16, 4, 3, padding="same"),
        torch.nn.ConvTranspose2d(4, 2, 2),
    ]
    model = torch.nn.Sequential(*layers)

    def step():
        model(torch.randn(4, 3, 33, 21)).sum().backward()
        F.conv2d(torch.randn(4, 18, 17), torch.randn(4, 2, 3, 2), groups=2)
        F.conv1d(torch.randn(2, 3, 8), torch.randn(4, 3, 3))
        F.conv2d(torch.randn(0, 3, 8, 8), torch.randn(4, 3, 3, 3))

    return step


def attention():
    model = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

    def step():
        with torch.profiler.record_function("訓練 forward"):
            out = model(torch.randn(2, 7, 32))
        out.mean().backward()

    return step


def recurrent():
    model = torch.nn.LSTM(6, 9, 2, bidirectional=True)

    def step():
        model(torch.randn(5, 3, 6))[0].pow(2).sum().backward()

    return step


def odds_and_ends():
    def step():
        a, b = torch.randn(3, 4), torch.randn(4, 5)
        torch.add(a @ b, 1, out=torch.empty(3, 5))
        torch.baddbmm(torch.randn(2, 3, 5), torch.randn(2, 3, 4), torch.randn(2, 4, 5))
        torch.cat([a, a, torch.randn(0)])[:, torch.tensor([0, 1])].mul_(2).mul(a.new_ones(2, 6, 2))
        torch._foreach_add([a, b], [a, b])
        torch.randn(0, 4) @ b, torch.randn(3, 0) @ torch.randn(0, 5), torch.tensor(2.0) + a
        torch.addmm(torch.randn(5), a, b, beta=2), torch.bmm(torch.randn(0, 3, 4), torch.randn(0, 4, 5))
        a.double() @ b.double(), torch.einsum("ij,jk", a, b), a @ b[:, 0]

    return step


MODELS = {model.__name__: model for model in (mlp, convolutions, attention, recurrent, odds_and_ends)}


def words_of(event):
    words = b""
    concrete = event.concrete_inputs or [None] * len(event.structured_input_shapes)
    for shape, value, kind in zip(event.structured_input_shapes, concrete, event.input_dtypes):
        if kind == "TensorList":
            words += rec.word(rec.WORD_TENSOR_LIST, count=len(shape))
            words += b"".join(rec.word(rec.WORD_TENSOR, dims, 6) for dims in shape)
        elif kind in DTYPES:
            words += rec.word(rec.WORD_TENSOR, shape, DTYPES[kind])
        elif kind == "ScalarList" and event.name == "aten::conv2d":
            words += rec.word(rec.WORD_INTS, value)
        elif kind == "Scalar" and event.name == "aten::conv2d" and isinstance(value, int):
            words += rec.word(rec.WORD_INT, [value])
        else:
            words += rec.word(rec.WORD_NONE)
    return words


def ns(us):
    return round(us * 1000)


def record_events(events):
    """What stepflame would have recorded of these calls: one row for each name and group."""
    recording, rows = Recording(), {}
    for event in events:
        if event.is_user_annotation:
            kind, name = rec.LABEL, event.trace_name
        elif event.name.startswith(PREFIX):
            kind, name = rec.EVALUATE, event.name[len(PREFIX) :]
        else:
            kind = rec.NODE if event.scope == 1 else rec.SPAN_OP
            name = event.name + ("." + event.overload_name if event.overload_name else "")
        row = rows.setdefault((kind, name, words_of(event)), [0] * 5)
        values = 1, ns(event.cpu_time_total), ns(event.self_cpu_time_total)
        for i, value in enumerate((*values, event.cpu_memory_usage, event.self_cpu_memory_usage)):
            row[i] += value
    for (kind, name, words), (calls, total_ns, self_ns, memory, self_memory) in rows.items():
        recording.op(
            kind,
            name,
            calls,
            total_ns,
            self_ns,
            group=recording.group(words),
            self_bytes=(self_memory, 0),
            total_bytes=(memory, 0),
        )
    return recording


def averages(profiler, **group_by):
    """key_averages with times that are whole ns, as a recording's are: torch adds up floats."""
    events = profiler.events().key_averages(**group_by)
    for event in events:
        event.cpu_time_total = ns(event.cpu_time_total) / 1000
        event.self_cpu_time_total = ns(event.self_cpu_time_total) / 1000
    return events


def profiled(step, overloads=False, **options):
    config = torch._C._profiler._ExperimentalConfig(capture_overload_names=overloads)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=activities, schedule=schedule, record_shapes=True, experimental_config=config, **options
    ) as profiler:
        for _ in range(4):
            step()
            profiler.step()
    return profiler


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_real_run(tmp_path, model):
    torch.manual_seed(1)
    step = MODELS[model]()
    step()
    profiler = profiled(step, profile_memory=True, with_flops=True)
    path = record_events(profiler.events()).write(tmp_path / "run.rec")

    plain, shapes = averages(profiler), averages(profiler, group_by_input_shapes=True)
    assert any(event.flops for event in plain) or model == "recurrent"
    check(report(path, "--flops"), plain.table(sort_by="cpu_time_total", row_limit=20))
    check(report(path, "--shapes", "--flops"), shapes.table(sort_by="cpu_time_total", row_limit=20))
    for key in "self_cpu_time_total", "cpu_time", "count", "cpu_memory_usage", "self_cpu_memory_usage", "flops":
        check(report(path, "--flops", "--sort", key, "--limit", "7"), plain.table(sort_by=key, row_limit=7))
        every = report(path, "--shapes", "--flops", "--sort", key, "--limit", "0")
        check(every, shapes.table(sort_by=key, row_limit=-1))
    assert {row["name"]: row["flops"] for row in report_json(path)["ops"] if row["flops"]} == {
        event.key: event.flops for event in plain if event.flops
    }


def test_real_run_without_memory_and_flops(tmp_path):
    profiler = profiled(mlp(), overloads=True)
    path = record_events(profiler.events()).write(tmp_path / "run.rec")
    check(report(path, "--limit", "0"), averages(profiler).table(sort_by="cpu_time_total", row_limit=-1))
    apart = averages(profiler, group_by_overload_name=True)
    assert any(event.overload_name == "Tensor" for event in apart)
    check(report(path, "--overloads"), apart.table(sort_by="cpu_time_total", row_limit=20))


def test_lightning_shows_the_same_rows(tmp_path):
    pytorch = pytest.importorskip("lightning.pytorch.profilers.pytorch")
    profiler = profiled(mlp())
    path = record_events(profiler.events()).write(tmp_path / "run.rec")
    lightning = pytorch.PyTorchProfiler(activities=[torch.profiler.ProfilerActivity.CPU])
    lightning.function_events = types.SimpleNamespace(key_averages=lambda **group_by: averages(profiler))
    head, _, table = lightning.summary().partition("records\n")
    assert head == "Profiler Report\nProfile stats for: "
    check(report(path), table)


# ---- tables that no run would make ----


def magnitude(rng, digits):
    return rng.randrange(10 ** rng.randrange(1, digits + 1))


def random_name(rng, taken):
    alphabets = ["abcxyz_:", "äöüß é", "訓練ステップ", "🔥🚀a", "a\u0301e\u0308", "q{}<>&%s%n"]
    while True:
        text = "".join(rng.choice(rng.choice(alphabets)) for _ in range(magnitude(rng, 2) + 1)) or "a"
        if text not in taken:
            taken.add(text)
            return text


def random_row(rng, taken, with_overloads, with_shapes, with_sources):
    event = profiler_util.FunctionEventAvg()
    event.key, event.node_id, event.is_user_annotation = random_name(rng, taken), -1, False
    event.count = magnitude(rng, 6) + 1
    event.overload_name = rng.choice(["", "Tensor", "out", "x" * 60]) if with_overloads else ""
    event.stack = []
    if with_sources and rng.random() < 0.8:
        file, function = random_name(rng, set()) * rng.choice([1, 3]), random_name(rng, set())
        event.stack = [f"{file}({rng.randrange(1, 5000)}): {function}"]
    event.words, event.flops, event.input_shapes = b"", 0, []
    if with_shapes:
        if rng.random() < 0.4:  # an operator of which the FLOPs are known
            event.key = f"aten::mm{len(taken)}"
            a, b, c = (magnitude(rng, 5) + 1 for _ in range(3))
            event.input_shapes = [[a, b], [b, c]]
            if "aten::mm" not in taken:
                taken.add("aten::mm")
                event.key, event.flops = "aten::mm", event.count * 2 * a * b * c
        else:
            shape = lambda: [magnitude(rng, 4) for _ in range(rng.randrange(6))]  # noqa: E731
            event.input_shapes = [shape() for _ in range(rng.randrange(8))]
        event.words = b"".join(rec.word(rec.WORD_TENSOR, dims, 6) for dims in event.input_shapes)
    event.cpu_ns, event.self_ns = magnitude(rng, 14), magnitude(rng, 13)
    event.cpu_time_total, event.self_cpu_time_total = event.cpu_ns / 1000, event.self_ns / 1000
    event.cpu_memory_usage, event.self_cpu_memory_usage = (magnitude(rng, 14) * rng.choice([-1, 1]) for _ in "12")
    event.device_memory_usage, event.self_device_memory_usage = (magnitude(rng, 11) for _ in "12")
    return event


def table_with_values_below_their_titles():
    """_build_table, but for its exchange of the last two values when there are both a source and FLOPs."""
    source = inspect.getsource(profiler_util._build_table)
    flops = re.search(r" {8}if with_flops:\n {12}if evt.flops.*?(?= {8}if has_stack:)", source, re.S)
    stack = re.search(r" {8}if has_stack:\n {12}src_field.*?(?= {8}append\(row_format)", source, re.S)
    assert flops[0] + stack[0] in source
    source = source.replace(flops[0] + stack[0], stack[0] + flops[0])
    scope = dict(vars(profiler_util))
    exec(source, scope)
    return scope["_build_table"]


@pytest.mark.parametrize("seed", range(40))
def test_random_table(tmp_path, seed):
    rng = random.Random(seed)
    has = {what: rng.random() < 0.5 for what in ("overloads", "shapes", "sources", "memory", "device", "flops")}
    has["memory"] |= has["device"]  # torch has the device's columns only together with those of the CPU
    taken = set()
    events = [
        random_row(rng, taken, has["overloads"], has["shapes"], has["sources"]) for _ in range(rng.randrange(1, 50))
    ]
    recording = Recording()
    for event in events:
        event.use_device = "cuda" if has["device"] else None
        if not has["device"]:
            event.device_memory_usage = event.self_device_memory_usage = 0
        if not has["memory"]:
            event.cpu_memory_usage = event.self_cpu_memory_usage = 0
        recording.op(
            rec.SPAN_OP,
            event.key + ("." + event.overload_name if event.overload_name else ""),
            event.count,
            event.cpu_ns,
            event.self_ns,
            group=recording.group(event.words, event.stack[0] if event.stack else None),
            self_bytes=(event.self_cpu_memory_usage, event.self_device_memory_usage),
            total_bytes=(event.cpu_memory_usage, event.device_memory_usage),
        )
    path = recording.write(tmp_path / "run.rec")
    events = profiler_util.EventList(events)
    memory = any(event.cpu_memory_usage or event.self_cpu_memory_usage for event in events)
    switches = [f"--{what}" for what in ("overloads", "shapes", "flops") if has[what]]
    switches += ["--stacks"] if has["sources"] else []
    keys = ["cpu_time_total", "self_cpu_time_total", "cpu_time", "count", "cpu_memory_usage", "flops"]
    for key in rng.sample(keys, 3):
        limit = rng.choice([-1, 3, 20])
        expected = table_with_values_below_their_titles()(
            events, sort_by=key, row_limit=limit, profile_memory=memory, with_flops=has["flops"]
        )
        check(report(path, "--sort", key, "--limit", str(max(limit, 0)), *switches), expected)


# ---- what lies around the table ----


@pytest.fixture
def small(tmp_path):
    """Two ranks and a worker; two actions, and an operator in none."""
    recording = Recording()
    recording.records[1:2] = [rec.target(PID, rank=0), rec.target(PID + 1, rank=1), rec.target(9, rec.WORKER)]
    matrix = rec.word(rec.WORD_TENSOR, [2, 3], 6) + rec.word(rec.WORD_TENSOR, [3, 4], 15)
    listed = rec.word(rec.WORD_TENSOR_LIST, count=1) + rec.word(rec.WORD_TENSOR, [2], 6) + rec.word(rec.WORD_INT, [1])
    mm = recording.group(matrix, "net.py(7): forward", "net.layer")
    for pid in PID, PID + 1:
        recording.op(rec.SPAN_OP, "aten::mm", 10, 4_000_000, 3_000_000, "step", mm, pid)
        recording.op(rec.SPAN_OP, "aten::cat", 5, 500_000, 400_000, "step", recording.group(listed), pid)
        recording.op(rec.EVALUATE, "MmBackward0", 10, 9_000_000, 1_000_000, "backward", pid=pid)
        recording.op(rec.NODE, "MmBackward0", 10, 8_000_000, 5_000_000, "backward", pid=pid)
        recording.op(rec.SPAN_OP, "aten::mm", 10, 3_000_000, 2_000_000, "backward", mm, pid)
        recording.op(rec.SPAN_OP, "profiler::_record_function_enter_new", 3, 1000, 1000, pid=pid)
        recording.op(rec.LABEL, "ProfilerStep#7", 1, 20_000_000, 100_000, pid=pid)
        recording.op(rec.LABEL, "ProfilerStep#8", 1, 22_000_000, 300_000, pid=pid)
        recording.records.append(rec.op_window(pid, 0, 3, 4, START, START + 50))
        recording.records.append(rec.op_window(pid, 0, 3, 5, START, START + 10**8))
    recording.op(rec.SPAN_OP, "aten::stack", 7, 70_000, 70_000, pid=9)
    return recording.write(tmp_path / "small.rec")


def test_names_and_sums(small):
    rows = {(row["name"], row["action"]): row for row in report_json(small)["ops"]}
    assert rows.keys() == {
        ("aten::mm", "step"),
        ("aten::cat", "step"),
        (PREFIX + "MmBackward0", "backward"),
        ("MmBackward0", "backward"),
        ("aten::mm", "backward"),
        ("ProfilerStep*", None),
    }
    row = rows["aten::mm", "step"]
    assert (row["count"], row["self_cpu_us"], row["cpu_total_us"], row["cpu_avg_us"]) == (20, 6000, 8000, 400)
    assert (row["kind"], row["pid"]) == ("op", None)
    assert row["flops"] == 20 * 2 * 2 * 3 * 4
    assert (row["input_shapes"], row["source"], row["module"], row["overload"]) == (None,) * 4
    assert (row["self_cpu_memory"], row["self_device_us"], row["device_total_us"]) == (None,) * 3
    assert rows["ProfilerStep*", None]["count"] == 4
    kinds = [row["kind"] for row in report_json(small, "--sort", "name")["ops"]]
    assert kinds == ["node", "label", "op", "op", "op", "evaluate"]


def test_told_apart(small):
    rows = report_json(small, "--shapes", "--stacks", "--modules", "--action", "step")["ops"]
    assert [(row["name"], row["source"], row["module"]) for row in rows] == [
        ("aten::mm", "net.py(7): forward", "net.layer"),
        ("aten::cat", None, None),
    ]
    assert [row["input_shapes"] for row in rows] == [[[2, 3], [3, 4]], [[], []]]
    assert [row["input_dtypes"] for row in rows] == [["float32", "bfloat16"], [None, None]]
    text = report(small, "--shapes", "--stacks", "--modules", "--flops").stdout.decode().splitlines()
    assert re.search(r"Input Shapes  Module +Source Location +Total KFLOPs", text[1])
    assert any(re.search(r"\[\[2, 3\], \[3, 4\]\]  net.layer +net.py\(7\): forward + 1.920  $", line) for line in text)


def test_actions(small):
    text = report(small, "--by-action").stdout.decode()
    assert re.findall(r"^Profile stats for: (.*)$", text, re.M) == ["backward", "step", "(none)"]
    assert re.findall(r"^Self CPU time total: (.*)$", text, re.M) == ["16.000ms", "6.800ms", "800.000us"]
    alone = report(small, "--action", "step").stdout.decode()
    assert "\nSelf CPU time total: 6.800ms\n" in alone and alone[: alone.index("Self CPU time")] in text
    assert "aten::mm" not in report(small, "--action", "(none)").stdout.decode()
    nothing = report(small, "--action", "nothing")
    assert nothing.returncode == 1 and nothing.stdout == b""
    assert b'No operator was seen in an action named "nothing".' in nothing.stderr


def test_per_rank(small):
    text = report(small, "--per-rank").stdout.decode()
    heads = ["pid 4242 (main, rank 0)", "pid 4243 (main, rank 1)", "pid 9 (worker)"]
    assert re.findall(r"^pid .*$", text, re.M) == heads
    assert text.index("aten::stack") > text.index(heads[2])
    assert "rows: added over 2 processes" in report(small).stdout.decode()
    processes = report_json(small, "--per-rank")["processes"]
    assert [(p["pid"], p["role"], p["rank"], len(p["ops"])) for p in processes] == [
        (PID, "main", 0, 6),
        (PID + 1, "main", 1, 6),
        (9, "worker", None, 1),
    ]


def test_windows(small):
    text = report(small, "--limit", "2").stdout.decode()
    assert "\n4 more rows (--limit 2)\n" not in text and "\n3 more rows (--limit 2)\n" in text
    assert "operators: counted in 2 windows, 10 steps, 0.2 s, added over the processes\n" in text
    assert report_json(small)["op_windows"][1] == {
        "pid": PID + 1,
        "index": 0,
        "first_step": 3,
        "steps": 5,
        "seconds": 0.1,
        "cut": 0,
    }


def test_recording_without_operators(tmp_path):
    path = Recording().write(tmp_path / "run.rec")
    result = report(path)
    assert result.returncode == 0 and result.stdout.startswith(b"This recording has no operators:")
    assert b"stepflame record --ops" in result.stdout
    assert report_json(path)["ops"] == []
    recording = Recording()
    recording.records.append(rec.op_window(PID, 0, 0, 0, START, START + 1))
    assert report(recording.write(path)).stdout.startswith(b"No operator was seen while operators were counted.")


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    evil = "\x1b]0;title\x07\x9b2J\u202ename\r\n\t\x7f"
    recording = Recording()
    recording.op(rec.LABEL, evil, 1, 5, 5, evil + "action", recording.group(b"", evil + "net.py(1): f", evil + "module"))
    path = recording.write(tmp_path / "run.rec")
    for switches in [], ["--stacks", "--modules", "--by-action"], ["--action", evil]:
        out = report(path, *switches).stdout.decode()
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out)
    assert report(path, "--json", "--stacks").stdout.isascii() and report_json(path)["ops"][0]["name"] == evil


def test_hostile_groups(tmp_path):
    words = {
        "cut": rec.word(rec.WORD_TENSOR, [2]) + rec.word(rec.WORD_CUT),
        "list cut": rec.word(rec.WORD_TENSOR_LIST, count=9) + rec.word(rec.WORD_TENSOR, [2]) + rec.word(rec.WORD_CUT),
        "dims beyond": rec.word(rec.WORD_TENSOR, [2], count=2**32 - 1),
        "list beyond": rec.word(rec.WORD_TENSOR_LIST, count=2**32 - 1) + rec.word(rec.WORD_TENSOR, [2]),
        "two ints": rec.word(rec.WORD_INT, [1, 2]),
        "unknown": rec.word(99),
        "cut inside": rec.word(rec.WORD_CUT) + rec.word(rec.WORD_NONE),
    }
    recording = Recording()
    for name, data in words.items():
        recording.op(rec.SPAN_OP, name, 1, 5, 5, group=recording.group(data))
    for data in b"", rec.word(rec.WORD_TENSOR, [-1, 0]) * 2:
        recording.op(rec.SPAN_OP, "aten::mm", 2**63, 2**64 - 1, 2**64 - 1, "a", group=recording.group(data))
    recording.op(rec.SPAN_OP, "aten::mm", 2**63, 2**64 - 1, 1, self_bytes=(-(2**63), 2**63 - 1), group=77)
    recording.op(rec.ACTION, "no operator", 1, 1, 1)
    recording.records.append(rec.raw(rec.NUMBERS["OP_GROUP"], b"\0" * 8))
    path = recording.write(tmp_path / "run.rec")
    rows = {row["name"]: row["input_shapes"] for row in report_json(path, "--shapes")["ops"] if row["name"] in words}
    assert rows == {name: [[2]] if name == "cut" else [[]] if name == "list cut" else None for name in words}
    assert report_json(path)["lost"] == {"malformed_records": 7}
    text = report(path, "--shapes", "--flops", "--sort", "name").stdout.decode()
    assert "[[2], ...]" in text and "[[], ...]" in text


def test_asked_for_but_not_recorded(tmp_path):
    recording = Recording()
    recording.op(rec.SPAN_OP, "aten::mm", 1, 5, 5)
    path = recording.write(tmp_path / "run.rec")
    assert b"not recorded:" not in report(path).stdout
    assert b"not recorded: --shapes; record" in report(path, "--flops").stdout
    text = report(path, "--shapes", "--stacks", "--modules").stdout
    assert b"not recorded: --shapes --stacks --modules; record" in text
    recording.op(rec.NODE, "N", 1, 5, 5, group=recording.group(rec.word(rec.WORD_NONE), "a.py(1): f", "m"))
    path = recording.write(tmp_path / "run.rec")
    assert b"not recorded:" not in report(path, "--flops", "--shapes", "--stacks", "--modules").stdout


def test_switches_of_other_reports(tmp_path):
    path = Recording().write(tmp_path / "run.rec")
    for switches in ["--leaf"], ["--sort", "percent"], ["--all", "--shapes"]:
        result = report(path, *switches)
        assert result.returncode == 2 and not result.stdout
    result = subprocess.run([STEPFLAME, "report", str(path), "--shapes"], capture_output=True)
    assert result.returncode == 2 and b"--shapes is for --ops" in result.stderr
