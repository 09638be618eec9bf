// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * inject PID LIBRARY FUNCTION: loads a library into a running process and calls int FUNCTION(void) of it, as record --inject does,
 * but whatever they are. For developers and tests.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/session/sources/inject.h"

int main(int argc, char **argv)
{
	struct remote_load load;
	struct process process;
	int err;

	if (argc != 4) {
		fprintf(stderr, "Usage: inject PID LIBRARY FUNCTION\n");
		return 2;
	}
	err = process__read(atoi(argv[1]), &process);
	if (!err) {
		err = inject__load(&process, argv[2], argv[3], &load);
		process__release(&process);
		printf("tid=%d stopped_us=%llu loaded_us=%llu result=%d why=%s\n", load.tid,
		       (unsigned long long)load.stopped_ns / 1000, (unsigned long long)load.loaded_ns / 1000,
		       load.result, load.why);
	}
	if (err)
		fprintf(stderr, "inject: %s\n", strerror(-err));
	return err ? 1 : 0;
}
