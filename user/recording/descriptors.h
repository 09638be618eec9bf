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
#include "include/io_records.h"
#include "include/resource_records.h"
#include "include/wait_records.h"

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

/* Which records of the type a trimmed recording keeps of those before its kept part: trim.c. */
enum keep_rule {
	KEEP_NONE,
	KEEP_FIRST, /* of those with one key */
	KEEP_LAST,
};

#define KEY_ALL INT16_MAX /* the whole record */

struct record_descriptor {
	const char *name; /* "GPU_CALLS" */
	size_t bytes;     /* size of the struct; a record may be longer */
	enum merge_rule merge;
	enum keep_rule keep;
	int16_t key_bytes; /* behind the header; negative: at the end of the record */
	const struct record_field *fields;
	size_t field_cnt;
};

/* Returns NULL for a type that this version does not know. */
const struct record_descriptor *record_descriptor__of(uint16_t type);

/*
 * X(type, struct, suffix of job.c's job__add_..., which reads it into the model, merge rule, keep
 * rule, bytes of the key), in the order of enum rec_type. The key of a CODE goes up to line_cnt: a
 * function may come again, with its lines.
 */
#define STEPFLAME_RECORDS(X)                                                       \
	X(HOST, rec_host, host, PASS, FIRST, 0)                                    \
	X(TARGET, rec_target, target, PASS, LAST, 8)                               \
	X(NAME, rec_name, name, PASS, FIRST, 8)                                    \
	X(PROC, rec_proc, proc, PASS, NONE, 0)                                     \
	X(WINDOW, rec_window, window, WHOLE, LAST, 0)                              \
	X(AGG, rec_agg, action, PASS, LAST, sizeof(struct agg_key))                \
	X(COUNTER, rec_counter, counter, WHOLE, LAST, -32)                         \
	X(COST, rec_cost, cost, WHOLE, LAST, 0)                                    \
	X(NOTE, rec_note, note, ONCE, FIRST, KEY_ALL)                              \
	X(OP, rec_op, ops, PASS, LAST, sizeof(struct op_key))                      \
	X(OP_GROUP, rec_op_group, ops, PASS, FIRST, 8)                             \
	X(OP_WINDOW, rec_op_window, ops, PASS, LAST, 8)                            \
	X(SPANS, rec_spans, nothing, PASS, NONE, 0)                                \
	X(SPAN, rec_span, nothing, PASS, NONE, 0)                                  \
	X(CODE, rec_code, stacks, PASS, FIRST, 44)                                 \
	X(STACK, rec_stack, stacks, PASS, FIRST, 8)                                \
	X(PATH, rec_path, stacks, PASS, FIRST, 8)                                  \
	X(SAMPLE, rec_sample, samples, PASS, NONE, 0)                              \
	X(INTERVAL, rec_interval, samples, PASS, NONE, 0)                          \
	X(MODULES, rec_modules, nothing, PASS, FIRST, 8)                           \
	X(CALLS, rec_calls, samples, PASS, LAST, 24)                               \
	X(STEP, rec_step, boundary, PASS, NONE, 0)                                 \
	X(SYSCALL, rec_syscall, io, PASS, LAST, sizeof(struct syscall_key))        \
	X(FILE, rec_file, io, PASS, LAST, sizeof(struct file_key))                 \
	X(GPU, rec_gpu, gpu, PASS, LAST, 4)                                        \
	X(GPU_CALLS, rec_gpu_calls, gpu, PASS, LAST, sizeof(struct gpu_calls_key)) \
	X(GPU_CALL, rec_gpu_call, gpu, PASS, NONE, 0)                              \
	X(GPU_STEP, rec_gpu_step, gpu, PASS, NONE, 0)                              \
	X(GPU_ACTIVITY, rec_gpu_activity, gpu, PASS, NONE, 0)                      \
	X(GPU_DEVICE, rec_gpu_device, gpu, PASS, LAST, 8)                          \
	X(GPU_USAGE, rec_gpu_usage, gpu, PASS, NONE, 0)                            \
	X(GPU_OBJECT, rec_gpu_object, nothing, PASS, NONE, 0)                      \
	X(GPU_WINDOW, rec_gpu_window, gpu, PASS, LAST, 8)                          \
	X(PIPE, rec_pipe, io, PASS, LAST, sizeof(struct file_key))                 \
	X(AROUND, rec_around, samples, PASS, FIRST, KEY_ALL)                       \
	X(DROPPED, rec_dropped, dropped, PASS, NONE, 0)                            \
	X(DROPPED_STEPS, rec_dropped_steps, dropped_steps, PASS, LAST, 16)         \
	X(RESOURCES, rec_resources, resources, PASS, NONE, 0)                      \
	X(MACHINE, rec_machine, resources, PASS, NONE, 0)                          \
	X(LIMITS, rec_limits, resources, PASS, LAST, 4)                            \
	X(STEPS, rec_steps, malformed, PASS, NONE, 0)                              \
	X(SHORTAGE, rec_shortage, resources, PASS, LAST, 4)                        \
	X(REST, rec_rest, rest, PASS, LAST, 4)                                     \
	X(THROTTLE, rec_throttle, resources, PASS, NONE, 0)                        \
	X(AWAITED, rec_awaited, samples, PASS, FIRST, 20)                          \
	X(OVERHEAD, rec_overhead, rest, PASS, LAST, 4)                             \
	X(JOB, rec_job, resources, PASS, LAST, 4)                                  \
	X(GPU_USER, rec_gpu_user, gpu, PASS, LAST, 8)                              \
	X(COPIED, rec_copied, resources, PASS, NONE, 0)                            \
	X(INSTALLED, rec_installed, stacks, PASS, FIRST, 8)                        \
	X(RECORDED, rec_recorded, rest, PASS, LAST, 4)

#endif
