/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * target START_FILE CALLS: waits for START_FILE to appear, then calls vm_work CALLS times in each of two threads and
 * in a forked child, and vm_recurse from the first thread. Both threads exist before the wait, so that a probe which
 * sees only the thread that it was given shows. At the end prints the true counts, the child's apart.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "tests/vm/target.h"

#define RECURSE_DEPTH 9

struct worker {
	const char *start_path;
	int call_cnt;
	int done_cnt;
};

/* Every fourth call returns early. */
static int work(int call_cnt)
{
	int done_cnt = 0;

	for (; done_cnt < call_cnt; done_cnt++)
		vm_work(done_cnt % 4 ? 10 : 0);
	return done_cnt;
}

static void *worker__run(void *arg)
{
	struct worker *w = arg;

	while (access(w->start_path, F_OK))
		usleep(10000);
	w->done_cnt = work(w->call_cnt);
	return NULL;
}

int main(int argc, char **argv)
{
	struct worker w = {};
	pthread_t thread;
	int done_cnt, child_cnt, status;
	pid_t child;

	if (argc != 3) {
		fprintf(stderr, "usage: target START_FILE CALLS\n");
		return 2;
	}
	w.start_path = argv[1];
	w.call_cnt = atoi(argv[2]);
	if (pthread_create(&thread, NULL, worker__run, &w))
		return 1;
	target__wait_or_die(w.start_path);

	done_cnt = work(w.call_cnt);
	vm_recurse(RECURSE_DEPTH);
	pthread_join(thread, NULL);

	child_cnt = w.call_cnt;
	child = fork();
	if (child == 0) {
		work(child_cnt);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		return 1;

	printf("vm_work=%d\nvm_recurse=%d\nvm_work_child=%d\n", done_cnt + w.done_cnt, RECURSE_DEPTH + 1, child_cnt);
	return 0;
}
