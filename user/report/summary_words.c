// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The words of the summary: what classes, causes and times are called there. */
#include <stdio.h>

#include "user/report/summary.h"

const char *summary_words__class(enum verdict_class class)
{
	static const char *const words[] = {
		[VERDICT_UNCLEAR] = "nothing that stands out",
		[VERDICT_INPUT] = "getting the data",
		[VERDICT_PYTHON] = "Python",
		[VERDICT_CPU_OP] = "operators on the CPU",
		[VERDICT_GPU] = "the GPU",
		[VERDICT_LAUNCH] = "launching GPU kernels",
		[VERDICT_COMM] = "communication between ranks",
		[VERDICT_CHECKPOINT] = "writing to disk",
		[VERDICT_MEMORY] = "memory",
		[VERDICT_LOCK] = "locks between threads",
		[VERDICT_STARVED] = "too few free CPUs",
		[VERDICT_COMPILE] = "compiling",
		[VERDICT_COMPUTE] = "computing",
		[VERDICT_VALIDATION] = "validation",
		[VERDICT_EXTRA] = "extra work in some steps",
		[VERDICT_STRAGGLER] = "one slow rank",
	};
	_Static_assert(sizeof(words) / sizeof(*words) == VERDICT__COUNT, "a verdict without words");

	return words[class];
}

const char *summary_words__cause(unsigned int cause)
{
	static const char *const words[] = {
		[CAUSE_RUN_QUEUE] = "waiting for a free CPU",
		[CAUSE_LOCK] = "waiting for a lock",
		[CAUSE_GIL] = "waiting for the GIL",
		[CAUSE_DISK_READ] = "reading from disk",
		[CAUSE_DISK_WRITE] = "writing to disk",
		[CAUSE_FSYNC] = "fsync",
		[CAUSE_PAGE_FAULT] = "waiting for memory (page faults)",
		[CAUSE_SLEEP] = "sleeping",
		[CAUSE_CHILD_WAIT] = "waiting for a child process",
		[CAUSE_PIPE] = "waiting for a pipe",
		[CAUSE_SOCKET] = "waiting for a socket",
		[CAUSE_POLL] = "waiting for files or sockets (poll)",
		[CAUSE_UNKNOWN] = "no single cause",
		[CAUSE_DATA_WAIT] = "waiting for a DataLoader worker",
		[CAUSE_COLLECTIVE] = "waiting for other ranks",
		[CAUSE_GPU_SYNC] = "waiting for the GPU",
		[CAUSE_XLA_WAIT] = "waiting for XLA",
		[BLAME_GC] = "Python's garbage collection",
		[BLAME_CHECKPOINT] = "saving a checkpoint",
		[BLAME_VALIDATION] = "validation",
		[BLAME_COMPILE] = "compiling",
		[BLAME_EXTRA] = "extra work",
		[BLAME_PYTHON] = "more Python on the CPU",
		[BLAME_OP] = "more operators on the CPU",
		[BLAME_NATIVE] = "more native code on the CPU",
		[BLAME_KERNEL] = "more of the kernel on the CPU",
	};
	_Static_assert(sizeof(words) / sizeof(*words) == BLAME__END, "a cause without words");

	return cause < BLAME__END && words[cause] ? words[cause] : "no single cause";
}

const char *summary_words__plural(uint64_t cnt)
{
	return cnt == 1 ? "" : "s";
}

const char *summary_words__duration(double ns, char out[32])
{
	if (ns < 1e6)
		snprintf(out, 32, "%.3g us", ns / 1e3);
	else if (ns < 999.5e6)
		snprintf(out, 32, "%.3g ms", ns / 1e6);
	else
		snprintf(out, 32, "%.*f s", ns < 99.95e9, ns / 1e9);
	return out;
}
