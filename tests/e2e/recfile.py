# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Writes and reads recordings: what a record is made of is asked of `recdump --describe`, which has it of user/recording/descriptors.h; the file
format is here in struct's words, and values mean what include/records.h says.
"""

import json
import os
import re
import struct
import subprocess
import types
import zlib
from pathlib import Path

import stepblock

ROOT = Path(__file__).parents[2]
RECDUMP = Path(os.environ.get("STEPFLAME", ROOT / "build" / "stepflame")).parent / "tools" / "recdump"


class Layout:
    """Of a record type: its fields as struct has them."""

    def __init__(self, described):
        self.type, self.fields = described["type"], described["fields"]
        self.struct = struct.Struct("=" + "".join(map(self.code, self.fields)))
        assert self.struct.size == described["bytes"] - 8

    @staticmethod
    def code(field):
        if field["kind"] in ("text", "pad"):
            return "%ds" % (field["bytes"] * field["cnt"])
        letter = {1: "b", 2: "h", 4: "i", 8: "q"}[field["bytes"]]
        return "%d%s" % (field["cnt"], letter if field["kind"] == "signed" else letter.upper())

    def pack(self, **values):
        """Of fields by their names; what is not given is 0. Of an array as many as are given."""
        flat = []
        for field in self.fields:
            if field["kind"] == "pad":
                flat.append(b"")
                continue
            value = values.pop(field["name"], b"" if field["kind"] == "text" else 0)
            if field["cnt"] > 1:
                value = list(value or ())
                flat += value + [0] * (field["cnt"] - len(value))
            else:
                flat.append(value.encode() if isinstance(value, str) else value)
        assert not values, values
        return self.struct.pack(*flat)

    def unpack(self, payload):
        """A namespace of the fields; `tail` is what is behind them."""
        flat, out = iter(self.struct.unpack_from(payload)), {"tail": payload[self.struct.size :]}
        for field in self.fields:
            values = [next(flat) for _ in range(1 if field["kind"] in ("text", "pad") else field["cnt"])]
            if field["kind"] == "text":
                out[field["name"]] = values[0].split(b"\0")[0].decode(errors="replace")
            elif field["kind"] != "pad":
                out[field["name"]] = values if field["cnt"] > 1 else values[0]
        return types.SimpleNamespace(**out)


DESCRIBED = subprocess.run([RECDUMP, "--describe"], check=True, capture_output=True, text=True).stdout
LAYOUTS = {type_name: Layout(described) for type_name, described in json.loads(DESCRIBED).items()}
NUMBERS = {type_name: layout.type for type_name, layout in LAYOUTS.items()}  # enum rec_type
TYPES = {number: type_name for type_name, number in NUMBERS.items()}
ACTION, LABEL, FORWARD, BACKWARD, USER, SPAN_OP, EVALUATE, NODE, STEP, GC, COMM, SYNC, SAVE, VALIDATION = range(1, 15)
JIT, COMPILE, AWAIT, TRANSFER, EXECUTE = range(15, 20)
CPU, WAIT = 1, 2
CAUSES = ["", "run_queue", "lock", "gil", "disk_read", "disk_write", "fsync", "page_fault", "sleep", "child_wait"]
CAUSES += ["pipe", "socket", "poll", "unknown", "pauses"]
WORD_NONE, WORD_TENSOR, WORD_TENSOR_LIST, WORD_INTS, WORD_INT, WORD_OPAQUE, WORD_CUT = range(7)
MAIN, CHILD, WORKER = range(3)
UTF8, LATIN1, UCS2, UCS4 = 0, 1, 2, 4
CODECS = {UTF8: "utf-8", LATIN1: "latin-1", UCS2: "utf-16-le", UCS4: "utf-32-le"}
BUCKETS = 40
VERSION = 5
OLDEST = 4  # version that can be read
BYTE_ORDER = 0x01020304
CHUNK_BYTES = 64 * 1024
GPU_HEADER = (ROOT / "include/gpu.h").read_text()
# enum gpu_api: the functions in the order of the table there
GPU_APIS = {n: i for i, n in enumerate(re.findall(r"^\tX\((\w+), [A-Z_]+, \d", GPU_HEADER, re.M), 1)}
KERNEL, COPY, SET, GRAPH, GPU_SYNC, GPU_API_CALL, OVERHEAD = range(1, 8)
NO_DIRECTION, HTOD, DTOH, DTOD, HTOH, UNKNOWN_DIRECTION = range(6)
GPU_UNKNOWN = 0xFFFFFFFF
WINDOW_ENDS = ["open", "steps", "recording", "exit", "busy", "failed", "late"]


def record(type_name, tail=b"", header_flags=0, **values):
    """One of that type, with these fields, and what is behind them."""
    return raw(NUMBERS[type_name], LAYOUTS[type_name].pack(**values) + tail, header_flags)


def raw(number, payload, flags=0):
    payload += b"\0" * (-len(payload) % 8)
    return struct.pack("=HHI", number, flags, 8 + len(payload)) + payload


def host(version="0.1.0", hostname="host", kernel="6.12.0", cpus=2, monotonic_ns=1, realtime_ns=2):
    names = {"version": version, "hostname": hostname, "kernel": kernel}
    return record("HOST", monotonic_ns=monotonic_ns, realtime_ns=realtime_ns, cpus=cpus, **names)


def target(pid, role=MAIN, rank=-1, parent=0, python="3.11.2", torch="2.6.0+cpu", jax="", command="python train.py"):
    versions = {"python": python, "torch": torch, "jax": jax}
    return record("TARGET", pid=pid, nspid=pid, role=role, rank=rank, parent_pid=parent, command=command, **versions)


def name(ident, text, encoding=UTF8, cut=0):
    """text: str, or the bytes as they are."""
    data = text if isinstance(text, bytes) else text.encode(CODECS[encoding])
    return record("NAME", data, id=ident, encoding=encoding, cut=cut, bytes=len(data), whole_bytes=len(data))


def narrowest_name(ident, text):
    """As CPython stores a str: in the narrowest of its kinds that holds all characters."""
    top = max(map(ord, text), default=0)
    return name(ident, text, LATIN1 if top < 0x100 else UCS2 if top < 0x10000 else UCS4)


def proc(event, time_ms, parent, pid, status=0, comm="pt_data_worker"):
    """event: 1 fork, 2 exec, 3 exit; status: as wait(2) has it."""
    who = {"pid": pid, "parent_pid": parent, "comm": comm}
    return record("PROC", time_ns=time_ms * 1000000, event=event, exit_code=status, **who)


def window(start_ns, end_ns, steps=0, rule=0):
    return record("WINDOW", start_ns=start_ns, end_ns=end_ns, steps=steps, step_rule=rule)


def agg(pid, kind, ident, calls, total_ns, parent=0, self_ns=None, min_ns=0, max_ns=0, first_ns=0, hist=None):
    key = {"pid": pid, "kind": kind, "name": ident, "parent": parent}
    times = {"total_ns": total_ns, "self_ns": total_ns if self_ns is None else self_ns, "min_ns": min_ns, "max_ns": max_ns}
    return record("AGG", calls=calls, first_ns=first_ns, hist=hist, **key, **times)


def counter(counter_name, value):
    return record("COUNTER", value=value, name=counter_name)


def cost(hits, busiest_hits, hit_ns, own_cpu_ns, own_rss_bytes, calls=0, call_ns=0, sampler_ns=0):
    own = {"own_cpu_ns": own_cpu_ns, "own_rss_bytes": own_rss_bytes}
    return record("COST", hits=hits, busiest_hits=busiest_hits, hit_ns=hit_ns, busiest_calls=calls, call_ns=call_ns, busiest_sampler_ns=sampler_ns, **own)


def note(text):
    data = text.encode()
    return record("NOTE", data, bytes=len(data))


def op(pid, kind, ident, calls, total_ns, self_ns, action=0, group=0, self_bytes=(0, 0), total_bytes=(0, 0)):
    """Bytes: (CPU, device)."""
    key = {"pid": pid, "kind": kind, "name": ident, "action": action, "group": group}
    return record("OP", calls=calls, total_ns=total_ns, self_ns=self_ns, self_bytes=self_bytes, total_bytes=total_bytes, **key)


def word(tag, values=(), dtype=0, count=None):
    """The bytes of an argument: its word and the values behind it."""
    count = len(values) if count is None else count
    return struct.pack(f"=Q{len(values)}q", tag | dtype << 8 | count << 32, *values)


def op_group(ident, words=b"", source=0, module=0):
    return record("OP_GROUP", words, id=ident, source=source, module=module, word_cnt=len(words) // 8)


def op_window(pid, index, first_step, steps, start_ns, end_ns, cut=0):
    which = {"pid": pid, "index": index, "first_step": first_step, "steps": steps}
    return record("OP_WINDOW", start_ns=start_ns, end_ns=end_ns, cut=cut, **which)


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
    return record("SPANS", payload, pid=pid, tid=tid, span_cnt=len(rows), bytes=len(payload), base_ns=base_ns)


def code(ident, file, code_name, first_line=1, lines=()):
    """file, code_name: name ids; lines: (offset, line)."""
    data = b"".join(struct.pack("=Ii", *line) for line in lines)
    return record("CODE", data, id=ident, file=file, name=code_name, first_line=first_line, line_cnt=len(lines))


def stack(ident, frames, cut=0):
    """frames: (code id, offset), the innermost first."""
    return record("STACK", b"".join(struct.pack("=QII", *frame, 0) for frame in frames), id=ident, frame_cnt=len(frames), cut=cut)


def around(kind, name_id, stack_id, nested=0):
    return record("AROUND", name=name_id, stack=stack_id, kind=kind, nested=nested)


def path(ident, path_spans):
    """path_spans: (kind, name id), or (kind, name id, group id), the outermost first."""
    data = b"".join(struct.pack("=QII", name_id, kind, sum(group) & 0xFFFFFFFF) for kind, name_id, *group in path_spans)
    return record("PATH", data, id=ident, span_cnt=len(path_spans))


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
    ran=0,
):
    """cause: one of CAUSES; waker: (pid, tid); file_id: name id; ran: the pid of who had the CPU."""
    return record(
        "SAMPLE",
        time_ns=time_ns,
        weight_ns=weight_ns,
        stack=stack_id,
        path=path_id,
        native=native,
        kernel=kernel,
        pid=pid,
        tid=tid,
        step=step,
        waits=waits if kind == WAIT else 0,
        syscall=syscall,
        kind=kind,
        cause=CAUSES.index(cause or ""),
        waker_pid=waker[0],
        waker_tid=waker[1],
        file=file_id,
        ran_pid=ran,
    )


def calls(pid, code_id, path_id, call_cnt, primitive_calls, self_ns, total_ns):
    figures = {"calls": call_cnt, "primitive_calls": primitive_calls, "self_ns": self_ns, "total_ns": total_ns}
    return record("CALLS", pid=pid, code=code_id, path=path_id, **figures)


RESTED = 2  # enum rec_flag


def boundary(pid, tid, index, time_ns, phases=(), rule=1, serial=None, forward=0, flags=0):
    """The end of a step; phases: ns by enum phase; serial: as if the thread made boundaries by no other rule."""
    serial = (index + 1 if serial is None else serial) & 0xFFFFFFFF
    which = {"pid": pid, "tid": tid, "index": index, "rule": rule, "serial": serial}
    return record("STEP", header_flags=flags, time_ns=time_ns, forward_ns=forward, phase_ns=phases, **which)


def rest(pid, count, before_ns, from_ns, to_ns=0, budget_micros=10000):
    """The count-th rest of a process; before_ns: how long the others were together."""
    return record("REST", pid=pid, cnt=count, before_ns=before_ns, from_ns=from_ns, to_ns=to_ns, budget_micros=budget_micros)


def syscall(pid, number, call_cnt, errors=0, total_ns=0, size=0, unfinished=0):
    """number: -1 of one that is not known."""
    number = struct.unpack("=i", struct.pack("=I", number & 0xFFFFFFFF))[0]
    figures = {"calls": call_cnt, "errors": errors, "total_ns": total_ns, "bytes": size, "unfinished": unfinished}
    return record("SYSCALL", pid=pid, number=number, **figures)


def file(pid, dev, inode, ident, reads=0, writes=0, read_bytes=0, written_bytes=0, total_ns=0, disk=(0, 0, 0), flags=0):
    """disk: reads, page faults and bytes."""
    figures = {"reads": reads, "writes": writes, "read_bytes": read_bytes, "written_bytes": written_bytes, "total_ns": total_ns}
    figures.update(zip(("disk_reads", "faults", "disk_bytes"), disk))
    return record("FILE", pid=pid, dev=dev, inode=inode, name=ident, last_ns=1, flags=flags, **figures)


def pipe(pid, inode, writes=0, messages=0, first_ns=0, last_ns=0, active=(0, 0)):
    """active: ns and messages."""
    figures = {"writes": writes, "messages": messages, "active_ns": active[0], "active_cnt": active[1]}
    return record("PIPE", pid=pid, dev=13, inode=inode, first_ns=first_ns, last_ns=last_ns, **figures)


def gpu(pid, tier, cupti_ns=0, lost=0, version=0, why=""):
    return record("GPU", pid=pid, tier=tier, cupti_ns=cupti_ns, lost=lost, cupti_version=version, why=why)


def gpu_key(pid, api, direction=0, dtype=0, action=0, op=0, target=0):
    """api: a name; target: the kernel's name id, or the communicator."""
    which = {"pid": pid, "api": GPU_APIS.get(api, api), "direction": direction, "dtype": dtype}
    return dict(which, action=action, op=op, object=target)


