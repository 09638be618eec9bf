// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Samples: starts a timer on each CPU, which runs the BPF program, and completes the program's
 * records: the lines of a function, from its line table, the names of native and kernel addresses,
 * and the stacks of waits that are in progress as the window opens or closes. In: the targets. Out:
 * REC_SAMPLE, REC_CODE, REC_STACK.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "include/counters.h"
#include "include/name_hash.h"
#include "stepflame.skel.h"
#include "user/lib/capabilities.h"
#include "user/lib/log.h"
#include "user/lib/map.h"
#include "user/proc/proc.h"
#include "user/proc/symbols.h"
#include "user/proc/task.h"
#include "user/runtime/python/pyframes.h"
#include "user/runtime/python/pylines.h"
#include "user/runtime/python/pythread.h"
#include "user/session/programs.h"
#include "user/session/sources/awaited.h"

/* Threads whose waits were in progress when somebody looked. */
struct waiting {
	struct waiting_thread {
		pid_t pid, tid;
		uint64_t stack;    /* REC_STACK id */
		uint64_t until_ns; /* end of the part of the wait that is known so far */
	} * threads;
	size_t cnt;
};

#define EMITTED_SYMBOLS 1024      /* a power of two */
#define CODES_KEPT      (1 << 20) /* a program may make up any number of functions */
#define RING_BYTES      (4 << 20) /* at first all stacks of a job are new */

/* A timer keeps its period for at least this time, and this many samples at the requested rate. */
#define PERIOD_CHANGE_NS      90000000
#define PERIOD_CHANGE_SAMPLES 9

/* How often to look which CPUs are online; bytes of that list. */
#define CPUS_LOOK_NS  3000000000ull
#define CPUS_TEXT_MAX 65536

/* Session state. */
struct samples {
	struct intern codes;        /* ids of the functions that were emitted */
	struct array lines_emitted; /* bool, by number in `codes`: the sink has the lines */
	uint64_t lines_lost;        /* functions emitted without lines, which BPF does not count */
	struct sampler *sampler;    /* NULL: samples are off */
};

struct sampler {
	struct symbols *symbols;
	uint64_t emitted[EMITTED_SYMBOLS]; /* ids of emitted texts, indexed by their low bits */
	struct waiting waiting;
	uint64_t periods_set_ns;
	unsigned int seed;
	int cpus;                     /* possible CPUs */
	char *online;                 /* those that are, as the kernel says it; owned; NULL: not known */
	uint64_t cpus_seen_ns;        /* at the last look, which was then */
	struct timer_period *periods; /* by CPU; a copy of the map timer_periods */
	size_t timer_cnt;
	struct timer {
		struct bpf_link *link;
		int fd; /* the perf event of the link */
		int cpu;
	} timers[];
};

static struct samples *state_of(const struct session *s)
{
	return session__state(s, SOURCE_SAMPLES);
}

/*
 * Returns the flag that says whether the sink has the lines of function `code`; the caller sets it
 * when it emits them. *again: the function was emitted before. NULL: out of memory. Valid until the
 * next call.
 */
static bool *lines_emitted(struct session *s, uint64_t code, bool *again)
{
	uint32_t number = intern__find(&state_of(s)->codes, code);

	/* Beyond the limit, each function counts as new: number 0. */
	if (!number && intern__end(&state_of(s)->codes) <= CODES_KEPT &&
	    intern__add(&state_of(s)->codes, code, &number))
		return NULL;
	if (!number && state_of(s)->lines_emitted.cnt) {
		*again = *(bool *)state_of(s)->lines_emitted.items = false;
		return state_of(s)->lines_emitted.items;
	}
	*again = number < state_of(s)->lines_emitted.cnt;
	if (array__grow(&state_of(s)->lines_emitted, intern__end(&state_of(s)->codes), sizeof(bool)))
		return NULL;
	return (bool *)state_of(s)->lines_emitted.items + number;
}

/*
 * ---- threads that wait when the window opens or closes ----
 *
 * BPF walks a stack when a wait begins or ends, so it has no stack of those: they are read from
 * outside, as `stepflame dump` does.
 */

#define READING_NS 200000000 /* limit: stepflame does not drain the ring meanwhile */

/*
 * Emits a frame's function if the sink lacks it, and returns its id; 0: the function has no
 * readable name, or memory ran out.
 */
