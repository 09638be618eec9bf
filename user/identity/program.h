/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a Python process was started for, by the functions in which its main thread is: they say it
 * whatever its title, command line and environment are.
 */
#ifndef STEPFLAME_USER_IDENTITY_PROGRAM_H
#define STEPFLAME_USER_IDENTITY_PROGRAM_H

#include "user/proc/process.h"
#include "user/runtime/python/interpreter.h"

enum program {
	PROGRAM_UNKNOWN,  /* its stack cannot be read */
	PROGRAM_NATIVE,   /* no Python */
	PROGRAM_SCRIPT,   /* none of those below */
	PROGRAM_WAITS,    /* a script that waits for a process that it has started */
	PROGRAM_LAUNCHER, /* torchrun, accelerate launch, the parent of torch.multiprocessing.spawn, ... */
	PROGRAM_RANK,     /* a process of torch.multiprocessing.spawn */
	PROGRAM_WORKER,   /* of a torch DataLoader */
	PROGRAM_HELPER,   /* of multiprocessing, an executor, torch.compile, ... */
	PROGRAM_CHILD,    /* another process that multiprocessing started */
	PROGRAM_IMPORTS,  /* imports torch or JAX, and nothing says yet which of these it is */
};

/* python: NULL: there is none. */
enum program program__read(const struct process *process, const struct python *python);

/* Is it a worker of a torch DataLoader? By the name that newer versions of torch give it, or by its stack. */
bool program__is_worker(const struct process *process, const struct python *python);

/* "launcher", ...; a word for each. */
const char *program__name(enum program program);

/*
 * 16 bytes that the kernel chooses at random at each exec, and that a fork keeps (AT_RANDOM): two
 * processes with the same ones run the same program, and one is a fork of the other, or both are of
 * a third. 0 or -errno.
 */
#define EXEC_ID_BYTES 16
int program__exec_id(pid_t pid, uint8_t id[EXEC_ID_BYTES]);

#endif
