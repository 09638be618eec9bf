/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Short forms of job__add for tests: each makes one record and adds it. */
#ifndef STEPFLAME_TESTS_UNIT_BUILD_JOB_H
#define STEPFLAME_TESTS_UNIT_BUILD_JOB_H

#include <stdlib.h>
#include <string.h>

#include "user/model/job.h"

/* A copy in memory of its own, so that a sanitizer sees a read beyond hdr.size. */
static inline int add_copy(struct job *job, const void *record)
{
	size_t bytes = ((const struct rec_hdr *)record)->size;
	void *copy = memcpy(malloc(bytes), record, bytes);
	int err = job__add(job, copy);

	free(copy);
	return err;
}

/* A record that ends in an array. Sets head->size. */
static inline int add_with_array(struct job *job, struct rec_hdr *head, size_t head_bytes, const void *array,
				 size_t bytes)
{
	char *copy = malloc(head_bytes + bytes);
	int err;

	head->size = head_bytes + bytes;
	memcpy(copy, head, head_bytes);
	memcpy(copy + head_bytes, array, bytes);
	err = job__add(job, (void *)copy);
	free(copy);
	return err;
}

/* cut_of: the length of the name that it was cut from, 0: it is whole. */
static inline int add_name(struct job *job, __u64 id, enum name_encoding encoding, const void *text, size_t bytes,
			   __u32 cut_of)
{
	size_t size = (sizeof(struct rec_name) + bytes + 7) / 8 * 8;
	struct rec_name *name = calloc(1, size);
	int err;

	name->hdr = (struct rec_hdr){.type = REC_NAME, .size = size};
	name->id = id;
	name->encoding = encoding;
	name->cut = cut_of > 0;
	name->bytes = bytes;
	name->whole_bytes = cut_of ? cut_of : bytes;
	memcpy(name->text, text, bytes);
	err = add_copy(job, name);
	free(name);
	return err;
}

static inline int add_text(struct job *job, __u64 id, const char *text)
{
	return add_name(job, id, NAME_UTF8, text, strlen(text), 0);
}

static inline int add_proc(struct job *job, __u32 pid, enum proc_event event)
{
	struct rec_proc proc = {.hdr = {.type = REC_PROC, .size = sizeof(proc)}, .pid = pid, .event = event};

	return add_copy(job, &proc);
}

static inline int add_target(struct job *job, __u32 pid, enum target_role role, __s32 rank)
{
	struct rec_target target = {.hdr = {.type = REC_TARGET, .size = sizeof(target)},
				    .pid = pid,
				    .nspid = pid,
				    .role = role,
				    .rank = rank,
				    .python = "3.11.2",
				    .torch = "2.6.0"};

	return add_copy(job, &target);
}

static inline int add_window(struct job *job, __u64 start_ns, __u64 end_ns, __u64 steps, enum step_rule rule)
{
	struct rec_window window = {.hdr = {.type = REC_WINDOW, .size = sizeof(window)},
				    .start_ns = start_ns,
				    .end_ns = end_ns,
				    .steps = steps,
				    .step_rule = rule};

	return add_copy(job, &window);
}

static inline int add_agg(struct job *job, struct agg_key key, struct agg_val val)
{
	struct rec_agg agg = {.hdr = {.type = REC_AGG, .size = sizeof(agg)}, .key = key, .val = val};

	return add_copy(job, &agg);
}

static inline int add_counter(struct job *job, const char *name, __u64 value)
{
	struct rec_counter counter = {.hdr = {.type = REC_COUNTER, .size = sizeof(counter)}, .value = value};

	strncpy(counter.name, name, sizeof(counter.name) - 1);
	return add_copy(job, &counter);
}

/* The same numbers in each run. */
static inline uint64_t next_random(void)
{
	static uint64_t state = 1;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

#endif