static uint64_t emit_code(struct session *s, pid_t pid, const struct py_frame *frame)
{
	uint64_t file = session__name_id(frame->file), name = session__name_id(frame->name), id;
	uint32_t line_cnt = frame->lines ? frame->lines->line_cnt : 0;
	size_t lines_bytes = line_cnt * sizeof(struct code_line);
	struct rec_code *rec;
	bool *has_lines, again;

	if (!frame->file[0] || !frame->name[0])
		return 0;
	id = name_hash__end(name_hash__add(name_hash__add(file, name), frame->first_line));
	has_lines = lines_emitted(s, id, &again);
	if (!has_lines || *has_lines)
		return has_lines ? id : 0;
	rec = calloc(1, sizeof(*rec) + lines_bytes);
	if (!rec)
		return 0;
	*rec = (struct rec_code){.hdr = {.type = REC_CODE, .size = (uint32_t)(sizeof(*rec) + lines_bytes)},
				 .id = id,
				 .file = session__emit_name(s, frame->file),
				 .name = session__emit_name(s, frame->name),
				 .pid = (uint32_t)pid,
				 .first_line = frame->first_line,
				 .line_cnt = line_cnt};
	if (line_cnt)
		memcpy(rec->lines, frame->lines->lines, lines_bytes);
	*has_lines = line_cnt != 0;
	session__emit(s, &rec->hdr);
	free(rec);
	return id;
}

/*
 * Emits a stack and returns its id, made as in bpf/pystack.h: the same stack has the same id. 0:
 * part of the stack is unknown.
 */
static uint64_t emit_stack(struct session *s, pid_t pid, const struct py_stack *stack)
{
	uint32_t cnt = stack->frame_cnt < STACK_FRAMES_MAX ? stack->frame_cnt : STACK_FRAMES_MAX;
	size_t bytes = sizeof(struct rec_stack) + cnt * sizeof(struct stack_frame);
	uint64_t hash = name_hash__seed(0, 0);
	struct rec_stack *rec = calloc(1, bytes);
	uint32_t i = 0;

	if (!rec)
		return 0;
	for (; i < cnt; i++) {
		struct stack_frame *frame = &rec->frames[i];

		frame->offset = stack->frames[i].offset;
		frame->code = emit_code(s, pid, &stack->frames[i]);
		if (!frame->code)
			break;
		hash = name_hash__add(name_hash__add(hash, frame->code), frame->offset);
	}
	rec->hdr = (struct rec_hdr){.type = REC_STACK, .size = (uint32_t)bytes};
	rec->frame_cnt = cnt;
	rec->cut = stack->cut || cnt < stack->frame_cnt;
	rec->id = cnt && i == cnt ? name_hash__end(name_hash__add(hash, rec->cut ? CNT_STACK_CUT + 1 : 0)) : 0;
	if (rec->id)
		session__emit(s, &rec->hdr);
	hash = rec->id;
	free(rec);
	return hash;
}

static void waiting__forget(struct waiting *waiting, pid_t pid)
{
	size_t kept = 0;

	for (size_t i = 0; i < waiting->cnt; i++)
		if (waiting->threads[i].pid != pid)
			waiting->threads[kept++] = waiting->threads[i];
	waiting->cnt = kept;
}

/* Reads the stack of a thread, and keeps it if the thread was waiting all the time. */
static int read_waiting_thread(struct session *s, struct waiting *waiting, const struct target *t, pid_t tid,
			       struct py_thread *states, int cnt)
{
	struct waiting_thread *more, seen = {.pid = t->process.pid, .tid = tid};
	const struct python *python = &t->python;
	struct py_thread *state;
	uint64_t runs, runs_after;
	struct py_stack stack;
	pid_t nstid;
	int err;

	if (task__waits(seen.pid, tid, &nstid, &runs))
		return 0;
	state = py_thread__of(seen.pid, nstid, python->process.tss_offset, states, cnt);
	if (!state)
		return 0;
	err = py_stack__read(seen.pid, &python->process, state->tstate, true, &stack);
	seen.until_ns = session__now_ns();
	if (!err && !stack.moving && !task__runs(seen.pid, tid, &runs_after) && runs == runs_after)
		seen.stack = emit_stack(s, seen.pid, &stack);
	py_stack__release(&stack);
	if (!seen.stack)
		return 0;
	more = reallocarray(waiting->threads, waiting->cnt + 1, sizeof(*more));
	if (!more)
		return -ENOMEM;
	waiting->threads = more;
	more[waiting->cnt++] = seen;
	return 0;
}

