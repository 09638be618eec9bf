// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Samples: a timer on each CPU, whose program the kernel runs; and what its records lack: the lines of a function,
 * from the table that came with it, and the names of native and kernel addresses.
 */
#include "sampler.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../log.h"
#include "../target/pylines.h"
#include "../target/symbols.h"
#include "stepflame.skel.h"

#define SENT_SYMBOLS 1024 /* a power of two */

struct sampler {
	struct symbols *symbols;
	uint64_t sent[SENT_SYMBOLS]; /* ids of texts that the sink has, by their low bits */
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
	s->sampler->timers[s->sampler->timer_cnt++] = link;
	return 0;
}

int sampler__start(struct session *s)
{
	int cpus = libbpf_num_possible_cpus(), err = 0;

	if (!s->options.frequency)
		return 0;
	if (cpus < 0)
		return cpus;
	s->sampler = calloc(1, sizeof(*s->sampler) + cpus * sizeof(s->sampler->timers[0]));
	if (!s->sampler)
		return -ENOMEM;
	s->sampler->symbols = symbols__new();
	if (!s->sampler->symbols)
		return -ENOMEM;
	for (int cpu = 0; cpu < cpus && !err; cpu++)
		err = timer__start(s, cpu);
	if (err)
		log__error("record with -F 0, or give CAP_PERFMON", "cannot start the timer that samples: %s",
			   strerror(-err));
	return err;
}

/* Lets sample_threads see each thread of the host. */
static int visit_threads(struct session *s, enum thread_visit visit)
{
	struct bpf_link *link;
	int err = 0, fd;
	char nothing[64];

	if (!s->sampler)
		return 0;
	s->skel->bss->thread_visit = visit;
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

int sampler__open(struct session *s)
{
	return visit_threads(s, VISIT_OPEN);
}

int sampler__cut(struct session *s)
{
	return visit_threads(s, VISIT_CUT);
}

int sampler__close(struct session *s)
{
	return visit_threads(s, VISIT_CLOSE);
}

void sampler__stop(struct session *s)
{
	if (!s->sampler)
		return;
	for (size_t i = 0; i < s->sampler->timer_cnt; i++)
		bpf_link__destroy(s->sampler->timers[i]);
	s->sampler->timer_cnt = 0;
}

static void clear(const struct bpf_map *map)
{
	uint64_t key;

	while (!bpf_map_get_next_key(bpf_map__fd(map), NULL, &key) && !bpf_map_delete_elem(bpf_map__fd(map), &key))
		;
}

void sampler__resend_stacks(struct session *s)
{
	clear(s->skel->maps.stacks);
	clear(s->skel->maps.paths);
}

void sampler__free(struct session *s)
{
	sampler__stop(s);
	if (s->sampler)
		symbols__free(s->sampler->symbols);
	free(s->sampler);
	s->sampler = NULL;
}

/* How the interpreter of a process lays its objects out. A child that was not looked at yet is a fork of some target. */
static const struct py_layout *layout_of(struct session *s, pid_t pid)
{
	struct target *t = targets__find(s, pid);

	for (size_t i = 0; (!t || !t->has_python) && i < s->target_cnt; i++)
		t = s->targets[i];
	return t && t->has_python ? &t->python.process.layout : NULL;
}

/* Each process tells of its functions, which most others have, too; one that ended meanwhile has no lines to read. */
int sampler__code(struct session *s, const struct rec_code *rec)
{
	const struct py_layout *layout = layout_of(s, rec->pid);
	struct rec_code *complete = NULL, bare = *rec;
	uint32_t number;
	bool *lined, again;
	int err;

	if (intern__add(&s->codes, rec->id, &number))
		return -ENOMEM;
	again = number < s->codes_lined.cnt;
	if (array__grow(&s->codes_lined, intern__end(&s->codes), sizeof(*lined)))
		return -ENOMEM;
	lined = (bool *)s->codes_lined.items + number;
	if (*lined)
		return 0;
	err = layout ? py_lines__complete(layout, rec, &complete) : -ESRCH;
	*lined = !err;
	s->lines_lost += (err && !again) - (!err && again);
	bare.line_table = bare.table_bytes = 0;
	bare.hdr.size = sizeof(bare);
	err = session__emit(s, err ? &bare.hdr : &complete->hdr);
	free(complete);
	return err;
}

/* The id of a symbol's text, which the sink has been handed; 0: there is no text. */
static uint64_t symbol_id(struct session *s, const char *text)
{
	uint64_t id = text ? session__name_id(text) : 0;
	uint64_t *slot = &s->sampler->sent[id % SENT_SYMBOLS];

	if (id && *slot != id) {
		session__emit_name(s, text);
		*slot = id;
	}
	return id;
}

int sampler__sample(struct session *s, const struct rec_sample *rec)
{
	struct sampler *sampler = s->sampler;
	struct rec_sample named = *rec;

	if (!sampler)
		return 0;
	named.native = symbol_id(s, symbols__user(sampler->symbols, rec->pid, rec->native));
	named.kernel = rec->kernel ? symbol_id(s, symbols__kernel(sampler->symbols, rec->kernel)) : 0;
	return session__emit(s, &named.hdr);
}

void sampler__forget(struct session *s, pid_t pid)
{
	if (s->sampler)
		symbols__forget(s->sampler->symbols, pid);
}
