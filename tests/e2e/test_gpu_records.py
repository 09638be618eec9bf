# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
CUPTI's activity records as the injection library reads them, against each version of CUPTI's headers that is at hand: what
it reads of a record lies where it does in the oldest struct, in all the later ones.
"""

import os
import re
import subprocess
from pathlib import Path

import helpers
import pytest

DEVICE = ["start", "end", "correlationId", "deviceId", "contextId", "streamId"]
KERNEL = ["name", "staticSharedMemory", "dynamicSharedMemory", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "graphNodeId"]
# family: (the oldest that is read, its fields that are)
FAMILIES = {
    "Kernel": (5, DEVICE + KERNEL),
    "Memcpy": (4, [*DEVICE, "copyKind", "bytes"]),
    "MemcpyPtoP": (2, [*DEVICE, "bytes"]),
    "Memset": (2, [*DEVICE, "bytes"]),
    "Synchronization": (1, ["start", "end", "correlationId", "contextId", "streamId", "type", "cudaEventId"]),
    "Overhead": (1, ["start", "end", "overheadKind"]),
    "GraphTrace": (1, [*DEVICE, "graphId"]),
    "API": (1, ["start", "end", "correlationId", "cbid", "threadId", "returnValue"]),
}
# Kinds are numbers in what CUPTI writes; and the layout of the oldest structs is that of CUDA 11.0.
KINDS = {"MEMCPY": 1, "MEMSET": 2, "KERNEL": 3, "DRIVER": 4, "RUNTIME": 5, "CONCURRENT_KERNEL": 10, "OVERHEAD": 17, "MEMCPY2": 22, "SYNCHRONIZATION": 38, "GRAPH_TRACE": 51}
OFFSETS = {"Kernel5.start": 16, "Kernel5.correlationId": 92, "Kernel5.name": 104, "Memcpy4.bytes": 8, "Memset2.bytes": 8, "API.correlationId": 32}


def headers():
    """Folders with cupti_activity.h: of the environment, of CUDA's toolkit, and of STEPFLAME_CUPTI_HEADERS (DIR...)."""
    places = [Path(helpers.PYTHON).parents[1] / "lib", *Path("/usr/local").glob("cuda*/include")]
    places += [Path(place) for place in os.environ.get("STEPFLAME_CUPTI_HEADERS", "").split()]
    found = {path.parent.resolve() for place in places for path in place.glob("**/cupti_activity.h")}
    return sorted(found)


def structs(folder):
    text = "".join(path.read_text(errors="replace") for path in sorted(folder.glob("cupti_activity*.h")))
    found = {}
    for family, number in re.findall(r"^} *CUpti_Activity([A-Za-z]+?)(\d*);", text, re.M):
        found.setdefault(family, set()).add(int(number or 1))
    return found


def struct(family, number):
    return "CUpti_Activity%s%s" % (family, number if number > 1 else "")


def assertions(folder):
    has, out = structs(folder), []
    for kind, number in KINDS.items():
        if kind != "GRAPH_TRACE" or "GraphTrace" in has:
            out.append("_Static_assert(CUPTI_ACTIVITY_KIND_%s == %d, \"kind\");" % (kind, number))
    for name, offset in OFFSETS.items():
        out.append("_Static_assert(offsetof(CUpti_Activity%s, %s) == %d, \"first\");" % (*name.split("."), offset))
    for family, (oldest, fields) in FAMILIES.items():
        if family not in has and family == "GraphTrace":
            continue  # since CUDA 11.7
        assert oldest in has[family], (folder, family)
        for number in sorted(n for n in has[family] if n > oldest):
            for field in fields:
                old, new = struct(family, oldest), struct(family, number)
                size = "sizeof(((%s *)0)->%s) == sizeof(((%s *)0)->%s)" % (old, field, new, field)
                out.append('_Static_assert(offsetof(%s, %s) == offsetof(%s, %s) && %s, "%s %s");' % (old, field, new, field, size, new, field))
    return out


# What user/inject/inject.h declares itself, as headers before 13.2 and 13.3 have no such thing.
PARAMS = {"structSize": 0, "subscriberName": 8, "oldSubscriberName": 16, "oldSubscriberSize": 24, "allowMultipleSubscribers": 32}
NUMBERS = {"CUPTI_ACTIVITY_ATTR_THREAD_ID_TYPE": 21, "CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN": 64}
OVERHEADS = re.findall(r"X\((\w+), ([\d< ]+), \"", re.search(r"#define STEPFLAME_GPU_OVERHEADS.*?\n\n", Path(helpers.ROOT, "include/gpu.h").read_text(), re.S)[0])


def assertions_of_declared(folder):
    text = "".join((folder / name).read_text(errors="replace") for name in ("cupti_activity.h", "cupti_callbacks.h"))
    params = re.search(r"typedef struct \{([^{}]*)\} CUpti_SubscriberParams;", text)
    out = ['_Static_assert(offsetof(CUpti_SubscriberParams, %s) == %d, "params");' % item for item in PARAMS.items() if params and item[0] in params[1]]
    out += ['_Static_assert(%s == %d, "number");' % item for item in NUMBERS.items() if item[0] + "," in text or "#define " + item[0] in text]
    kinds = [("CUPTI_ACTIVITY_OVERHEAD_" + name, number) for name, number in OVERHEADS]
    assert len(kinds) == 9
    return out + ['_Static_assert(%s == (%s), "overhead");' % kind for kind in kinds if kind[0] + " " in text]


def includes(folder):
    """CUDA's own headers: beside CUPTI's, or in the toolkit."""
    places = [folder, *folder.glob("../../cuda_runtime/include"), *Path("/usr/local").glob("cuda*/include"), *Path(helpers.PYTHON).parents[1].glob("lib/*/site-packages/nvidia/*/include")]
    return [place for place in places if place == folder or (place / "cuda.h").exists()]


def test_layouts(tmp_path):
    folders = headers()
    if not folders:
        pytest.skip("no headers of CUPTI are here")
    for folder in folders:
        own = tmp_path / folder.as_posix().strip("/").replace("/", "_")
        own.mkdir()
        for header in folder.glob("cupti*.h"):  # so that an older one does not get newer ones' beside it
            (own / header.name).symlink_to(header)
        deprecated = "#include <cupti_activity_deprecated.h>\n" if (folder / "cupti_activity_deprecated.h").exists() else ""
        source = own / "layouts.c"
        checks = assertions(folder) + assertions_of_declared(folder)
        assert len(checks) > 50
        source.write_text("#include <stddef.h>\n#include <cupti.h>\n" + deprecated + "\n".join(checks) + "\n")
        paths = [word for place in [own, *includes(folder)] for word in ("-isystem", str(place))]
        result = subprocess.run(["gcc", "-fsyntax-only", *paths, source], capture_output=True, text=True)
        assert result.returncode == 0, (folder, result.stderr[:4000])
