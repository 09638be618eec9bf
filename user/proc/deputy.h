/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A child of stepflame that reads from targets in its place. The owner of a process decides how
 * long a read of its memory and files lasts: a page may be behind userfaultfd or FUSE, a path in a
 * file system that does not answer, and a lock of the process held meanwhile. No signal but SIGKILL
 * ends such a read, and some not even that. When the deputy does not return in time, stepflame
 * kills it, starts another one when it next needs one, and leaves that target alone for 10 s, then,
 * if it does not answer either, for twice as long, up to 11 minutes.
 */
#ifndef STEPFLAME_USER_PROC_DEPUTY_H
#define STEPFLAME_USER_PROC_DEPUTY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DEPUTY_IN_BYTES  8192u
#define DEPUTY_OUT_BYTES (64u << 20) /* 64 MiB of maps are some 600,000 mappings */

/* What a work returns. */
struct deputy_out {
	size_t size; /* of the bytes that it has set; 0 at first */
	char bytes[DEPUTY_OUT_BYTES];
};

/*
 * Runs in the deputy, which is a copy of stepflame as it was at some earlier time and has none of
 * its files open: may use nothing but `in`. Returns 0 or -errno, or what its caller understands.
 * It may call what itself runs works; what it returns is set after these.
 */
typedef int (*deputy_work)(const void *in, struct deputy_out *out);

/*
 * Runs a work that reads from a process. in: at most DEPUTY_IN_BYTES, copied. *out (NULL accepted)
 * is what the work has returned, valid until the next call. Returns the work's result; -ETIMEDOUT:
 * the process has not answered in time, now or a while ago; or -errno. Not for several threads at once.
 */
int deputy__run(pid_t pid, deputy_work work, const void *in, size_t in_bytes, const struct deputy_out **out);

/* In a work: keeps a file for deputy__take until the next one is kept. Owns it. */
void deputy__hand(int fd);
/* The file that the last work has handed over, as by O_PATH. A descriptor or -errno. */
int deputy__take(void);

/*
 * For how long to wait for an answer from now on, of each process, also of one that has not answered
 * before; 0: as at first, about 2 s.
 */
void deputy__set_patience(unsigned int ms);

/* Has the last read from this process not returned in time? */
bool deputy__gave_up(pid_t pid);
/* Is it too early to ask this process again? */
bool deputy__refuses(pid_t pid);

/* Is this process the deputy? Then a read is direct. */
bool deputy__is_self(void);

/* The CPU time of the calling thread and of its deputy together. */
uint64_t deputy__cpu_ns(void);

#endif
