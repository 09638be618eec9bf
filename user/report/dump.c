// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Prints what threads do. In: struct dump. Out: text or JSON. */
#include "user/report/dump.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/utf8.h"
#include "user/model/samples.h"
#include "user/report/common.h"
#include "user/report/print/table.h"
#include "user/report/print/text.h"

/* ---- rows ---- */

/* Returns a string of any bytes as UTF-8. */
static json_t *escaped_string(const char *text)
{
	char *escaped = utf8__escape(text);
	json_t *value = escaped ? json_string(escaped) : NULL;

	free(escaped);
	return value;
}

static int add_frame(struct table *table, const struct py_frame *frame)
{
	char line[16] = "?", *text;

	if (frame->line)
		snprintf(line, sizeof(line), "%d", frame->line);
	if (asprintf(&text, "%s:%s %s", frame->file, line, frame->name) < 0)
		text = NULL;
	return TABLE_ADD(table, ((const struct cell[]){
					cell__json("file", json_string(frame->file)),
					cell__json("line", frame->line ? json_integer(frame->line) : json_null()),
					cell__json("name", json_string(frame->name)),
					cell__last(1, "", text),
				}));
}

static int add_frames(struct table *table, const struct py_stack *stack)
{
	int err = 0;

	for (uint32_t i = 0; i < stack->frame_cnt && !err; i++)
		err = add_frame(table, &stack->frames[i]);
	return err;
}

/*
 * Returns "thread 42 python: sleeping, lock (futex) 12.3 s", without the parts that are unknown.
 * malloc'ed; NULL: no memory.
 */
static char *thread_sentence(const struct dump_thread *thread)
{
	const struct task *task = &thread->task;
	const char *syscall = task__syscall(task);
	char number[40] = "", blocked[32] = "", *text;

	if (!syscall && task->syscall >= 0)
		snprintf(number, sizeof(number), "system call %ld", task->syscall);
	if (task->blocked_s >= 0)
		snprintf(blocked, sizeof(blocked), " %.1f s", task->blocked_s);
	syscall = syscall ?: number;
	if (asprintf(&text, "thread %d %s: %s%s%s%s%s%s%s%s", task->tid, task->name, task__state(task),
		     thread->cause != CAUSE_NONE ? ", " : "",
		     thread->cause != CAUSE_NONE ? sample_cause__name(thread->cause) : "", *syscall ? " (" : "",
		     syscall, *syscall ? ")" : "", blocked, thread->gil ? ", holds the GIL" : "") < 0)
		return NULL;
	return text;
}

static int add_thread(struct table *table, uint32_t pid, const struct dump_thread *thread)
{
	const struct task *task = &thread->task;
	struct table frames = {.list = json_array()};
	int err = add_frames(&frames, &thread->stack);
	const char *stack = !thread->python        ? "none"
			    : thread->stack.moving ? "moving"
			    : thread->stack.cut    ? "cut"
						   : "whole";

	return TABLE_ADD(table,
			 ((const struct cell[]){
				 cell__json("pid", json_integer(pid)),
				 cell__json("tid", json_integer(task->tid)),
				 cell__json("name", escaped_string(task->name)),
				 cell__json("state", json_string(task__state(task))),
				 cell__json("blocked_on", common__json_text(sample_cause__name(thread->cause))),
				 cell__json("blocked_s", common__json_real(task->blocked_s >= 0, task->blocked_s)),
				 cell__json("syscall", task->syscall >= 0 ? json_integer(task->syscall) : json_null()),
				 cell__json("op", json_null()),
				 cell__json("holds_gil", json_boolean(thread->gil)),
				 cell__json("stack", json_string(stack)),
				 cell__json("frames", common__json_unless_failed(frames.list, err)),
				 cell__last(1, "", thread_sentence(thread)),
			 }));
}

/* ---- text ---- */

static int print_thread(struct table *threads, uint32_t pid, const struct dump_thread *thread)
{
	/* On a terminal long paths and names are cut in their middle. */
	struct table frames = {.out = threads->out, .gap = "    ", .rules = RULES_NONE, .headless = true};
	int err;

	fputc('\n', threads->out);
	err = add_thread(threads, pid, thread);
	if (thread->stack.moving)
		fputs("    (it ran on: the innermost frames are not known)\n", threads->out);
	err = err ?: add_frames(&frames, &thread->stack);
	if (thread->stack.cut)
		fprintf(threads->out, "    (more than %d frames: the outer ones are left out)\n", PY_FRAMES_MAX);
	return err;
}

int dump__text(const struct dump *dump, FILE *out)
{
	struct table threads = {.out = out, .gap = "  ", .rules = RULES_NONE, .headless = true, .wraps = true};
	int err = 0;

	for (size_t i = 0; i < dump->process_cnt && !err; i++) {
		const struct dump_process *process = &dump->processes[i];

		if (i)
			fputc('\n', out);
		common__process(&process->target, out);
		text__last(out, 0, "  ", process->command);
		if (process->target.python[0])
			text__line(out, "  Python %s%s%s%s%s", process->target.python,
				   process->target.torch[0] ? ", torch " : "", process->target.torch,
				   process->target.jax[0] ? ", JAX " : "", process->target.jax);
		if (process->trouble)
			text__wrapped(out, 3, "  (no stacks: %s)", process->trouble);
		if (process->hidden_stacks)
			text__wrapped(out, 3,
				      "  (%u more stacks, of other interpreters in these threads, are not shown)",
				      process->hidden_stacks);
		for (size_t k = 0; k < process->thread_cnt && !err; k++)
			err = print_thread(&threads, process->target.pid, &process->threads[k]);
	}
	return err ?: common__flush(out);
}

/* ---- JSON ---- */

int dump__data(const struct dump *dump, bool csv, FILE *out)
{
	static const char *const path[] = {"threads", NULL};
	json_t *targets = json_array();
	json_t *object =
		json_pack("{s:s, s:s, s:o}", "report", "dump", "stepflame", STEPFLAME_VERSION, "target", targets);
	struct table threads = table__json(object, "threads");
	uint32_t hidden = 0;
	int failed = 0;

	for (size_t i = 0; i < dump->process_cnt && !failed; i++) {
		const struct dump_process *process = &dump->processes[i];

		hidden += process->hidden_stacks;
		failed |= json_array_append_new(targets, common__json_target(&process->target));
		for (size_t k = 0; k < process->thread_cnt && !failed; k++)
			failed |= add_thread(&threads, process->target.pid, &process->threads[k]);
	}
	failed |= json_object_set_new(object, "hidden_stacks", json_integer(hidden));
	object = common__json_unless_failed(object, failed);
	return csv ? common__print_csv(object, path, json_object(), out) : common__print_json(object, out);
}
