// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/processes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

bool processes__in_scope(const struct job *job, uint32_t row_pid, uint32_t pid)
{
	return pid == PROCESSES_ALL_MAIN ? job__is_main(job, row_pid) : row_pid == pid;
}

int processes__list(const struct job *job, const uint32_t *pids, size_t pid_cnt, struct rec_target **out, size_t *cnt)
{
	size_t target_cnt, used = 0;
	const struct rec_target *targets = job__targets(job, &target_cnt);
	struct rec_target *found = pids ? calloc(pid_cnt + target_cnt + 1, sizeof(*found)) : NULL;

	*out = found;
	*cnt = 0;
	if (!found)
		return -ENOMEM;
	for (size_t t = 0; t < target_cnt; t++) {
		bool has_rows = targets[t].role == ROLE_MAIN;

		for (size_t i = 0; i < pid_cnt && !has_rows; i++)
			has_rows = pids[i] == targets[t].pid;
		if (has_rows)
			found[used++] = targets[t];
	}
	for (size_t i = 0; i < pid_cnt; i++) {
		size_t k = 0;

		while (k < used && found[k].pid != pids[i])
			k++;
		if (k == used)
			found[used++] = (struct rec_target){
				.pid = pids[i],
				.role = job__is_main(job, pids[i]) ? ROLE_MAIN : ROLE_CHILD,
				.rank = -1,
			};
	}
	*cnt = used;
	return 0;
}

char *processes__end_text(int status)
{
	const char *name = WTERMSIG(status) ? sigabbrev_np(WTERMSIG(status)) : NULL;
	char *text;
	int length;

	if (name)
		length = asprintf(&text, "killed by SIG%s", name);
	else if (WTERMSIG(status))
		length = asprintf(&text, "killed by signal %d", WTERMSIG(status));
	else
		length = asprintf(&text, "exit status %d", WEXITSTATUS(status));
	return length < 0 ? NULL : text;
}