def gpu_calls(key, call_cnt, total_ns=0, max_ns=0, size=0):
    """key: gpu_key()."""
    return record("GPU_CALLS", calls=call_cnt, total_ns=total_ns, max_ns=max_ns, bytes=size, **key)


def gpu_call(key, tid, start_ns, duration_ns, size=0, path_id=0, step=0):
    times = {"start_ns": start_ns, "duration_ns": duration_ns}
    return record("GPU_CALL", bytes=size, path=path_id, tid=tid, step=step, **times, **key)


def gpu_step(pid, from_ns, time_ns, launches=0, copies=0, copied_bytes=0, api_ns=0, sync_ns=0):
    figures = {"launches": launches, "copies": copies, "copied_bytes": copied_bytes, "api_ns": api_ns, "sync_ns": sync_ns}
    return record("GPU_STEP", time_ns=time_ns, from_ns=from_ns, pid=pid, **figures)


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
        "GPU_ACTIVITY",
        start_ns=start_ns,
        duration_ns=duration_ns,
        name=ident,
        bytes=size,
        pid=pid,
        tid=tid,
        correlation=correlation,
        kind=kind,
        direction=direction,
        device=device,
        context=context,
        stream=stream,
        detail=detail,
    )


def gpu_api_call(pid, tid, start_ns, duration_ns, ident, correlation, driver=0):
    """A call of the CPU as CUPTI tells it."""
    detail = (0, 1, driver, 0, 0, 0, 0, 0)
    return gpu_activity(pid, GPU_API_CALL, start_ns, duration_ns, ident, correlation, tid=tid, detail=detail)


