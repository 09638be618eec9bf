/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks over stacks of real interpreters (bpf/pystack.h), compared with what these say of themselves. In: for each thread a line
 * "pthread_self<tab>frames", then for each frame, innermost first, "file<tab>name<tab>first line<tab>line<tab>offset"; at last "end".
 */
#ifndef STEPFLAME_TESTS_BPF_NATIVE_TOLD_H
#define STEPFLAME_TESTS_BPF_NATIVE_TOLD_H

#include "tests/bpf/native/seen.h"

#include "tests/bpf/native/random.h"
#include "user/runtime/python/pylines.h"

#define TOLD_THREADS    11
#define TOLD_FRAMES_MAX 1024

struct told_frame {
	char file[128], name[1024];
	u32 first_line;
	s32 line;
	s64 offset;
};

struct told_thread {
	u64 thread_pointer;
	u32 cnt;
	struct told_frame *frames; /* owned */
};

static struct {
	struct stack_scratch room;
	struct told_thread threads[TOLD_THREADS];
} told;

static inline void told__read_frames(FILE *from, struct told_thread *t)
{
	static char line[4096];

	t->frames = calloc(t->cnt, sizeof(*t->frames));
	assert_non_null(t->frames);
	for (u32 i = 0; i < t->cnt; i++) {
		struct told_frame *f = &t->frames[i];

		assert_non_null(fgets(line, sizeof(line), from));
		assert_int_equal(sscanf(line, "%127[^\t]\t%1023[^\t]\t%u\t%d\t%ld", f->file, f->name, &f->first_line,
					&f->line, (long *)&f->offset),
				 5);
	}
}

static inline void told__read(FILE *from)
{
	char line[128];

	memset(&told, 0, sizeof(told));
	for (u32 i = 0; i < TOLD_THREADS; i++) {
		struct told_thread *t = &told.threads[i];

		assert_non_null(fgets(line, sizeof(line), from));
		assert_int_equal(sscanf(line, "%lu\t%u", (unsigned long *)&t->thread_pointer, &t->cnt), 2);
		assert_in_range(t->cnt, 1, TOLD_FRAMES_MAX);
		told__read_frames(from, t);
	}
	assert_non_null(fgets(line, sizeof(line), from));
	assert_string_equal(line, "end\n");
}

static inline void told__free(void)
{
	for (u32 i = 0; i < TOLD_THREADS; i++)
		free(told.threads[i].frames);
}

static inline u64 told__walk(const struct told_thread *t)
{
	job.task.thread.fsbase = t->thread_pointer;
	return stack__of(&told.room, job.proc, (u32)native.memory_pid);
}

/* All that was sent is sent anew. */
static inline void told__forget(void)
{
	native__empty_ring();
	native__forget(&codes);
	native__forget(&codes_close);
	native__forget(&names);
	name_cnt = 0;
	native__forget(&stacks);
	native__forget(&counters);
	native__forget(&names_close);
}

/* Is that a name as a report has it? */
static inline bool told__is_name(const char *text, const char *whole)
{
	char cut[REC_NAME_MAX + 32];

	snprintf(cut, sizeof(cut), "%.*s... (%zu bytes)", REC_NAME_MAX, whole, strlen(whole));
	return !strcmp(text, strlen(whole) > REC_NAME_MAX ? cut : whole);
}

static inline bool told__is(const struct told_frame *f, const struct seen *seen, const struct frame *frame)
{
	struct code code = seen__code(seen, frame);

	return !strcmp(seen__text(seen, code.file), f->file) && told__is_name(seen__text(seen, code.name), f->name) &&
	       code.first_line == f->first_line && frame->offset == f->offset;
}

static inline s32 told__line(const struct code *code, u32 offset)
{
	struct rec_code *complete = NULL;
	s32 line;
	u32 i = 0;

	for (const struct rec_code *rec; (rec = record(REC_CODE, i)); i++) {
		if (rec->file != code->file || rec->name != code->name || rec->first_line != code->first_line)
			continue;
		assert_int_equal(py_lines__complete(job.py.py, rec, &complete), 0);
		line = py_lines__at(complete->lines, complete->line_cnt, rec->first_line, offset);
		free(complete);
		return line;
	}
	fail();
	return 0;
}

static inline void told__expect(const struct told_thread *t)
{
	u32 shown = t->cnt < STACK_FRAMES_MAX ? t->cnt : STACK_FRAMES_MAX;
	u64 id = told__walk(t);
	struct seen seen = seen__read();
	struct stack stack = seen__stack(&seen, id);

	assert_int_equal(stack.cnt, shown);
	assert_int_equal(stack.cut, shown < t->cnt);
	for (u32 i = 0; i < shown; i++) {
		struct code code = seen__code(&seen, &stack.frames[i]);

		assert_true(told__is(&t->frames[i], &seen, &stack.frames[i]));
		assert_int_equal(told__line(&code, stack.frames[i].offset), t->frames[i].line);
	}
	seen__free(&seen);
}

/* Bytes are wrong in some of what is read: what is sent makes sense, and no more is read than for the longest of stacks. */
static inline void told__expect_sense(const struct told_thread *t)
{
	struct seen seen;
	u64 id;

	native.reads = 0;
	id = told__walk(t);
	assert_true(native.reads < 10 * 2 * STACK_FRAMES_MAX);
	seen = seen__read();
	if (id && told.room.stack.frame_cnt)
		assert_in_range(seen__stack(&seen, id).cnt, 1, STACK_FRAMES_MAX);
	seen__free(&seen);
}

/* All threads, as they are and with bytes wrong. */
static inline void told__expect_all(void)
{
	u32 shown = 0, large = 0;
	u64 cut = 0, names_cut = 0;

	for (u32 i = 0; i < TOLD_THREADS; i++) {
		told__forget();
		told__expect(&told.threads[i]);
		shown += told.room.stack.frame_cnt;
		cut += counter(CNT_STACK_CUT);
		names_cut += counter(CNT_NAME_CUT);
		expect_counters(CNT_STACK_CUT, told.threads[i].cnt > STACK_FRAMES_MAX, CNT_NAME_CUT,
				(int)counter(CNT_NAME_CUT), CNT__COUNT);
		for (u32 k = 0; k < records(REC_CODE); k++)
			large += ((const struct rec_code *)record(REC_CODE, k))->table_bytes > CODE_TABLE_LARGE;
		native.corrupt = random_u64;
		for (u64 k = 0; k < environment("STEPFLAME_ROUNDS", 40); k++) {
			told__forget();
			told__expect_sense(&told.threads[i]);
		}
		native.corrupt = NULL;
	}
	assert_true(shown > STACK_FRAMES_MAX + 100);
	assert_true(large > 0);
	assert_int_equal(cut, 1);
	assert_int_equal(names_cut, 1);
}

#endif
