/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Each record type, described once: its fields, and what merge does with it. The model checks sizes by it,
 * merge moves processes and times by it, recdump prints by it, and the tests read and write by what recdump says of it. A type
 * without a description, and a field that is not in it, do not compile.
 */
#ifndef STEPFLAME_USER_RECORDING_DESCRIPTORS_H
#define STEPFLAME_USER_RECORDING_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>

#include "include/gpu_records.h"

enum field_kind {
	FIELD_NUMBER, /* unsigned */
	FIELD_SIGNED,
	FIELD_ID,   /* a hash: of a name, a stack, a path, a function, a group; 0: none */
	FIELD_PID,  /* 0: none */
	FIELD_TID,  /* of the same host as the process; 0: none */
	FIELD_TIME, /* CLOCK_MONOTONIC of its host; 0: none */
	FIELD_TEXT, /* bytes, 0-terminated if there is room */
	FIELD_PAD,
	FIELD__COUNT,
};

struct record_field {
	const char *name; /* "key.pid" */
	uint16_t offset;  /* from the header */
	uint16_t bytes;   /* of one; of a text all */
	uint16_t cnt;     /* of an array, else 1 */
	uint16_t kind;    /* enum field_kind */
};

enum merge_rule {
	MERGE_PASS,  /* with its processes and times moved */
	MERGE_WHOLE, /* one for the whole of what is merged */
	MERGE_ONCE,  /* of those alike the first */
};

struct record_descriptor {
	const char *name; /* "GPU_CALLS" */
	size_t bytes;     /* of the struct; a record may be longer */
	enum merge_rule merge;
	const struct record_field *fields;
	size_t field_cnt;
};

/* NULL: no type of this version. */
const struct record_descriptor *record_descriptor__of(uint16_t type);

/* X(type, struct, what the model does with it: job.c's add_..., merge rule), in the order of enum rec_type. */
#define STEPFLAME_RECORDS(X)                         \
	X(HOST, rec_host, host, PASS)                \
	X(TARGET, rec_target, target, PASS)          \
	X(NAME, rec_name, name, PASS)                \
	X(PROC, rec_proc, proc, PASS)                \
	X(WINDOW, rec_window, window, WHOLE)         \
	X(AGG, rec_agg, action, PASS)                \
	X(COUNTER, rec_counter, counter, WHOLE)      \
	X(COST, rec_cost, cost, WHOLE)               \
	X(NOTE, rec_note, note, ONCE)                \
	X(OP, rec_op, ops, PASS)                     \
	X(OP_GROUP, rec_op_group, ops, PASS)         \
	X(OP_WINDOW, rec_op_window, ops, PASS)       \
	X(SPANS, rec_spans, nothing, PASS)           \
	X(SPAN, rec_span, nothing, PASS)             \
	X(CODE, rec_code, stacks, PASS)              \
	X(STACK, rec_stack, stacks, PASS)            \
	X(PATH, rec_path, stacks, PASS)              \
	X(SAMPLE, rec_sample, samples, PASS)         \
	X(INTERVAL, rec_interval, samples, PASS)     \
	X(MODULES, rec_modules, nothing, PASS)       \
	X(CALLS, rec_calls, samples, PASS)           \
	X(STEP, rec_step, boundary, PASS)            \
	X(SYSCALL, rec_syscall, io, PASS)            \
	X(FILE, rec_file, io, PASS)                  \
	X(GPU, rec_gpu, gpu, PASS)                   \
	X(GPU_CALLS, rec_gpu_calls, gpu, PASS)       \
	X(GPU_CALL, rec_gpu_call, gpu, PASS)         \
	X(GPU_STEP, rec_gpu_step, gpu, PASS)         \
	X(GPU_ACTIVITY, rec_gpu_activity, gpu, PASS) \
	X(GPU_DEVICE, rec_gpu_device, gpu, PASS)     \
	X(GPU_USAGE, rec_gpu_usage, gpu, PASS)       \
	X(GPU_OBJECT, rec_gpu_object, nothing, PASS) \
	X(GPU_WINDOW, rec_gpu_window, gpu, PASS)     \
	X(PIPE, rec_pipe, io, PASS)                  \
	X(AROUND, rec_around, samples, PASS)

#endif
