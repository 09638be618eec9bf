/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Named counters of losses and repairs, shared by BPF and user space.
 *
 * X(ID, "name", "meaning"): BPF adds to counter ID, the recording carries the name, reports print
 * the nonzero ones. This list is the only place that defines a counter.
 */
#ifndef STEPFLAME_INCLUDE_COUNTERS_H
#define STEPFLAME_INCLUDE_COUNTERS_H

#define STEPFLAME_COUNTERS(X)                                                                                  \
	X(OPEN_AT_START, "open_at_start", "spans that had begun before the probes were armed")                 \
	X(UNWOUND, "unwound", "native spans closed by an exception or a longjmp, not timed")                   \
	X(DROPPED_INNER, "dropped_inner", "spans discarded because an enclosing span ended first")             \
	X(STACK_FULL, "stack_full", "spans nested deeper than the span stack")                                 \
	X(NO_STORAGE, "no_storage", "threads whose span stack could not be allocated")                         \
	X(MAP_FULL, "map_full", "spans whose row did not fit in the aggregate map")                            \
	X(RING_FULL, "ring_full", "records that did not fit in the ring buffer")                               \
	X(BAD_READ, "bad_read", "reads of the target that failed")                                             \
	X(NAME_CUT, "name_cut", "names longer than the name buffer, cut")                                      \
	X(NAME_LOST, "name_lost", "names that could not be read")                                              \
	X(NAMES_FOLDED, "names_folded", "spans in rows of (other labels): too many different names")           \
	X(ROWS_FOLDED, "rows_folded", "spans in rows without what was around them: too many different rows")   \
	X(PROCS_FULL, "procs_full", "processes that were not recorded: too many at once")                      \
	X(FRAME_LOST, "frame_lost", "Python frames that could not be walked far enough")                       \
	X(OP_ROWS_FULL, "op_rows_full", "operator calls whose row did not fit in the table")                   \
	X(GROUPS_FULL, "groups_full", "operator calls whose shapes exceeded the table of different shapes")    \
	X(SHAPES_CUT, "shapes_cut", "operator calls with more or larger inputs than a recording can hold")     \
	X(SPANS_CUT, "spans_cut", "spans of the timeline that did not fit")                                    \
	X(STACK_LOST, "stack_lost", "stacks cut where a frame could not be read")                              \
	X(STACK_CUT, "stack_cut", "stacks with more Python frames than a recording can hold, cut")             \
	X(LINES_LOST, "lines_lost", "functions whose line table could not be read")                            \
	X(SAMPLES_LOST, "samples_lost", "samples that did not fit in the ring buffer")                         \
	X(CALLS_LOST, "calls_lost", "system calls whose row did not fit in the table")                         \
	X(FILES_LOST, "files_lost", "reads and writes whose file did not fit in the table")                    \
	X(GPU_CALLS_LOST, "gpu_calls_lost", "calls of CUDA whose row did not fit in the table")                \
	X(KERNELS_UNNAMED, "kernels_unnamed", "kernels of a GPU whose name is not known")                      \
	X(GPU_UNTIMED, "gpu_untimed", "calls of CUDA that were counted but not timed: no probe saw them end")  \
	X(GPU_DROPPED, "gpu_dropped", "activities of a GPU that CUPTI had no room for")                        \
	X(GPU_RING_FULL, "gpu_ring_full", "activities of a GPU that came faster than they were read")          \
	X(GPU_BAD, "gpu_bad", "activities of a GPU without times, or of an unknown form")                      \
	X(CALL_UNSEEN, "call_unseen", "ends of Python calls whose beginning was not seen")                     \
	X(SPAN_REUSED, "span_reused", "spans begun twice with no end between")                                 \
	X(NVTX_UNNAMED, "nvtx_unnamed", "NVTX ranges without a name, or with one that only NVTX's tool knows") \
	X(NVTX_NOT_PUSHED, "nvtx_not_pushed", "ends of NVTX ranges whose beginning was not seen")              \
	X(NVTX_NOT_POPPED, "nvtx_not_popped", "NVTX ranges given up: too many were open on a thread")          \
	X(RESOURCES_LOST, "resources_lost", "reads of a process's use of resources that failed")

enum counter {
#define X(id, name, meaning) CNT_##id,
	STEPFLAME_COUNTERS(X)
#undef X
		CNT__COUNT,
};

#endif
