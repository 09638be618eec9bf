// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Samples: a timer on each CPU, whose program the kernel runs; and what its records lack: the lines of a function,
 * which are in its process, and the names of native and kernel addresses.
 */
#include "samples.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../log.h"
#include "stepflame.skel.h"

struct samples {
	size_t timer_cnt;
	struct bpf_link *timers[];
};

static int timer__open(int cpu, uint64_t period_ns)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = period_ns,
	};
	int fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int timer__start(struct session *s, int cpu)
{
	int fd = timer__open(cpu, 1000000000 / s->options.frequency);
	struct bpf_link *link;

	if (fd == -ENODEV || fd == -ENOENT) /* a CPU that is not there */
		return 0;
	if (fd < 0)
		return fd;
	link = bpf_program__attach_perf_event(s->skel->progs.sample_timer, fd);
	if (!link) {
		int err = -errno;

		close(fd);
		return err;
	}
	s->samples->timers[s->samples->timer_cnt++] = link;
	return 0;
}

int samples__start(struct session *s)
{
	int cpus = libbpf_num_possible_cpus(), err = 0;

	if (!s->options.frequency)
		return 0;
	if (cpus < 0)
		return cpus;
	s->samples = calloc(1, sizeof(*s->samples) + cpus * sizeof(s->samples->timers[0]));
	if (!s->samples)
		return -ENOMEM;
	for (int cpu = 0; cpu < cpus && !err; cpu++)
		err = timer__start(s, cpu);
	if (err)
		log__error("record with -F 0, or give CAP_PERFMON", "cannot start the timer that samples: %s",
			   strerror(-err));
	return err;
}

/* Lets sample_threads see each thread of the host. */
static int visit_threads(struct session *s, bool at_close)
{
	struct bpf_link *link;
	int err = 0, fd;
	char nothing[64];

	if (!s->samples)
		return 0;
	s->skel->bss->waits_end = at_close;
	link = bpf_program__attach_iter(s->skel->progs.sample_threads, NULL);
	if (!link)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(link));
	if (fd < 0 || read(fd, nothing, sizeof(nothing)) < 0)
		err = -errno;
	if (fd >= 0)
		close(fd);
	bpf_link__destroy(link);
	return err;
}

int samples__open(struct session *s)
{
	return visit_threads(s, false);
}

int samples__close(struct session *s)
{
	return visit_threads(s, true);
}

void samples__stop(struct session *s)
{
	if (!s->samples)
		return;
	for (size_t i = 0; i < s->samples->timer_cnt; i++)
		bpf_link__destroy(s->samples->timers[i]);
	s->samples->timer_cnt = 0;
}

void samples__free(struct session *s)
{
	samples__stop(s);
	free(s->samples);
	s->samples = NULL;
}

int samples__code(struct session *s, const struct rec_code *rec)
{
	return session__emit(s, &rec->hdr);
}

int samples__sample(struct session *s, const struct rec_sample *rec)
{
	struct rec_sample named = *rec;

	named.native = named.kernel = 0;
	return session__emit(s, &named.hdr);
}
