# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writes recordings without stepflame's own code: include/records.h and the file format in struct's words."""

import re
import struct
import zlib
from pathlib import Path

HOST, TARGET, NAME, PROC, WINDOW, AGG, COUNTER, COST, NOTE, OP, OP_GROUP, OP_WINDOW, SPANS = range(1, 14)
SPAN, CODE, STACK, PATH, SAMPLE, INTERVAL, MODULES, CALLS, STEP_END, SYSCALL, FILE = range(14, 25)
GPU, GPU_CALLS, GPU_CALL, GPU_STEP, GPU_ACTIVITY, GPU_DEVICE, GPU_USAGE, _, GPU_WINDOW = range(25, 34)
ACTION, LABEL, FORWARD, BACKWARD, USER, SPAN_OP, EVALUATE, NODE, STEP, GC, COMM, SYNC, SAVE, VALIDATION = range(1, 15)
JIT, COMPILE, AWAIT, TRANSFER, EXECUTE = range(15, 20)
PHASES = 12
CPU, WAIT = 1, 2
CAUSES = ["", "run_queue", "lock", "gil", "disk_read", "disk_write", "fsync", "page_fault", "sleep", "child_wait"]
CAUSES += ["pipe", "socket", "poll", "unknown"]
WORD_NONE, WORD_TENSOR, WORD_TENSOR_LIST, WORD_INTS, WORD_INT, WORD_OPAQUE, WORD_CUT = range(7)
MAIN, CHILD, WORKER = range(3)
UTF8, LATIN1, UCS2, UCS4 = 0, 1, 2, 4
BUCKETS = 40
VERSION = 2
BYTE_ORDER = 0x01020304
CHUNK_BYTES = 64 * 1024
GPU_HEADER = (Path(__file__).parents[2] / "include/gpu.h").read_text()
# enum gpu_api: the functions in the order of the table there
GPU_APIS = {n: i for i, n in enumerate(re.findall(r"^\tX\((\w+), [A-Z_]+, \d", GPU_HEADER, re.M), 1)}
KERNEL, COPY, SET, GRAPH, GPU_SYNC, GPU_API_CALL, OVERHEAD = range(1, 8)
NO_DIRECTION, HTOD, DTOH, DTOD, HTOH, UNKNOWN_DIRECTION = range(6)
GPU_UNKNOWN = 0xFFFFFFFF
WINDOW_ENDS = ["open", "steps", "recording", "exit", "busy", "failed", "late"]


def record(kind, payload):
    payload += b"\0" * (-len(payload) % 8)
    return struct.pack("=HHI", kind, 0, 8 + len(payload)) + payload


def host(version="0.1.0", hostname="host", kernel="6.12.0", cpus=2, monotonic_ns=1, realtime_ns=2):
    return record(
        HOST,
        struct.pack("=QQII32s64s64s", monotonic_ns, realtime_ns, cpus, 0, version.encode(), hostname.encode(), kernel.encode()),
    )


def target(pid, role=MAIN, rank=-1, parent=0, python="3.11.2", torch="2.6.0+cpu", jax="", command="python train.py"):
    return record(
        TARGET,
        struct.pack(
            "=IIIiII16s32s16s128s",
            pid,
            pid,
            role,
            rank,
            parent,
            0,
            python.encode(),
            torch.encode(),
            jax.encode(),
            command.encode(),
        ),
    )


def name(ident, text, encoding=UTF8, cut=0):
    """text: str, or the bytes as they are."""
    codec = {UTF8: "utf-8", LATIN1: "latin-1", UCS2: "utf-16-le", UCS4: "utf-32-le"}[encoding]
    data = text if isinstance(text, bytes) else text.encode(codec)
    return record(NAME, struct.pack("=QBBHI", ident, encoding, cut, len(data), len(data)) + data)


def narrowest_name(ident, text):
    """As CPython stores a str: in the narrowest of its kinds that holds all characters."""
    top = max(map(ord, text), default=0)
    return name(ident, text, LATIN1 if top < 0x100 else UCS2 if top < 0x10000 else UCS4)