def gpu_device(pid, device, memory=1 << 34, multiprocessors=132, compute=(9, 0), device_name="NVIDIA H100"):
    what = {"memory_bytes": memory, "multiprocessors": multiprocessors, "compute": compute[0] << 16 | compute[1]}
    return record("GPU_DEVICE", pid=pid, device=device, name=device_name, **what)


def gpu_window(pid, index, start_ns, end_ns, end="recording", error=0):
    """end: one of WINDOW_ENDS."""
    end = WINDOW_ENDS.index(end)
    return record("GPU_WINDOW", pid=pid, index=index, start_ns=start_ns, end_ns=end_ns, end=end, error=error)


USAGE_FIELDS = ("busy_percent", "memory_busy_percent", "power_mw", "temperature_c", "sm_mhz")


def gpu_usage(device, time_ns, used, memory, values=(GPU_UNKNOWN,) * 5, device_name="NVIDIA H100"):
    """values: of USAGE_FIELDS."""
    which = {"device": device, "time_ns": time_ns, "memory_used_bytes": used, "memory_bytes": memory, "name": device_name}
    return record("GPU_USAGE", **which, **dict(zip(USAGE_FIELDS, values)))


def header(version=VERSION, byte_order=BYTE_ORDER):
    return struct.pack("=8sIIII", b"stepflam", version, byte_order, 24, 0)


