# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""pprof's profiles, read by Google's protobuf."""

import pytest

# Of proto/profile.proto in github.com/google/pprof: number, name, type; [] for repeated.
MESSAGES = {
    "Profile": "1 sample_type []ValueType, 2 sample []Sample, 3 mapping []Mapping, 4 location []Location, 5 function []Function, "
    "6 string_table []string, 7 drop_frames int64, 8 keep_frames int64, 9 time_nanos int64, 10 duration_nanos int64, 11 period_type ValueType, "
    "12 period int64, 13 comment []int64, 14 default_sample_type int64",
    "ValueType": "1 type int64, 2 unit int64",
    "Sample": "1 location_id []uint64, 2 value []int64, 3 label []Label",
    "Label": "1 key int64, 2 str int64, 3 num int64, 4 num_unit int64",
    "Mapping": "1 id uint64, 2 memory_start uint64, 3 memory_limit uint64, 4 file_offset uint64, 5 filename int64, 6 build_id int64",
    "Location": "1 id uint64, 2 mapping_id uint64, 3 address uint64, 4 line []Line, 5 is_folded bool",
    "Line": "1 function_id uint64, 2 line int64",
    "Function": "1 id uint64, 2 name int64, 3 system_name int64, 4 filename int64, 5 start_line int64",
}


def profile_class():
    """The class of protobuf, or the test is skipped."""
    reason = "tools/setup.sh python --readers installs protobuf"
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2", reason=reason)
    from google.protobuf import descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="perftools.profiles", syntax="proto3")
    for message_name, fields in MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for number, name, kind in (text.split() for text in fields.split(", ")):
            field = message.field.add(name=name, number=int(number), label=3 if kind.startswith("[]") else 1)
            kind = kind.removeprefix("[]")
            if kind in MESSAGES:
                field.type, field.type_name = 11, f".perftools.profiles.{kind}"
            else:
                field.type = {"int64": 3, "uint64": 4, "bool": 8, "string": 9}[kind]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("perftools.profiles.Profile"))
