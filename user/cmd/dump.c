// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stepflame dump: what every thread of a job does right now. In: pids. Out: text, JSON or CSV.
 * It only reads /proc and the memory of the processes, which keep running.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "include/records.h"
#include "user/cmd/cmd.h"
#include "user/cmd/parse.h"
#include "user/cmd/targets.h"
#include "user/identity/job_id.h"
#include "user/identity/program.h"
#include "user/lib/log.h"
#include "user/lib/utf8.h"
#include "user/model/samples.h"
#include "user/proc/task.h"
#include "user/report/common.h"
#include "user/report/print/table.h"
#include "user/report/print/text.h"
#include "user/runtime/python/pyframes.h"
#include "user/runtime/python/python.h"
#include "user/runtime/python/pythread.h"
#include "user/runtime/torch/torch.h"
#include "user/runtime/xla/jax.h"

struct dump_args {
	struct targets targets;
	bool json, csv;
};

enum { OPT_CSV = 256 };

static const struct argp_option options[] = {
	TARGET_OPTIONS,
	{"json", 'j', NULL, 0, "print one JSON object", 0},
	{"csv", OPT_CSV, NULL, 0, "print CSV, a row for each thread, with the keys of the JSON", 0},
	{0},
};

static error_t parse_dump(int key, char *arg, struct argp_state *state)
{
	struct dump_args *args = state->input;

	switch (key) {
	case 'j':
		args->json = true;
		return 0;
	case OPT_CSV:
		args->csv = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "dump takes no argument '%s': for a process give -p PID, for a job --job NAME", arg);
		return 0;
	case ARGP_KEY_END:
		if (args->json && args->csv)
			argp_error(state, "either --json or --csv");
		targets__check(state, &args->targets);
		return 0;
	default:
		return targets__option(state, &args->targets, key, arg);
	}
}

static const struct argp dump_argp = {
	.options = options,
	.parser = parse_dump,
	.args_doc = "[-p PID | --job NAME | --all]",
	.doc = "Say what every thread of a running job does right now, also those of its children: its Python stack, "
	       "and "
	       "what it waits for. Without a target it is the only training job of this host, or an error where "
	       "several run.\v"
	       "dump does not stop the job: it reads the threads one after the other, and marks a stack that changes "
	       "while it is read. It needs neither BPF nor torch nor JAX; for threads that run no Python it prints "
	       "their system call.",
};

/* ---- what is found ---- */

struct dump_thread {
	struct task task;
	enum wait_cause cause;
	bool python; /* the thread has a Python thread state, and so a stack, which may have no frames */
	bool gil;    /* the thread holds the GIL */
	struct py_stack stack;
};

struct dump_process {
	struct rec_target target; /* command is not used */
	char *command;            /* owned; any bytes */
	const char *trouble;      /* why there are no stacks; NULL: there are, or the process runs no Python */
	struct dump_thread *threads;
	size_t thread_cnt;
	uint32_t hidden_stacks; /* stacks of subinterpreters, whose threads are unknown */
};

struct dump {
	struct dump_process *processes;
	size_t process_cnt;
};

/* ---- one process ---- */

/* Reads the thread's stack, and removes its state from states. */
static void thread__read_stack(struct dump_thread *thread, const struct python *python, pid_t pid,
			       struct py_thread *states, int cnt)
{
	struct py_thread *state = py_thread__of(pid, thread->task.nstid, python->process.tss_offset, states, cnt);
	uint64_t holder;

	if (!state)
		return;
	holder = py_thread__gil_holder(pid, python);
	thread->python = !py_stack__read(pid, &python->process, state->tstate, true, &thread->stack);
	/* A thread that was seen waiting for the GIL may have got it since. */
	thread->gil =
		thread->cause != CAUSE_GIL && holder == state->tstate && py_thread__gil_holder(pid, python) == holder;
	state->tstate = 0;
}

/*
 * Counts the remaining states that have frames. Without subinterpreters, they belong to threads
 * that have just begun.
 */
static uint32_t count_stacks(const struct python *python, pid_t pid, const struct py_thread *states, int cnt)
{
	bool several = py_thread__interpreters(pid, python->runtime, python->walk) > 1;
	uint32_t stacks = 0;

	for (int i = 0; several && i < cnt; i++) {
		struct py_stack stack = {0};

		if (states[i].tstate && !py_stack__read(pid, &python->process, states[i].tstate, true, &stack))
			stacks += stack.frame_cnt > 0;
		py_stack__release(&stack);
	}
	return stacks;
}

static int dump_process__threads(struct dump_process *p, const struct process *process, const struct python *python)
{
	struct py_thread *states = NULL;
	pid_t *tids;
	int cnt = task__list(process->pid, &tids), state_cnt;

	if (cnt < 0)
		return cnt;
	state_cnt = python ? py_thread__list_still(process->pid, python, &states) : 0;
	if (state_cnt < 0)
		p->trouble = "the list of threads could not be read";
	p->threads = calloc((size_t)cnt, sizeof(*p->threads));
	for (int i = 0; p->threads && i < cnt; i++) {
		struct dump_thread *thread = &p->threads[p->thread_cnt];

		if (task__read(process->pid, tids[i], &thread->task))
			continue;
		p->thread_cnt++;
		thread->cause = task__cause(process->pid, &thread->task, python ? &python->process : NULL);
		if (state_cnt > 0)
			thread__read_stack(thread, python, process->pid, states, state_cnt);
	}
	if (state_cnt > 0)
		p->hidden_stacks = count_stacks(python, process->pid, states, state_cnt);
	free(states);
	free(tids);
	return p->threads ? 0 : -ENOMEM;
}