def chunk(data, magic=b"chnk"):
    return struct.pack("=4sIII", magic, len(data), zlib.crc32(data), 0) + data


def mark(data):
    """A chunk with which a snapshot ends."""
    return chunk(data, b"send")


def recording(records, version=VERSION):
    """The bytes of a whole file, with which a snapshot ends."""
    out, pending = [header(version)], bytearray()
    for one in records:
        if pending and len(pending) + len(one) > CHUNK_BYTES:
            out.append(chunk(pending))
            pending = bytearray()
        pending += one
    if pending:
        out.append(mark(pending))
    return b"".join(out)


def chunk_ends(path):
    """Where the header ends, and where each chunk does."""
    data = path.read_bytes()
    at = struct.unpack_from("=8sIIII", data)[3]
    yield at
    while at < len(data):
        at += 16 + struct.unpack_from("=II", data, at)[1]
        yield at


def snapshot_ends(path):
    """Where each chunk ends that ends a snapshot (user/recording/chunk.h)."""
    data, ends = path.read_bytes(), list(chunk_ends(path))
    for start, end in zip(ends, ends[1:]):
        if data[start : start + 4] == b"send":
            yield end


def changed(path, change):
    """The bytes of a recording with change() of what each chunk holds, which is as long as that."""
    data, ends = path.read_bytes(), list(chunk_ends(path))
    out = data[: ends[0]]
    for start, end in zip(ends, ends[1:]):
        magic, _, _, plain_size = struct.unpack_from("=4sIII", data, start)
        inside = data[start + 16 : end]
        inside = zlib.compress(change(zlib.decompress(inside))) if plain_size else change(inside)
        out += struct.pack("=4sIII", magic, len(inside), zlib.crc32(inside), plain_size) + inside
    return out


