// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Prints what threads do. In: struct dump. Out: text or JSON. */
#include "user/report/dump.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/utf8.h"
#include "user/model/samples.h"
#include "user/report/common.h"
#include "user/report/print/text.h"

/* ---- text ---- */

/* Prints "sleeping, lock (futex) 12.3 s", without the parts that are unknown. */
static void print_wait(const struct dump_thread *thread, FILE *out)
{
	const char *syscall = task__syscall(&thread->task);

	fprintf(out, "%s", task__state(&thread->task));
	if (thread->cause != CAUSE_NONE)
		fprintf(out, ", %s", sample_cause__name(thread->cause));
	if (syscall)
		fprintf(out, " (%s)", syscall);
	else if (thread->task.syscall >= 0)
		fprintf(out, " (system call %ld)", thread->task.syscall);
	if (thread->task.blocked_s >= 0)
		fprintf(out, " %.1f s", thread->task.blocked_s);
	if (thread->gil)
		fputs(", holds the GIL", out);
	fputc('\n', out);
}

/* On a terminal long paths and names are cut in their middle. */
static void print_frame(const struct py_frame *frame, FILE *out)
{
	char line[16] = "?", *text;

	if (frame->line)
		snprintf(line, sizeof(line), "%d", frame->line);
	if (asprintf(&text, "%s:%s %s", frame->file, line, frame->name) < 0)
		return;
	text__last(out, 0, "    ", text);
	free(text);
}

static void print_thread(const struct dump_thread *thread, FILE *out)
{
	char *name = utf8__escape(thread->task.name);

	fprintf(out, "\n  thread %d %s: ", thread->task.tid, name ?: "");
	free(name);
	print_wait(thread, out);
	if (thread->stack.moving)
		fputs("    (it ran on: the innermost frames are not known)\n", out);
	for (uint32_t i = 0; i < thread->stack.frame_cnt; i++) {
		const struct py_frame *frame = &thread->stack.frames[i];

		print_frame(frame, out);
	}
	if (thread->stack.cut)
		fprintf(out, "    (more than %d frames: the outer ones are left out)\n", PY_FRAMES_MAX);
}

int dump__text(const struct dump *dump, FILE *out)
{
	for (size_t i = 0; i < dump->process_cnt; i++) {
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
		for (size_t k = 0; k < process->thread_cnt; k++)
			print_thread(&process->threads[k], out);
	}
	return common__flush(out);
}

/* ---- JSON ---- */

/* Returns a string of any bytes as UTF-8. */
static json_t *json_text(const char *text)
{
	char *escaped = utf8__escape(text);
	json_t *value = escaped ? json_string(escaped) : NULL;

	free(escaped);
	return value;
}

static json_t *json_frames(const struct py_stack *stack)
{
	json_t *frames = json_array();

	for (uint32_t i = 0; i < stack->frame_cnt; i++) {
		const struct py_frame *frame = &stack->frames[i];

		common__json_append(&frames, json_pack("{s:s, s:o, s:s}", "file", frame->file, "line",
						       frame->line ? json_integer(frame->line) : json_null(), "name",
						       frame->name));
	}
	return frames;
}

static json_t *json_thread(uint32_t pid, const struct dump_thread *thread)
{
	const struct task *task = &thread->task;
	const char *stack = !thread->python        ? "none"
			    : thread->stack.moving ? "moving"
			    : thread->stack.cut    ? "cut"
						   : "whole";

	return json_pack("{s:I, s:i, s:o, s:s, s:o, s:o, s:o, s:n, s:b, s:s, s:o}", "pid", (json_int_t)pid, "tid",
			 task->tid, "name", json_text(task->name), "state", task__state(task), "blocked_on",
			 common__json_text(sample_cause__name(thread->cause)), "blocked_s",
			 task->blocked_s >= 0 ? json_real(task->blocked_s) : json_null(), "syscall",
			 task->syscall >= 0 ? json_integer(task->syscall) : json_null(), "op", "holds_gil", thread->gil,
			 "stack", stack, "frames", json_frames(&thread->stack));
}

int dump__data(const struct dump *dump, bool csv, FILE *out)
{
	static const char *const path[] = {"threads", NULL};
	json_t *targets = json_array(), *threads = json_array(), *object;
	uint32_t hidden = 0;
	int failed = 0;

	for (size_t i = 0; i < dump->process_cnt; i++) {
		const struct dump_process *process = &dump->processes[i];

		hidden += process->hidden_stacks;
		failed |= json_array_append_new(targets, common__json_target(&process->target));
		for (size_t k = 0; k < process->thread_cnt; k++)
			failed |=
				json_array_append_new(threads, json_thread(process->target.pid, &process->threads[k]));
	}
	object = json_pack("{s:s, s:s, s:o, s:o, s:I}", "report", "dump", "stepflame", STEPFLAME_VERSION, "target",
			   targets, "threads", threads, "hidden_stacks", (json_int_t)hidden);
	object = common__json_unless_failed(object, failed);
	return csv ? common__print_csv(object, path, json_object(), out) : common__print_json(object, out);
}