/*
 * Reads the stacks of all waiting threads of the targets (group: of these; NULL: of all) and hands them to the sink. It forgets those
 * that it saw earlier: a wait that goes on is seen again. Its time is limited: in a job with a thousand
 * such threads it reads only some. 0 or -errno of the sink.
 */
static int waiting__read(struct session *s, struct waiting *waiting, const uint32_t *group)
{
	uint64_t end_ns = session__now_ns() + READING_NS;
	int err = 0;

	for (size_t i = 0; i < s->target_cnt && !err; i++) {
		const struct target *t = s->targets[i];
		struct py_thread *states = NULL;
		pid_t *tids = NULL;
		int state_cnt, cnt;

		if (group && t->group != *group)
			continue;
		state_cnt = t->has_python ? py_thread__list_still(t->process.pid, &t->python, &states) : 0;
		cnt = state_cnt > 0 ? task__list(t->process.pid, &tids) : 0;
		waiting__forget(waiting, t->process.pid);
		for (int k = 0; k < cnt && !err && session__now_ns() < end_ns; k++)
			err = read_waiting_thread(s, waiting, t, tids[k], states, state_cnt);
		free(states);
		free(tids);
	}
	return err ?: s->sink_err;
}

static void waiting__free(struct waiting *waiting)
{
	free(waiting->threads);
}

/*
 * The stack for a sample without one: 0, unless waiting__read saw the thread in that wait.
 *
 * A wait may arrive in parts (blocked and queued, or cut for a live view), each of which goes on
 * where the one before ended. A later wait begins after that time, since the thread ran in between.
 */
static uint64_t waiting__stack(struct waiting *waiting, const struct rec_sample *sample)
{
	if (sample->kind != SAMPLE_WAIT || sample->waits != 1)
		return 0;
	for (size_t i = 0; i < waiting->cnt; i++) {
		struct waiting_thread *thread = &waiting->threads[i];

		if ((pid_t)sample->tid != thread->tid || (pid_t)sample->pid != thread->pid)
			continue;
		if (sample->time_ns < thread->until_ns || sample->time_ns - sample->weight_ns > thread->until_ns)
			return 0;
		thread->until_ns = sample->time_ns;
		return thread->stack;
	}
	return 0;
}

/* ---- the session ---- */

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

	if (fd == -ENODEV || fd == -ENOENT) /* the CPU is offline or absent */
		return 0;
	if (fd < 0)
		return fd;
	link = bpf_program__attach_perf_event(s->skel->progs.sample_timer, fd);
	if (!link) {
		int err = -errno;

		close(fd);
		return err;
	}
	state_of(s)->sampler->timers[state_of(s)->sampler->timer_cnt++] = (struct timer){link, fd, cpu};
	return 0;
}

static int update_timer_periods(struct session *s)
{
	const __u32 zero = 0;

	return bpf_map__update_elem(s->skel->maps.timer_periods, &zero, sizeof(zero), state_of(s)->sampler->periods,
				    state_of(s)->sampler->cpus * sizeof(*state_of(s)->sampler->periods), BPF_ANY);
}

static void timer__stop(struct sampler *sampler, int cpu)
{
	for (size_t i = 0; i < sampler->timer_cnt; i++) {
		if (sampler->timers[i].cpu != cpu)
			continue;
		bpf_link__destroy(sampler->timers[i].link);
		sampler->timers[i] = sampler->timers[--sampler->timer_cnt];
		return;
	}
}

/* Is it in a list of the kernel, as "0-3,8"? */
static bool is_listed(const char *list, int cpu)
{
	int first, last, read;

	for (; sscanf(list, "%d%n", &first, &read) == 1; list += *list == ',') {
		list += read;
		last = first;
		if (sscanf(list, "-%d%n", &last, &read) == 1)
			list += read;
		if (cpu >= first && cpu <= last)
			return true;
	}
	return false;
}

