/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a DataLoader worker does, judged by its Python stack. */
#ifndef STEPFLAME_USER_ANALYSIS_LOADER_WORKER_STACKS_H
#define STEPFLAME_USER_ANALYSIS_LOADER_WORKER_STACKS_H

#include "user/model/job.h"

/* Where a worker is. */
enum worker_stack {
	STACK_OTHER,
	STACK_WORKS,  /* in its loop, or in the thread that sends batches */
	STACK_IDLE,   /* there, but waiting for something to load or send */
	STACK_TAKES,  /* in any process: takes over memory that another process shares */
	STACK_STARTS, /* in the process of the DataLoader: starts workers, or ends them */
};

/* enum worker_stack by stack, malloc'ed. NULL: no memory. */
uint8_t *worker_stacks__new(const struct job *job);
/* By stack: whether a batch is made from an IterableDataset; malloc'ed. NULL: no memory. */
bool *worker_stacks__streams(const struct job *job);

#endif
