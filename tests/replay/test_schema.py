# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
`report --json-schema` describes the JSON of every report: that of the recordings is valid by it, as the package jsonschema judges, and what it does not
describe is not. Every report that a test reads is held against it, too (helpers.report).
"""

import copy
import json

import helpers
import pytest
import recfile as rec

from . import recordings
from .loops import PID, START, preamble

jsonschema = pytest.importorskip("jsonschema", reason="tools/setup.sh python --readers installs jsonschema")
REPORTS = ["--summary", "--simple", "--advanced", "--ops", "--steps", "--io", "--gpu"]
OPTIONS = [["--per-rank"], ["--limit", "2"]]
MORE = {"--simple": [["--all"]], "--advanced": [["--all", "--native"]], "--gpu": [["--by-op", "--by-action"]]}
MORE["--ops"] = [["--by-action", "--overloads"], ["--shapes", "--stacks", "--modules", "--flops"]]


def options_of(name):
    return [[], *(OPTIONS if name != "--summary" else []), *MORE.get(name, [])]


@pytest.mark.parametrize("name", REPORTS)
def test_reports_of_recordings(name):
    for recording in recordings.NAMES:
        for options in options_of(name):
            helpers.check_schema(recordings.report(recording, name, *options))


@pytest.mark.parametrize("name", REPORTS)
def test_reports_of_ranks(name, tmp_path):
    recordings.output("merge", "rank0.rec", "rank1.rec", "-o", tmp_path / "merged.rec")
    for options in options_of(name):
        helpers.check_schema(json.loads(recordings.output("report", tmp_path / "merged.rec", "--json", name, *options)))


@pytest.mark.parametrize("name", REPORTS)
def test_reports_of_nothing(name, tmp_path):
    file = tmp_path / "empty.rec"
    for records in ([*preamble(), rec.window(START, START + 1, 0, 0)], [rec.target(PID)]):
        file.write_bytes(rec.recording(records))
        helpers.check_schema(helpers.report(file, name))


def objects(value):
    """All objects in a JSON value."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return ([value] if isinstance(value, dict) else []) + [o for item in inside for o in objects(item)]


def test_all_is_described():
    """Each object of fixed keys allows no other, each value has a type, and each part that is named is there: what is new must be described."""
    schema = helpers.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    kinds = {definition["properties"]["report"].get("const") for definition in schema["$defs"].values() if "report" in definition["properties"]}
    assert kinds - {None} == {name.strip("-") for name in REPORTS}
    for definition in schema["$defs"].values():
        assert definition["additionalProperties"] is False and set(definition["required"]) <= set(definition["properties"])
    for part in objects(list(schema["$defs"].values())):
        if "$ref" in part:
            assert part["$ref"].removeprefix("#/$defs/") in schema["$defs"], part
        if part.get("type") == "object":
            assert "properties" in part or part["additionalProperties"] not in ({}, True), part
        assert part.get("type") in (None, "object", "array", "string", "number", "integer", "boolean", "null") or "properties" not in part, part


def test_what_is_not_described():
    """Another key is found in any object, but for those whose keys are names: counters, causes, phases."""
    found = recordings.report("workers", "--steps")
    open_objects = {id(o) for o in objects(found) if all(isinstance(v, (int, float, dict)) for v in o.values()) and not {"index", "seconds"} & set(o)}
    places = [i for i, o in enumerate(objects(found)) if id(o) not in open_objects]
    assert len(places) > 20
    validator = jsonschema.Draft202012Validator(helpers.schema())
    for i in places[:40]:
        changed = copy.deepcopy(found)
        objects(changed)[i]["no such key"] = None
        assert not validator.is_valid(changed), objects(found)[i]
    for key, value in {"median_s": "1", "steps": None, "slow": [0.5], "verdict": {}}.items():
        assert not validator.is_valid({**found, key: value}), key
    without = dict(found)
    del without["window"]
    assert not validator.is_valid(without)


def test_alone(tmp_path):
    """It reads no recording, and is the same whatever else is asked for."""
    here = helpers.stepflame("report", "--json-schema", cwd=tmp_path)
    there = helpers.stepflame("report", "--steps", "--json-schema", tmp_path / "no.rec")
    assert here.returncode == there.returncode == helpers.OK and here.stdout == there.stdout