/* A timer ends when its CPU goes offline, and does not begin again with the CPU. */
static void look_at_cpus(struct session *s, uint64_t now)
{
	struct sampler *sampler = state_of(s)->sampler;
	char *before = sampler->online;
	size_t size, came = 0;

	if (before && now - sampler->cpus_seen_ns < CPUS_LOOK_NS)
		return;
	sampler->cpus_seen_ns = now;
	if (proc__slurp_path("/sys/devices/system/cpu/online", CPUS_TEXT_MAX, &sampler->online, &size)) {
		sampler->online = before;
		return;
	}
	for (int cpu = 0; before && strcmp(before, sampler->online) != 0 && cpu < sampler->cpus; cpu++) {
		if (is_listed(before, cpu) || !is_listed(sampler->online, cpu))
			continue;
		timer__stop(sampler, cpu);
		sampler->periods[cpu] = (struct timer_period){now, 1000000000 / s->options.frequency, 0};
		came += !timer__start(s, cpu);
	}
	free(before);
	if (!came)
		return;
	update_timer_periods(s);
	session__note(s, "%zu processors came online, which had no timer for up to %llu s: samples may be missing",
		      came, CPUS_LOOK_NS / 1000000000);
}

/* Starts one timer per CPU. */
static int start(struct session *s)
{
	int cpus = libbpf_num_possible_cpus(), err = 0;

	if (!s->options.frequency)
		return 0;
	if (cpus < 0)
		return cpus;
	state_of(s)->sampler =
		calloc(1, sizeof(*state_of(s)->sampler) + cpus * sizeof(state_of(s)->sampler->timers[0]));
	if (!state_of(s)->sampler)
		return -ENOMEM;
	state_of(s)->sampler->periods_set_ns = session__now_ns();
	state_of(s)->sampler->seed = (unsigned int)state_of(s)->sampler->periods_set_ns;
	state_of(s)->sampler->symbols = symbols__new();
	state_of(s)->sampler->cpus = cpus;
	state_of(s)->sampler->periods = calloc(cpus, sizeof(*state_of(s)->sampler->periods));
	if (!state_of(s)->sampler->symbols || !state_of(s)->sampler->periods)
		return -ENOMEM;
	for (int cpu = 0; cpu < cpus; cpu++)
		state_of(s)->sampler->periods[cpu].period_ns = 1000000000 / s->options.frequency;
	look_at_cpus(s, state_of(s)->sampler->periods_set_ns);
	err = update_timer_periods(s);
	for (int cpu = 0; cpu < cpus && !err; cpu++)
		err = timer__start(s, cpu);
	if (err && perf_events__denied()) {
		log__error("record with -F 0; or " PERF_EVENTS_FIX,
			   "cannot start the timer that samples: " PERF_EVENTS_DENIED);
		return -EPERM;
	}
	if (err)
		log__error("record with -F 0, or give CAP_PERFMON", "cannot start the timer that samples: %s",
			   strerror(-err));
	return err;
}

/*
 * A timer with a constant period would sample a job with the same rhythm, or twice that, always in
 * the same places. So each timer gets a new period now and then: its rate is uniformly distributed
 * between 0.5 and 1.5 times the requested rate. Setting a period restarts the timer, which costs
 * half a sample on average; a higher rate makes up for that.
 */
static void tend(struct session *s)
{
	uint64_t now = session__now_ns(), elapsed_ns;
	double rate;

	if (!state_of(s)->sampler)
		return;
	look_at_cpus(s, now);
	elapsed_ns = now - state_of(s)->sampler->periods_set_ns;
	if (elapsed_ns < PERIOD_CHANGE_NS || elapsed_ns < PERIOD_CHANGE_SAMPLES * 1000000000ULL / s->options.frequency)
		return;
	state_of(s)->sampler->periods_set_ns = now;
	rate = s->options.frequency + 0.5e9 / elapsed_ns;
	for (size_t i = 0; i < state_of(s)->sampler->timer_cnt; i++) {
		double uniform = (double)rand_r(&state_of(s)->sampler->seed) / RAND_MAX;
		struct timer_period *period = &state_of(s)->sampler->periods[state_of(s)->sampler->timers[i].cpu];

		*period = (struct timer_period){now, 1e9 / (rate * (0.5 + uniform)), period->period_ns};
		ioctl(state_of(s)->sampler->timers[i].fd, PERF_EVENT_IOC_PERIOD, &period->period_ns);
	}
	update_timer_periods(s);
}

