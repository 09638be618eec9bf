/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What each thread of a job does at one moment: `stepflame dump` collects it, and this prints it. */
#ifndef STEPFLAME_USER_REPORT_DUMP_H
#define STEPFLAME_USER_REPORT_DUMP_H

#include <stdio.h>

#include "include/records.h"
#include "user/proc/task.h"
#include "user/runtime/python/pyframes.h"

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

/* 0 or -errno (of the write, or -ENOMEM). */
int dump__text(const struct dump *dump, FILE *out);
/* As JSON, or as CSV, a row for each thread. */
int dump__data(const struct dump *dump, bool csv, FILE *out);

#endif
