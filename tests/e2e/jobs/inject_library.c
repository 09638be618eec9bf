// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A library to be injected, which says in the file INJECT_LOG (of the environment) that it was called, by which thread, with
 * which signals blocked, and does what is likely to meet a lock: memory, a thread, the loader.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __thread char local[20000];

static void *thread(void *arg)
{
	memset(local, 1, sizeof(local));
	return arg;
}

int InitializeInjection(void)
{
	const char *path = getenv("INJECT_LOG");
	FILE *log = path ? fopen(path, "a") : NULL;
	sigset_t blocked;
	pthread_t other;

	memset(local, 2, sizeof(local));
	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	for (int i = 0; i < 1000; i++)
		free(malloc(i * 97));
	if (!pthread_create(&other, NULL, thread, NULL))
		pthread_join(other, NULL);
	dlopen("libm.so.6", RTLD_NOW);
	if (log) {
		fprintf(log, "pid %d tid %d int %d usr1 %d\n", getpid(), gettid(), sigismember(&blocked, SIGINT),
			sigismember(&blocked, SIGUSR1));
		fclose(log);
	}
	return 42;
}