def proc(event, time_ms, parent, pid, status=0):
    """event: 1 fork, 2 exec, 3 exit; status: as wait(2) has it."""
    return record(PROC, struct.pack("=QIIIi16s", time_ms * 1000000, event, pid, parent, status, b"pt_data_worker"))


def window(start_ns, end_ns, steps=0, rule=0):
    return record(WINDOW, struct.pack("=QQQII", start_ns, end_ns, steps, rule, 0))


def agg(pid, kind, ident, calls, total_ns, parent=0, self_ns=None, min_ns=0, max_ns=0, first_ns=0):
    self_ns = total_ns if self_ns is None else self_ns
    return record(
        AGG,
        struct.pack("=IIQQ", pid, kind, ident, parent)
        + struct.pack("=6Q", calls, total_ns, self_ns, min_ns, max_ns, first_ns)
        + struct.pack(f"={BUCKETS}I", *[0] * BUCKETS),
    )


def counter(counter_name, value):
    return record(COUNTER, struct.pack("=Q32s", value, counter_name.encode()))


def cost(hits, busiest_hits, hit_ns, own_cpu_ns, own_rss_bytes, calls=0, call_ns=0):
    return record(COST, struct.pack("=10Q", hits, busiest_hits, hit_ns, 0, 0, own_cpu_ns, own_rss_bytes, 0, calls, call_ns))


def note(text):
    data = text.encode()
    return record(NOTE, struct.pack("=II", len(data), 0) + data)


def op(pid, kind, ident, calls, total_ns, self_ns, action=0, group=0, self_bytes=(0, 0), total_bytes=(0, 0)):
    """Bytes: (CPU, device)."""
    return record(
        OP,
        struct.pack("=IIQQQ", pid, kind, ident, action, group)
        + struct.pack("=3Q4q", calls, total_ns, self_ns, *self_bytes, *total_bytes),
    )


def word(tag, values=(), dtype=0, count=None):
    """The bytes of an argument: its word and the values behind it."""
    count = len(values) if count is None else count
    return struct.pack(f"=Q{len(values)}q", tag | dtype << 8 | count << 32, *values)


