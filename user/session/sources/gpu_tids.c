// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/sources/gpu_tids.h"

#include <stdlib.h>

#include "include/records.h"
#include "user/proc/task.h"

#define THREADS_NS 200000000ULL /* interval between readings of the list of threads */

/* Keeps the old list if the threads can no longer be read. */
static void read_thread_list(struct gpu_tids *t, pid_t pid, uint64_t now)
{
	pid_t *tids = NULL, *nstids;
	int cnt = task__list(pid, &tids);

	t->read_ns = now;
	nstids = cnt > 0 ? reallocarray(NULL, cnt, sizeof(*nstids)) : NULL;
	if (!nstids) {
		free(tids);
		return;
	}
	free(t->tids);
	free(t->nstids);
	*t = (struct gpu_tids){tids, nstids, cnt, now};
	for (int i = 0; i < cnt; i++) {
		struct task task;

		nstids[i] = task__read(pid, tids[i], &task) ? 0 : task.nstid;
	}
}

pid_t gpu_tids__translate(struct gpu_tids *t, const struct process *process, uint32_t tid, uint64_t now)
{
	if (process->nspid == process->pid)
		return tid < 1u << REC_PID_BITS ? tid : 0;
	for (int turn = 0; turn < 2; turn++) {
		for (int i = 0; i < t->cnt; i++)
			if (t->nstids[i] == (pid_t)tid)
				return t->tids[i];
		if (turn || now - t->read_ns < THREADS_NS)
			break;
		read_thread_list(t, process->pid, now);
	}
	return 0;
}

void gpu_tids__release(struct gpu_tids *t)
{
	free(t->tids);
	free(t->nstids);
}
