// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/selftest.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <regex.h>
#include <stdlib.h>
#include <sys/param.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "include/probes.h"
#include "stepflame.skel.h"
#include "user/lib/clock.h"
#include "user/lib/percentile.h"
#include "user/proc/process.h"

#define CALLS          25     /* in a row, */
#define BATCHES        5      /* and so often, */
#define BREAK_NS       500000 /* with this in between */
#define EVICTING_BYTES (256 << 10)
#define AFTER_MAX      4 /* times a hit: more was another program */

/* Begins with an instruction that the kernel emulates, like the sites of landmarks. */
void selftest_target(void);
__asm__(".text\n"
	".globl selftest_target\n"
	".type selftest_target, @function\n"
	"selftest_target:\n"
	"	push %rbp\n"
	"	pop %rbp\n"
	"	ret\n"
	".size selftest_target, . - selftest_target\n");

static int find_target_offset(struct dl_phdr_info *info, size_t size, void *ctx)
{
	uint64_t *offset = ctx, vaddr = (uint64_t)selftest_target - info->dlpi_addr;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && vaddr - p->p_vaddr < p->p_filesz)
			*offset = vaddr - p->p_vaddr + p->p_offset;
	}
	return 1; /* the first object is the program itself */
}

static int find_own_file(const struct mapping *map, void *ctx)
{
	struct probe_list *list = ctx;

	if ((uint64_t)selftest_target - map->start >= map->end - map->start)
		return 0;
	list->dev = map->dev;
	list->inode = map->inode;
	return 1;
}

static int compare_times(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void do_nothing(void)
{
}

/* Code with many branches, always the same, as a training step is: a processor learns them. */
static void match_a_pattern(void)
{
	regex_t pattern;

	if (regcomp(&pattern, "a[bc]*(d|e)+f", REG_EXTENDED))
		return;
	(void)!regexec(&pattern, "xxabcbcdeeef", 0, NULL, 0);
	regfree(&pattern);
}

/*
 * Median time of a call with the work after it. Before each call, the loop does the work, and evicts
 * the kernel's trap handling from the first-level caches, as a training step does.
 */
static uint64_t median_ns(void (*call)(void), void (*work)(void))
{
	static volatile char evicting[EVICTING_BYTES];
	uint64_t ns[CALLS];

	for (int i = 0; i < CALLS; i++) {
		for (size_t k = 0; k < sizeof(evicting); k += 64)
			evicting[k]++;
		work();
		ns[i] = clock__ns(CLOCK_MONOTONIC);
		call();
		work();
		ns[i] = clock__ns(CLOCK_MONOTONIC) - ns[i];
	}
	qsort(ns, CALLS, sizeof(*ns), compare_times);
	return ns[percentile__index(CALLS, 50)];
}

/* Of the batches the fastest: a neighbour on the same core makes some of them slow. */
static uint64_t least_ns(void (*call)(void), void (*work)(void))
{
	const struct timespec pause = {.tv_nsec = BREAK_NS};
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < BATCHES; i++) {
		uint64_t ns;

		nanosleep(&pause, NULL);
		ns = median_ns(call, work);
		least = MIN(least, ns);
	}
	return least;
}

struct call_times {
	uint64_t ns, with_work_ns;
};

static void *call_target(void *arg)
{
	*(struct call_times *)arg = (struct call_times){
		.ns = least_ns(selftest_target, do_nothing),
		.with_work_ns = least_ns(selftest_target, match_a_pattern),
	};
	return NULL;
}

static void call_getppid(void)
{
	syscall(SYS_getppid);
}

uint64_t selftest__call_ns(void)
{
	return least_ns(call_getppid, do_nothing);
}

static uint64_t beyond(uint64_t ns, uint64_t than_ns)
{
	return ns > than_ns ? ns - than_ns : 0;
}

static int test_probe(struct stepflame_bpf *skel, struct attacher *attacher, struct probe_list *list,
		      struct selftest *out)
{
	struct attachment *attachment;
	pthread_t thread;
	struct call_times probed, unprobed;
	uint64_t hit_ns, longer_ns;
	int err;

	call_target(&unprobed);
	err = attachment__new(skel->progs.probe, attacher, getpid(), list, &attachment);
	if (err)
		return err;
	skel->bss->test_hits = 0;
	err = -pthread_create(&thread, NULL, call_target, &probed);
	if (!err)
		pthread_join(thread, NULL);
	attachments__free(&attachment, 1);
	if (err)
		return err;
	if (skel->bss->test_hits != 2 * BATCHES * CALLS)
		return -EOPNOTSUPP;
	hit_ns = beyond(probed.ns, unprobed.ns);
	longer_ns = beyond(probed.with_work_ns, unprobed.with_work_ns);
	*out = (struct selftest){.attacher = *attacher,
				 .hit_ns = hit_ns,
				 .after_ns = MIN(beyond(longer_ns, hit_ns), AFTER_MAX * hit_ns),
				 .pid_level = skel->bss->test_level,
				 .pid_ns = skel->bss->test_ns};
	return 0;
}

int selftest__run(struct stepflame_bpf *skel, enum attach_backend backend, struct selftest *out)
{
	struct attacher attacher = {.backend = backend, .cookies_fd = bpf_map__fd(skel->maps.probe_cookies)};
	struct probe_list list = {.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
	uint64_t offset = 0;
	int fd = list.fd, err = fd < 0 ? -errno : 0;

	dl_iterate_phdr(find_target_offset, &offset);
	process__each_mapping(getpid(), find_own_file, &list);
	err = err ?: probe_list__add(&list, offset, COOKIE(PROBE_TEST, 0, 0, 0)) ?: test_probe(skel, &attacher, &list, out);
	probe_list__release(&list);
	if (fd >= 0)
		close(fd);
	return err;
}