/* Runs sample_threads on each thread of the host. */
static int visit_threads(struct session *s, enum thread_visit visit)
{
	if (!state_of(s)->sampler)
		return 0;
	s->skel->bss->thread_visit = visit;
	return programs__iterate(s->skel->progs.sample_threads);
}

/* Makes waits in progress begin now, and reads their stacks. */
static int open_windows_of(struct session *s, const uint32_t *group)
{
	int err = visit_threads(s, VISIT_OPEN);

	if (state_of(s)->sampler && !err)
		err = waiting__read(s, &state_of(s)->sampler->waiting, group);
	return err;
}

static int open_windows(struct session *s)
{
	return open_windows_of(s, NULL);
}

static void cut(struct session *s)
{
	visit_threads(s, VISIT_CUT);
}

/* Of the waits in progress, BPF has walked the stacks of the long ones only. */
static void close_windows(struct session *s)
{
	if (state_of(s)->sampler && bpf_program__autoload(s->skel->progs.sample_switch_later))
		waiting__read(s, &state_of(s)->sampler->waiting, NULL);
	visit_threads(s, VISIT_CLOSE);
}

/* Waits in progress end with the window of their process. */
static void rest(struct session *s, uint32_t group)
{
	if (state_of(s)->sampler && bpf_program__autoload(s->skel->progs.sample_switch_later)) {
		session__read_ring(s); /* waits that have ended since then need what was seen before */
		waiting__read(s, &state_of(s)->sampler->waiting, &group);
	}
	visit_threads(s, VISIT_REST);
}

static void wake(struct session *s, uint32_t group)
{
	open_windows_of(s, &group);
}

static void stop_timers(struct session *s)
{
	if (!state_of(s)->sampler)
		return;
	for (size_t i = 0; i < state_of(s)->sampler->timer_cnt; i++)
		bpf_link__destroy(state_of(s)->sampler->timers[i].link);
	state_of(s)->sampler->timer_cnt = 0;
}

static void clear_map(const struct bpf_map *map)
{
	uint64_t key;

	while (!bpf_map_get_next_key(bpf_map__fd(map), NULL, &key) && !bpf_map_delete_elem(bpf_map__fd(map), &key))
		;
}

static void resend(struct session *s)
{
	clear_map(s->skel->maps.stacks);
	clear_map(s->skel->maps.paths);
	clear_map(s->skel->maps.arounds);
	s->skel->bss->stacks_again++;
}

static void free_sampler(struct session *s)
{
	struct samples *own = state_of(s);

	stop_timers(s);
	if (own->sampler) {
		symbols__free(own->sampler->symbols);
		waiting__free(&own->sampler->waiting);
		free(own->sampler->periods);
		free(own->sampler->online);
	}
	free(own->sampler);
	intern__free(&own->codes);
	free(own->lines_emitted.items);
}

/*
 * The object layout of a process's interpreter. A child that the session has not looked at yet is a
 * fork of some target: of any, if all have the same layout. NULL: unknown.
 */
static const struct py_layout *python_layout_of(struct session *s, pid_t pid)
{
	const struct target *t = targets__find(s, pid), *other;

	for (size_t i = 0; (!t || !t->has_python) && i < s->target_cnt; i++)
		t = s->targets[i];
	if (!t || !t->has_python)
		return NULL;
	for (size_t i = 0; t->process.pid != pid && i < s->target_cnt; i++) {
		other = s->targets[i];
		if (other->has_python &&
		    memcmp(&other->python.process.layout, &t->python.process.layout, sizeof(struct py_layout)))
			return NULL;
	}
	return &t->python.process.layout;
}

/*
 * Each process emits its functions, though most other processes have the same ones. The line tables
 * of a process that has ended cannot be read.
 */