def op_group(ident, words=b"", source=0, module=0):
    return record(OP_GROUP, struct.pack("=QQQII", ident, source, module, len(words) // 8, 0) + words)


def op_window(pid, index, first_step, steps, start_ns, end_ns, cut=0):
    return record(OP_WINDOW, struct.pack("=IIQQQQQ", pid, index, first_step, steps, start_ns, end_ns, cut))


def leb128(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def folded(value):
    value = (value + 2**63) % 2**64 - 2**63
    return leb128(value * 2 if value >= 0 else -value * 2 - 1)


def span(kind, ident, start_ns, duration_ns, depth=0, sequence=-1, group=0):
    return (kind, ident, start_ns, duration_ns, depth, sequence, group)


def spans(pid, tid, rows, base_ns=0):
    """A record of at most 4096 rows of span()."""

    def dictionary(values):
        ids = list(dict.fromkeys(values))
        return leb128(len(ids)) + struct.pack(f"={len(ids)}Q", *ids) + b"".join(leb128(ids.index(v)) for v in values)

    def differences(values, before=0):
        return b"".join(folded(v - b) for v, b in zip(values, [before, *values]))

    kinds, names, starts, durations, depths, sequences, groups = zip(*rows)
    ends = [base_ns] + [start + duration for start, duration in zip(starts, durations)]
    plain = b"".join(leb128(kind << 2 | (sequence != -1) << 1) for kind, sequence in zip(kinds, sequences))
    plain += b"".join(folded(start - end) for start, end in zip(starts, ends))
    plain += b"".join(map(leb128, durations))
    plain += dictionary(names) + dictionary(groups)
    plain += differences(depths) + differences([s for s in sequences if s != -1])
    payload = zlib.compress(plain)
    return record(SPANS, struct.pack("=IIIIQ", pid, tid, len(rows), len(payload), base_ns) + payload)


def code(ident, file, code_name, first_line=1, lines=()):
    """file, code_name: name ids; lines: (offset, line)."""
    data = struct.pack("=QQQQIIII", ident, file, code_name, 0, 0, first_line, len(lines), 0)
    return record(CODE, data + b"".join(struct.pack("=Ii", *line) for line in lines))


def stack(ident, frames, cut=0):
    """frames: (code id, offset), the innermost first."""
    return record(
        STACK, struct.pack("=QII", ident, len(frames), cut) + b"".join(struct.pack("=QII", *frame, 0) for frame in frames)
    )


def path(ident, path_spans):
    """path_spans: (kind, name id), or (kind, name id, group id), the outermost first."""
    data = b"".join(struct.pack("=QII", name_id, kind, sum(group) & 0xFFFFFFFF) for kind, name_id, *group in path_spans)
    return record(PATH, struct.pack("=QII", ident, len(path_spans), 0) + data)


def sample(
    pid,
    tid,
    kind,
    time_ns,
    weight_ns,
    stack_id=0,
    path_id=0,
    cause=None,
    native=0,
    kernel=0,
    step=0,
    waits=1,
    syscall=-1,
    waker=(0, 0),
    file_id=0,
):
    """cause: one of CAUSES; waker: (pid, tid); file_id: name id."""
    return record(
        SAMPLE,
        struct.pack(
            "=6Q4IhBB3IQ",
            time_ns,
            weight_ns,
            stack_id,
            path_id,
            native,
            kernel,
            pid,
            tid,
            step,
            waits if kind == WAIT else 0,
            syscall,
            kind,
            CAUSES.index(cause or ""),
            *waker,
            0,
            file_id,
        ),
    )


def calls(pid, code_id, path_id, call_cnt, primitive_calls, self_ns, total_ns):
    return record(
        CALLS, struct.pack("=IIQQQQQQ", pid, 0, code_id, path_id, call_cnt, primitive_calls, self_ns, total_ns)
    )


def boundary(pid, tid, index, time_ns, phases=(), rule=1):
    """The end of a step; phases: ns by enum phase."""
    phases = [*phases, *[0] * (PHASES - len(phases))]
    return record(STEP_END, struct.pack("=QQIIII%dQ" % PHASES, time_ns, index, pid, rule, tid, 0, *phases))


def syscall(pid, number, call_cnt, errors=0, total_ns=0, size=0, unfinished=0):
    return record(SYSCALL, struct.pack("=II5Q", pid, number, call_cnt, errors, total_ns, size, unfinished))


def file(pid, dev, inode, ident, reads=0, writes=0, read_bytes=0, written_bytes=0, total_ns=0, disk=(0, 0, 0), flags=0):
    """disk: reads, page faults and bytes."""
    values = (ident, reads, writes, read_bytes, written_bytes, total_ns, *disk, 1)
    return record(FILE, struct.pack("=IIQ10QII", pid, dev, inode, *values, flags, 0))


def gpu(pid, tier, cupti_ns=0, lost=0, version=0, why=""):
    return record(GPU, struct.pack("=IIQQII96s", pid, tier, cupti_ns, lost, version, 0, why.encode()))


def gpu_key(pid, api, direction=0, dtype=0, action=0, op=0, target=0):
    """api: a name; target: the kernel's name id, or the communicator."""
    return struct.pack("=IHBBQQQ", pid, GPU_APIS.get(api, api), direction, dtype, action, op, target)


def gpu_calls(key, call_cnt, total_ns=0, max_ns=0, size=0):
    """key: gpu_key()."""
    return record(GPU_CALLS, key + struct.pack("=4Q", call_cnt, total_ns, max_ns, size))


def gpu_call(key, tid, start_ns, duration_ns, size=0, path_id=0, step=0):
    return record(GPU_CALL, struct.pack("=QQ", start_ns, duration_ns) + key + struct.pack("=QQII", size, path_id, tid, step))


def gpu_step(pid, index, time_ns, launches=0, copies=0, copied_bytes=0, api_ns=0, sync_ns=0):
    return record(
        GPU_STEP, struct.pack("=QQII5Q", time_ns, index, pid, 0, launches, copies, copied_bytes, api_ns, sync_ns)
    )


def gpu_activity(
    pid,
    kind,
    start_ns,
    duration_ns,
    ident=0,
    correlation=0,
    tid=0,
    size=0,
    direction=0,
    device=0,
    context=1,
    stream=7,
    detail=(0,) * 8,
):
    """ident: name id."""
    return record(
        GPU_ACTIVITY,
        struct.pack(
            "=4Q3IHH4I8I",
            start_ns,
            duration_ns,
            ident,
            size,
            pid,
            tid,
            correlation,
            kind,
            direction,
            device,
            context,
            stream,
            0,
            *detail,
        ),
    )


def gpu_api_call(pid, tid, start_ns, duration_ns, ident, correlation, driver=0):
    """A call of the CPU as CUPTI tells it."""
    detail = (0, 1, driver, 0, 0, 0, 0, 0)
    return gpu_activity(pid, GPU_API_CALL, start_ns, duration_ns, ident, correlation, tid=tid, detail=detail)


def gpu_device(pid, device, memory=1 << 34, multiprocessors=132, compute=(9, 0), device_name="NVIDIA H100"):
    return record(
        GPU_DEVICE,
        struct.pack("=IIQII64s", pid, device, memory, multiprocessors, compute[0] << 16 | compute[1], device_name.encode()),
    )


def gpu_window(pid, index, start_ns, end_ns, end="recording", error=0):
    """end: one of WINDOW_ENDS."""
    return record(GPU_WINDOW, struct.pack("=IIQQII", pid, index, start_ns, end_ns, WINDOW_ENDS.index(end), error))


def gpu_usage(device, time_ns, used, memory, values=(GPU_UNKNOWN,) * 5, device_name="NVIDIA H100"):
    """values: % busy, % of memory busy, mW, degrees Celsius, MHz."""
    return record(GPU_USAGE, struct.pack("=QQQ6I64s", time_ns, used, memory, device, *values, device_name.encode()))


def header(version=VERSION, byte_order=BYTE_ORDER):
    return struct.pack("=8sIIII", b"stepflam", version, byte_order, 24, 0)


def chunk(data):
    return struct.pack("=4sIII", b"chnk", len(data), zlib.crc32(data), 0) + data


def recording(records, version=VERSION):
    """The bytes of a whole file."""
    out, pending = header(version), b""
    for one in records:
        if pending and len(pending) + len(one) > CHUNK_BYTES:
            out, pending = out + chunk(pending), b""
        pending += one
    return out + (chunk(pending) if pending else b"")


def read_records(path):
    """(type, payload) of each record in a recording, by the same words as above."""
    data = path.read_bytes()
    at = struct.unpack_from("=8sIIII", data)[3]
    while at < len(data):
        _, size, _, plain_size = struct.unpack_from("=IIII", data, at)
        chunk_data = data[at + 16 : at + 16 + size]
        at += 16 + size
        plain = zlib.decompress(chunk_data) if plain_size else chunk_data
        while plain:
            kind, _, size = struct.unpack_from("=HHI", plain)
            yield kind, plain[8:size]
            plain = plain[size:]


def read_calls(path):
    """{(pid, file, line, name): [calls, primitive calls, self ns, total ns]} of REC_CALLS, over all paths."""
    texts, codes, rows = {}, {}, {}
    for kind, payload in read_records(path):
        if kind == NAME:
            ident, encoding, _, size, _ = struct.unpack_from("=QBBHI", payload)
            codec = {UTF8: "utf-8", LATIN1: "latin-1", UCS2: "utf-16-le", UCS4: "utf-32-le"}[encoding]
            texts[ident] = payload[16 : 16 + size].decode(codec)
        elif kind == CODE:
            ident, file, function, _, _, line = struct.unpack_from("=QQQQII", payload)
            codes[ident] = (texts[file], line, texts[function])
        elif kind == CALLS:
            pid, _, code, around, *values = struct.unpack("=IIQQ4Q", payload)
            rows[pid, code, around] = values
    summed = {}
    for (pid, code, _), values in rows.items():
        total = summed.setdefault((pid, *codes[code]), [0, 0, 0, 0])
        total[:] = map(sum, zip(total, values))
    return summed


def interned(records):
    """The function that gives the id of a value of a kind; its record is made when it is first asked for. 0: of nothing."""
    ids = {}

    def intern(kind, value, make):
        if value is None or value == ():
            return 0
        if (kind, value) not in ids:
            ids[kind, value] = ident = len(ids) + 1
            records.append(make(ident, value))
        return ids[kind, value]

    return intern
