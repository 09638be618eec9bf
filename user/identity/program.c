/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tells programs by the stack of their main thread. In: a process and its interpreter. No state. */
#include "user/identity/program.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/proc/proc.h"
#include "user/runtime/python/pyframes.h"
#include "user/runtime/python/pythread.h"
#include "user/runtime/torch/torch.h"

#define AUXV_BYTES 8192

/* A function by the end of its file's path, or what lies in a folder (with a / at its end). */
struct landmark {
	const char *file, *function; /* function NULL: any */
	enum program program;
};

static const struct landmark landmarks[] = {
	{"torch/utils/data/_utils/worker.py", "_worker_loop", PROGRAM_WORKER},
	{"torchdata/stateful_dataloader/worker.py", "_worker_loop", PROGRAM_WORKER},
	{"torch/multiprocessing/spawn.py", "_wrap", PROGRAM_RANK},
	{"torch/multiprocessing/spawn.py", NULL, PROGRAM_LAUNCHER},
	{"torch/distributed/run.py", NULL, PROGRAM_LAUNCHER},
	{"torch/distributed/launch.py", NULL, PROGRAM_LAUNCHER},
	{"torch/distributed/launcher/", NULL, PROGRAM_LAUNCHER},
	{"accelerate/commands/launch.py", NULL, PROGRAM_LAUNCHER},
	{"accelerate/launchers.py", NULL, PROGRAM_LAUNCHER},
	{"deepspeed/launcher/", NULL, PROGRAM_LAUNCHER},
	{"horovod/runner/", NULL, PROGRAM_LAUNCHER},
	{"torch/_inductor/compile_worker/", NULL, PROGRAM_HELPER},
	{"concurrent/futures/process.py", "_process_worker", PROGRAM_HELPER},
	{"multiprocessing/pool.py", "worker", PROGRAM_HELPER},
	{"multiprocessing/managers.py", "_run_server", PROGRAM_HELPER},
	{"multiprocessing/resource_tracker.py", "main", PROGRAM_HELPER},
	{"multiprocessing/process.py", "_bootstrap", PROGRAM_CHILD},
	{"multiprocessing/forkserver.py", "main", PROGRAM_HELPER},
	{"multiprocessing/popen_fork.py", "poll", PROGRAM_WAITS},
	{"subprocess.py", "_wait", PROGRAM_WAITS},
	{"subprocess.py", "_try_wait", PROGRAM_WAITS},
	{"subprocess.py", "_communicate", PROGRAM_WAITS},
};

const char *program__name(enum program program)
{
	static const char *const names[] = {
		[PROGRAM_UNKNOWN] = "unknown",
		[PROGRAM_NATIVE] = "no Python",
		[PROGRAM_SCRIPT] = "script",
		[PROGRAM_WAITS] = "script that waits for another process",
		[PROGRAM_LAUNCHER] = "launcher",
		[PROGRAM_RANK] = "spawned rank",
		[PROGRAM_WORKER] = "DataLoader worker",
		[PROGRAM_HELPER] = "helper",
		[PROGRAM_CHILD] = "multiprocessing child",
		[PROGRAM_IMPORTS] = "script that imports torch",
	};

	return names[program];
}

static bool is_in_file(const char *path, const char *file)
{
	const char *at;

	if (compare__ends_with(file, "/"))
		at = strstr(path, file);
	else
		at = compare__ends_with(path, file) ? path + strlen(path) - strlen(file) : NULL;
	return at && (at == path || at[-1] == '/');
}

/* name: qualified from 3.11 on ("BaseProcess._bootstrap"). */
static bool is_function(const char *name, const char *function)
{
	const char *dot = strrchr(name, '.');

	return !strcmp(dot ? dot + 1 : name, function);
}

static const struct landmark *find_landmark(const struct py_frame *frame)
{
	for (size_t i = 0; i < sizeof(landmarks) / sizeof(*landmarks); i++)
		if (is_in_file(frame->file, landmarks[i].file) &&
		    (!landmarks[i].function || is_function(frame->name, landmarks[i].function)))
			return &landmarks[i];
	return NULL;
}

/* What is imported only once. */
static bool is_import(const struct py_frame *frame)
{
	return is_function(frame->name, "<module>") &&
	       (is_in_file(frame->file, "torch/__init__.py") ||
		is_in_file(frame->file, "torch/distributed/__init__.py") || is_in_file(frame->file, "jax/__init__.py"));
}

/* The innermost landmark decides: a forked process still has its parent's functions below its own. */
static enum program program_of(const struct py_stack *stack)
{
	bool imports = false;

	for (uint32_t i = 0; i < stack->frame_cnt; i++) {
		const struct landmark *landmark = find_landmark(&stack->frames[i]);

		if (landmark)
			return landmark->program;
		imports |= is_import(&stack->frames[i]);
	}
	return imports ? PROGRAM_IMPORTS : stack->frame_cnt ? PROGRAM_SCRIPT : PROGRAM_UNKNOWN;
}

enum program program__read(const struct process *process, const struct python *python)
{
	struct py_thread *threads = NULL, *main;
	enum program program = PROGRAM_UNKNOWN;
	struct py_stack stack = {0};
	int cnt;

	if (!python)
		return PROGRAM_NATIVE;
	cnt = py_thread__list_still(process->pid, python, &threads);
	main = cnt > 0 ? py_thread__of(process->pid, process->nspid, python->process.tss_offset, threads, cnt) : NULL;
	if (main && !py_stack__read(process->pid, &python->process, main->tstate, false, &stack))
		program = program_of(&stack);
	py_stack__release(&stack);
	free(threads);
	return program;
}

bool program__is_worker(const struct process *process, const struct python *python)
{
	return torch__is_worker(process) || program__read(process, python) == PROGRAM_WORKER;
}

int program__exec_id(pid_t pid, uint8_t id[EXEC_ID_BYTES])
{
	Elf64_auxv_t entry;
	size_t size;
	char *data;
	int err = proc__slurp_memory(pid, 0, "auxv", AUXV_BYTES, &data, &size);

	if (err)
		return err;
	err = -ENOENT;
	for (size_t at = 0; err == -ENOENT && at + sizeof(entry) <= size; at += sizeof(entry)) {
		memcpy(&entry, data + at, sizeof(entry));
		if (entry.a_type == AT_RANDOM)
			err = process__read_memory(pid, entry.a_un.a_val, id, EXEC_ID_BYTES);
	}
	free(data);
	return err;
}
