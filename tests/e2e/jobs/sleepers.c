// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Forks so many processes that do nothing, says so, and ends with them when it gets a signal or its parent ends. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int cnt = argc > 1 ? atoi(argv[1]) : 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < cnt; i++) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("fork");
			return 1;
		}
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
	}
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
