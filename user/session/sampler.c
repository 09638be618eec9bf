// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Samples: a timer on each CPU, whose program the kernel runs; and what its records lack: the lines of a function,
 * from the table that came with it, and the names of native and kernel addresses.
 */
#include "user/session/sampler.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stepflame.skel.h"
#include "user/lib/log.h"
#include "user/proc/symbols.h"
#include "user/runtime/python/pylines.h"
#include "user/session/programs.h"
#include "user/session/waiting.h"

#define SENT_SYMBOLS 1024 /* a power of two */

/* A period lasts so long, and so many of itself. */
#define SPELL_NS      90000000
#define SPELL_PERIODS 9

struct sampler {
	struct symbols *symbols;
	uint64_t sent[SENT_SYMBOLS]; /* ids of texts that the sink has, by their low bits */
	struct waiting waiting;
	uint64_t spell_start_ns;
	unsigned int seed;
	int cpus;                   /* possible ones */
	struct timer_spell *spells; /* by CPU, as BPF knows them */
	size_t timer_cnt;
	struct timer {
		struct bpf_link *link;
		int fd; /* the link's */
		int cpu;
	} timers[];
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
	s->sampler->timers[s->sampler->timer_cnt++] = (struct timer){link, fd, cpu};
	return 0;
}

static int tell_spells(struct session *s)
{
	const __u32 zero = 0;

	return bpf_map__update_elem(s->skel->maps.timer_spells, &zero, sizeof(zero), s->sampler->spells,
				    s->sampler->cpus * sizeof(*s->sampler->spells), BPF_ANY);
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
	s->sampler->spell_start_ns = session__now_ns();
	s->sampler->seed = (unsigned int)s->sampler->spell_start_ns;
	s->sampler->symbols = symbols__new();
	s->sampler->cpus = cpus;
	s->sampler->spells = calloc(cpus, sizeof(*s->sampler->spells));
	if (!s->sampler->symbols || !s->sampler->spells)
		return -ENOMEM;
	for (int cpu = 0; cpu < cpus; cpu++)
		s->sampler->spells[cpu].period_ns = 1000000000 / s->options.frequency;
	err = tell_spells(s);
	for (int cpu = 0; cpu < cpus && !err; cpu++)
		err = timer__start(s, cpu);
	if (err)
		log__error("record with -F 0, or give CAP_PERFMON", "cannot start the timer that samples: %s",
			   strerror(-err));
	return err;
}

/*
 * A timer of one period would meet a job of the same rhythm, or of twice that, in the same places always. So each has another
 * one in each spell: of a rate between half of that asked for and one and a half, any as likely as any other. A new
 * period begins anew, which costs half a sample on average.
 */
void sampler__tend(struct session *s)
{
	uint64_t now = session__now_ns(), spell_ns;
	double rate;

	if (!s->sampler)
		return;
	spell_ns = now - s->sampler->spell_start_ns;
	if (spell_ns < SPELL_NS || spell_ns < SPELL_PERIODS * 1000000000ULL / s->options.frequency)
		return;
	s->sampler->spell_start_ns = now;
	rate = s->options.frequency + 0.5e9 / spell_ns;
	for (size_t i = 0; i < s->sampler->timer_cnt; i++) {
		double any = (double)rand_r(&s->sampler->seed) / RAND_MAX;
		struct timer_spell *spell = &s->sampler->spells[s->sampler->timers[i].cpu];

		*spell = (struct timer_spell){now, 1e9 / (rate * (0.5 + any)), spell->period_ns};
		ioctl(s->sampler->timers[i].fd, PERF_EVENT_IOC_PERIOD, &spell->period_ns);
	}
	tell_spells(s);
}

/* Lets sample_threads see each thread of the host. */
static int visit_threads(struct session *s, enum thread_visit visit)
{
	if (!s->sampler)
		return 0;
	s->skel->bss->thread_visit = visit;
	return programs__iterate(s->skel->progs.sample_threads);
}

int sampler__open(struct session *s)
{
	int err = visit_threads(s, VISIT_OPEN);

	if (s->sampler && !err)
		err = waiting__read(s, &s->sampler->waiting);
	return err;
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
		bpf_link__destroy(s->sampler->timers[i].link);
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
	clear(s->skel->maps.arounds);
}

void sampler__free(struct session *s)
{
	sampler__stop(s);
	if (s->sampler) {
		symbols__free(s->sampler->symbols);
		waiting__free(&s->sampler->waiting);
		free(s->sampler->spells);
	}
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

bool *sampler__lined(struct session *s, uint64_t code, bool *again)
{
	uint32_t number;

	if (intern__add(&s->codes, code, &number))
		return NULL;
	*again = number < s->codes_lined.cnt;
	if (array__grow(&s->codes_lined, intern__end(&s->codes), sizeof(bool)))
		return NULL;
	return (bool *)s->codes_lined.items + number;
}

/* Each process tells of its functions, which most others have, too; one that ended meanwhile has no lines to read. */
int sampler__code(struct session *s, const struct rec_code *rec)
{
	const struct py_layout *layout = layout_of(s, rec->pid);
	struct rec_code *complete = NULL, bare = *rec;
	bool *lined, again;
	int err;

	lined = sampler__lined(s, rec->id, &again);
	if (!lined)
		return -ENOMEM;
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
	if (!named.stack)
		named.stack = waiting__stack(&sampler->waiting, rec);
	named.kernel = rec->kernel ? symbol_id(s, symbols__kernel(sampler->symbols, rec->kernel)) : 0;
	return session__emit(s, &named.hdr);
}

void sampler__forget(struct session *s, pid_t pid)
{
	if (s->sampler)
		symbols__forget(s->sampler->symbols, pid);
}
