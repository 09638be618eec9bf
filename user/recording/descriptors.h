/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Describes each record type once: its fields, and how merge treats it. The model checks sizes by
 * the description, merge converts processes and times by it, recdump prints by it, and the tests
 * read and write by what recdump prints of it. A type without a description does not compile, nor
 * does a field that its description lacks.
 */
#ifndef STEPFLAME_USER_RECORDING_DESCRIPTORS_H
#define STEPFLAME_USER_RECORDING_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>

#include "include/gpu_records.h"

enum field_kind {
	FIELD_NUMBER, /* unsigned */
	FIELD_SIGNED,
	FIELD_ID,   /* a hash of a name, stack, path, function or group; 0: none */
	FIELD_PID,  /* 0: none */
	FIELD_TID,  /* on the host of the process; 0: none */
	FIELD_TIME, /* CLOCK_MONOTONIC of the host; 0: none */
	FIELD_TEXT, /* bytes, 0-terminated if there is room */
	FIELD_PAD,
	FIELD__COUNT,
};

struct record_field {
	const char *name; /* "key.pid" */
	uint16_t offset;  /* from the start of the record */
	uint16_t bytes;   /* of one item; of a whole text */
	uint16_t cnt;     /* items of an array, else 1 */
	uint16_t kind;    /* enum field_kind */
};

enum merge_rule {
	MERGE_PASS,  /* each record, with its processes and times converted */
	MERGE_WHOLE, /* one record for all files together */
	MERGE_ONCE,  /* the first of equal records */
};

struct record_descriptor {
	const char *name; /* "GPU_CALLS" */
	size_t bytes;     /* size of the struct; a record may be longer */
	enum merge_rule merge;
	const struct record_field *fields;
	size_t field_cnt;
};

/* Returns NULL for a type that this version does not know. */
const struct record_descriptor *record_descriptor__of(uint16_t type);

/*
 * X(type, struct, suffix of job.c's job__add_..., which reads it into the model, merge rule), in
 * the order of enum rec_type.
 */
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