/*
 * Fills p, which must be zeroed. 0; -EOPNOTSUPP when the process has threads, but its Python is not
 * supported; or -errno.
 */
static int dump_process__read(struct dump_process *p, pid_t pid, enum target_role role)
{
	const struct mapped_file *torch, *jax;
	struct process process;
	struct python python;
	int err = process__read(pid, &process), python_err;

	if (err)
		return err;
	p->target = (struct rec_target){.pid = (uint32_t)process.pid, .role = role, .rank = -1};
	torch = torch__file(&process);
	if (torch)
		torch__version(&process, torch, p->target.torch, sizeof(p->target.torch));
	jax = jax__file(&process);
	if (jax)
		jax__version(&process, jax, p->target.jax, sizeof(p->target.jax));
	python_err = python__find(&process, &python, NULL);
	memcpy(p->target.python, python.version, sizeof(p->target.python));
	p->target.rank = rank__read(&process, python_err ? NULL : &python).number;
	if (role == ROLE_CHILD && program__is_worker(&process, python_err ? NULL : &python))
		p->target.role = ROLE_WORKER;
	if (python_err && python_err != -ENOENT)
		p->trouble = python_err == -EOPNOTSUPP || python_err == -ENOTSUP
				     ? "this Python is not supported or not laid out as expected"
			     : python_err == -ELIBACC ? "this Python may not be read"
						      : strerror(-python_err);
	p->command = strdup(process.command[0] ? process.command : process.comm);
	err = p->command ? dump_process__threads(p, &process, python_err ? NULL : &python) : -ENOMEM;
	process__release(&process);
	return err ?: python_err == -ENOENT ? 0 : python_err;
}

/* ---- all ---- */

static int dump__find(const struct dump *dump, pid_t pid)
{
	for (size_t i = 0; i < dump->process_cnt; i++) {
		if ((pid_t)dump->processes[i].target.pid == pid)
			return (int)i;
	}
	return -1;
}

static void dump_process__release(struct dump_process *p)
{
	for (size_t i = 0; i < p->thread_cnt; i++)
		py_stack__release(&p->threads[i].stack);
	free(p->threads);
	free(p->command);
}

/* Adds a process. 0 or -errno; a process with threads, but without stacks, is also added. */
static int dump__add(struct dump *dump, pid_t pid, enum target_role role)
{
	struct dump_process *more = reallocarray(dump->processes, dump->process_cnt + 1, sizeof(*more)), *p;
	int err;

	if (!more)
		return -ENOMEM;
	dump->processes = more;
	p = &more[dump->process_cnt];
	memset(p, 0, sizeof(*p));
	err = dump_process__read(p, pid, role);
	if (p->thread_cnt)
		dump->process_cnt++;
	else
		dump_process__release(p);
	return err;
}

static bool is_named(const struct pids *named, pid_t pid)
{
	for (size_t i = 0; i < named->cnt; i++)
		if (named->pid[i] == pid)
			return true;
	return false;
}

/*
 * Adds a process of `named`, and its children, unless they are named themselves. A child may end at
 * any time, so only a process that the user named causes an error.
 */
static int dump__add_job(struct dump *dump, pid_t pid, const struct pids *named)
{
	char why[PYTHON_WHY_BYTES];
	pid_t *children = NULL;
	int at, cnt, err = dump__add(dump, pid, ROLE_MAIN);

	if (err) {
		at = dump__find(dump, pid);
		log__error(python__explain(err, pid, "", at < 0 ? "" : dump->processes[at].target.python, why), "%s",
			   why);
	}
	if (err && err != -EOPNOTSUPP)
		return err;
	cnt = process__children(pid, true, &children);
	for (int i = 0; i < cnt; i++) {
		if (dump__find(dump, children[i]) < 0 && !is_named(named, children[i]))
			dump__add(dump, children[i], ROLE_CHILD);
	}
	free(children);
	return err;
}

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

static int print_text(const struct dump *dump, FILE *out)
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

static int print_data(const struct dump *dump, bool csv, FILE *out)
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

/* ---- the command ---- */

static int run_dump(int argc, char **argv)
{
	struct dump_args args = {0};
	struct dump dump = {0};
	int err = 0, print_err = 0;

	parse__or_die(&dump_argp, argc, argv, 0, &args);
	targets__choose_or_die(&args.targets, "dump", "reading");
	for (size_t i = 0; i < args.targets.pids.cnt; i++) {
		if (dump__find(&dump, args.targets.pids.pid[i]) < 0)
			err = dump__add_job(&dump, args.targets.pids.pid[i], &args.targets.pids) ?: err;
	}
	text__use_terminal(STDOUT_FILENO);
	if (dump.process_cnt)
		print_err = args.json || args.csv ? print_data(&dump, args.csv, stdout) : print_text(&dump, stdout);
	for (size_t i = 0; i < dump.process_cnt; i++)
		dump_process__release(&dump.processes[i]);
	free(dump.processes);
	return print_err ? SF_EXIT_ERROR : log__exit_code(err);
}

const struct command command_dump = {
	.name = "dump",
	.run = run_dump,
	.argp = &dump_argp,
	.help = "say what every thread of a job does right now",
	.traces = true,
};