def read_packed(path):
    """(number of the type, bytes behind the header) of each record in a recording, as they are there."""
    data = path.read_bytes()
    ends = list(chunk_ends(path))
    for start, end in zip(ends, ends[1:]):
        plain_size = struct.unpack_from("=IIII", data, start)[3]
        chunk_data = data[start + 16 : end]
        plain = zlib.decompress(chunk_data) if plain_size else chunk_data
        while plain:
            number, _, size = struct.unpack_from("=HHI", plain)
            yield number, plain[8:size]
            plain = plain[size:]


def read_raw(path):
    """The same, with steps unpacked."""
    for number, payload in read_packed(path):
        if TYPES.get(number) == "STEPS":
            for step in stepblock.unpack(LAYOUTS["STEPS"].unpack(payload)):
                yield NUMBERS["STEP"], LAYOUTS["STEP"].pack(**step)
        else:
            yield number, payload


def read_records(path):
    """(name of the type, Layout.unpack's namespace) of each record in a recording."""
    for number, payload in read_raw(path):
        yield TYPES[number], LAYOUTS[TYPES[number]].unpack(payload)


def text_of(record_fields):
    """Of a NAME or a NOTE."""
    codec = CODECS[getattr(record_fields, "encoding", UTF8)]
    return record_fields.tail[: record_fields.bytes].decode(codec)


def read_calls(path):
    """{(pid, file, line, name): [calls, primitive calls, self ns, total ns]} of CALLS, over all paths."""
    texts, codes, rows = {}, {}, {}
    for kind, row in read_records(path):
        if kind == "NAME":
            texts[row.id] = text_of(row)
        elif kind == "CODE":
            codes[row.id] = (texts[row.file], row.first_line, texts[row.name])
        elif kind == "CALLS":
            rows[row.pid, row.code, row.path] = [row.calls, row.primitive_calls, row.self_ns, row.total_ns]
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