static bool on_code(struct session *s, const struct rec_hdr *record)
{
	const struct rec_code *rec = (const void *)record;
	const struct py_layout *layout = python_layout_of(s, rec->pid);
	struct rec_code *complete = NULL, bare = *rec;
	bool *has_lines, again;
	int err;

	has_lines = lines_emitted(s, rec->id, &again);
	if (!has_lines || *has_lines)
		return true;
	err = layout ? py_lines__complete(layout, rec, &complete) : -ESRCH;
	*has_lines = !err;
	state_of(s)->lines_lost += (err && !again) - (!err && again);
	bare.line_table = bare.table_bytes = 0;
	bare.hdr.size = sizeof(bare);
	session__emit(s, err ? &bare.hdr : &complete->hdr);
	free(complete);
	return true;
}

/* Emits a symbol's text if the sink may lack it, and returns its id; 0: there is no text. */
static uint64_t symbol_id(struct session *s, const char *text)
{
	uint64_t id = text ? session__name_id(text) : 0;
	uint64_t *slot = &state_of(s)->sampler->emitted[id % EMITTED_SYMBOLS];

	if (id && *slot != id) {
		session__emit_name(s, text);
		*slot = id;
	}
	return id;
}

static uint64_t kernel_symbol_id(struct session *s, uint64_t address)
{
	struct kernel_name name = {.address = address};

	return address && programs__name_kernel(s->skel, &name) ? symbol_id(s, name.text) : 0;
}

static bool on_sample(struct session *s, const struct rec_hdr *record)
{
	struct sampler *sampler = state_of(s)->sampler;
	struct rec_sample named = *(const struct rec_sample *)record;

	if (!sampler)
		return true;
	if (!named.stack)
		named.stack = waiting__stack(&sampler->waiting, &named);
	named.native = symbol_id(s, symbols__user(sampler->symbols, named.pid, named.native));
	named.kernel = kernel_symbol_id(s, named.kernel);
	awaited__note(s, &named);
	session__emit(s, &named.hdr);
	return true;
}

static void forget_process(struct session *s, struct target *t)
{
	if (!state_of(s)->sampler)
		return;
	symbols__forget(state_of(s)->sampler->symbols, t->process.pid);
	waiting__forget(&state_of(s)->sampler->waiting, t->process.pid);
}

static void count(const struct session *s, uint64_t counters[CNT__COUNT])
{
	counters[CNT_LINES_LOST] += state_of(s)->lines_lost;
}

/*
 * May BPF walk the stack of a wait at its end? From Linux 6.18 on. A live view cuts waits, and wants
 * their stacks before.
 */
static bool walks_later(const struct session *s)
{
	struct utsname kernel;
	unsigned int major, minor;

	return s && s->options.frequency && !s->options.live_ns && !uname(&kernel) &&
	       sscanf(kernel.release, "%u.%u", &major, &minor) == 2 && (major > 6 || (major == 6 && minor >= 18));
}

static void configure(const struct session *s, struct stepflame_bpf *skel, enum attach_backend backend)
{
	skel->rodata->sample_period_ns = s && s->options.frequency ? 1000000000 / s->options.frequency : 0;
	skel->rodata->wait_threshold_ns = WAIT_THRESHOLD_NS;
	bpf_program__set_autoload(skel->progs.sample_switch, !walks_later(s));
	bpf_program__set_autoload(skel->progs.sample_switch_later, walks_later(s));
	if (s && s->options.frequency) {
		if (bpf_map__max_entries(skel->maps.ring) < RING_BYTES)
			bpf_map__set_max_entries(skel->maps.ring, RING_BYTES);
		return;
	}
	bpf_program__set_autoload(skel->progs.sample_timer, false);
	bpf_program__set_autoload(skel->progs.sample_switch, false);
	bpf_program__set_autoload(skel->progs.sample_waking, false);
	bpf_program__set_autoload(skel->progs.sample_threads, false);
	bpf_map__set_max_entries(skel->maps.stacks, 1);
	bpf_map__set_max_entries(skel->maps.arounds, 1);
}

const struct source source_samples = {
	.session_bytes = sizeof(struct samples),
	.records = {{REC_CODE, sizeof(struct rec_code), on_code}, {REC_SAMPLE, sizeof(struct rec_sample), on_sample}},
	.configure = configure,
	.start = start,
	.open = open_windows,
	.tend = tend,
	.cut = cut,
	.close = close_windows,
	.rest = rest,
	.wake = wake,
	.end = stop_timers,
	.count = count,
	.resend = resend,
	.free = free_sampler,
	.on_exec = forget_process,
	.on_exit = forget_process,
};
