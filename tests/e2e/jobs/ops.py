# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Steps of many kinds of models under torch.profiler, and nothing else, between the release and the end of the job.

Its truth is torch.profiler's own key_averages. What the model and the profiler do for the first time in a process is
done before the wait. Starting, stopping and reading the profiler call no operator, so a tracer attached from the
release to the end sees those under the profiler and no others.
"""

import contextlib
import time

import common
import ops_models
import torch
from torch.profiler import ProfilerActivity, profile

WARMUP_STEPS = 3
EXACT = hasattr(torch._C._autograd._KinetoEvent, "start_ns")  # not whole microseconds


def all_threads():
    """torch.profiler sees only the thread that started it, and autograd's, unless told so."""
    from torch._C._profiler import _ExperimentalConfig

    return _ExperimentalConfig(profile_all_threads=True)


def profiler(args, memory=False):
    if not args.profiler:
        return contextlib.nullcontext()
    options = {"experimental_config": all_threads()} if args.all_threads else {}
    return profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=args.shapes,
        profile_memory=memory,
        with_flops=args.flops,
        **options,
    )


def row(event):
    """A row as `report --ops --json` has it."""
    return {
        "name": event.key,
        "count": event.count,
        "self_cpu_us": event.self_cpu_time_total,
        "cpu_total_us": event.cpu_time_total,
        "input_shapes": event.input_shapes,
        "self_cpu_memory": event.self_cpu_memory_usage,
        "flops": event.flops,
    }


def rows(events, by_shape):
    """Of an EventList."""
    return [row(event) for event in events.key_averages(group_by_input_shapes=by_shape)]


# torch/autograd/profiler_util.py, _filter_name
FILTERED = {"aten::is_leaf", "aten::output_nr", "aten::_version"}


def operators(event):
    """The operators right inside an event of the profiler's tree."""
    for child in event.children:
        name = child.name() if callable(child.name) else child.name
        if name == "[memory]":
            continue
        if name in FILTERED or name.startswith("profiler::_record_function"):
            yield from operators(child)
        else:
            yield name, child


def count_tree(event, counts):
    """
    key_averages' counts, from the tree that torch made of the same events as they came. key_averages makes its own
    from their times, which in older versions (1.13, 2.1) are whole microseconds: what is shorter gets the wrong parent,
    and so may or may not be one with it.
    """
    for name, child in operators(event):
        inner = list(operators(child))
        while len(inner) == 1 and inner[0][0] == name:
            child = inner[0][1]
            inner = list(operators(child))
        counts[name] = counts.get(name, 0) + 1
        count_tree(child, counts)
    return counts


def tree(prof):
    class Root:
        children = prof.profiler.kineto_results.experimental_event_tree()

    return Root


def tree_rows(prof):
    return [{"name": name, "count": count} for name, count in count_tree(tree(prof), {}).items()]


def numbered(event):
    """(event, name) of a tree's operators and nodes with a sequence number."""
    for child in event.children:
        name = child.name() if callable(child.name) else child.name
        if getattr(child.extra_fields, "sequence_number", -1) >= 0 and not name.startswith("autograd::engine::"):
            yield child, name
        yield from numbered(child)


def links(prof):
    """
    [operator, node, how often] by torch's rule (generateForwardBackwardLink in torch/csrc/profiler/collection.cpp),
    for those torches whose traces have no arrows. Of one thread.
    """
    last, found = {}, {}
    for event, name in sorted(numbered(tree(prof)), key=lambda found: found[0].start_time_ns):
        number = event.extra_fields.sequence_number
        if event.extra_fields.scope == torch._C._profiler.RecordScope.FUNCTION:
            last[number] = name
        elif number in last:
            key = last.pop(number), name
            found[key] = found.get(key, 0) + 1
    return [[*key, count] for key, count in found.items()]


def main():
    p = common.parser(__doc__, batches=10)
    p.add_argument("--model", choices=sorted(ops_models.MODELS), default="mlp")
    p.add_argument("--shapes", action="store_true")
    p.add_argument("--memory", action="store_true")
    p.add_argument("--flops", action="store_true")
    p.add_argument("--all-threads", action="store_true", help="profile them all")
    p.add_argument("--no-profiler", dest="profiler", action="store_false")
    p.add_argument("--trace", help="file for the profiler's Chrome trace")
    p.add_argument("--lead", type=int, default=0, help="steps before those under the profiler")
    args = p.parse_args()
    common.prepare(args)

    step = ops_models.MODELS[args.model](args)
    for _ in range(WARMUP_STEPS):
        step()
    # Without memory: what it saw allocated there it would see freed later, which nobody can who came in between.
    with profiler(args):
        step()
    common.wait(args)
    for _ in range(args.lead):
        step()
    with profiler(args, memory=args.memory) as prof:
        start = time.perf_counter()
        for _ in range(args.batches):
            step()
        seconds = time.perf_counter() - start
    truth = {"steps": args.batches, "seconds": seconds, "odd": ops_models.odd_names, "exact": EXACT}
    if args.trace:
        prof.export_chrome_trace(args.trace)
    if prof:
        truth["tree"] = tree_rows(prof)
        truth["links"] = links(prof) if args.trace else []
        truth["ops"] = rows(prof.events(), False)
        truth["by_shape"] = rows(prof.events(), True) if args.shapes else []
    common.write(args, truth)


if __name__ == "__main__":
    main()
