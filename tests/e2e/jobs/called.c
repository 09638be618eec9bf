// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* called GO N [PROGRAM GO2]: once the file GO is there, calls work() N times; or runs PROGRAM GO2 N, and waits for its end. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int work(int i)
{
	__asm__ volatile("" : "+r"(i));
	return i + 1;
}

int main(int argc, char **argv)
{
	int n = 0;

	printf("ready %d\n", getpid());
	fflush(stdout);
	while (access(argv[1], F_OK))
		usleep(1000);
	if (argc > 3 && !fork())
		execl(argv[3], argv[3], argv[4], argv[2], NULL);
	if (argc > 3)
		wait(NULL);
	else
		while (n < atoi(argv[2]))
			n = work(n);
	return 0;
}
