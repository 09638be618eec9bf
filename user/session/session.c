// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The life cycle of a recording: loads the programs, runs the self-test, attaches the targets,
 * passes records from the ring to the sink, and ends.
 */
#include "user/session/session.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "stepflame.skel.h"
#include "user/lib/capabilities.h"
#include "user/lib/log.h"
#include "user/session/programs.h"
#include "user/session/state.h"

/*
 * The interval between snapshots of the rows starts short, so that a short recording holds several
 * snapshots: the differences between them show how much figures vary (user/analysis/compare/diff.c). It
 * grows with the recording, so that a day of recording stays small, but a recorder that is killed
 * loses no more than a quarter of an hour.
 */
#define SNAPSHOT_MIN_NS 100000000ULL
#define SNAPSHOT_MAX_NS (900 * 1000000000ULL)
#define SNAPSHOT_GROWTH 20
/* A snapshot comes sooner when so many processes have ended, since it deletes their rows. */
#define SNAPSHOT_ENDED 256
/* A process could fork as fast as its children are found. */
#define CHILDREN_LOOKS_MAX 16

const struct source *const sources[SOURCE__COUNT] = {
#define X(id, name) [SOURCE_##id] = &source_##name,
	STEPFLAME_SOURCES(X)
#undef X
};

static void emit_host(struct session *s)
{
	struct rec_host rec = {.hdr = {.type = REC_HOST, .size = sizeof(rec)}};
	struct timespec real;
	struct utsname uts;

	rec.monotonic_ns = session__now_ns();
	clock_gettime(CLOCK_REALTIME, &real);
	rec.realtime_ns = real.tv_sec * 1000000000ULL + real.tv_nsec;
	rec.cpus = libbpf_num_possible_cpus();
	uname(&uts);
	snprintf(rec.version, sizeof(rec.version), "%s", STEPFLAME_VERSION);
	snprintf(rec.hostname, sizeof(rec.hostname), "%.63s", uts.nodename);
	snprintf(rec.kernel, sizeof(rec.kernel), "%.63s", uts.release);
	session__emit(s, &rec.hdr);
}

static int on_record(void *ctx, void *data, size_t size)
{
	const struct rec_hdr *record = data;
	const struct record_handler *handler;
	struct session *s = ctx;

	if (size < sizeof(*record) || record->size != size)
		return 0;
	if (record->type == REC_PROC)
		targets__handle_event(s, data);
	handler = record->type < REC__COUNT ? s->handlers[record->type] : NULL;
	if (!handler || size < handler->bytes || !handler->handle(s, record))
		session__emit(s, record);
	/* Goes on when the sink has failed. An error ends the round, and libbpf has consumed this record. */
	return ring__consumer_pos(ring_buffer__ring(s->ring, 0)) >= s->read_to ? -EAGAIN : 0;
}

static const char *const fixed_names[NAME__COUNT] = {
#define X(id, text) text,
	STEPFLAME_FIXED_NAMES(X)
#undef X
};

static void configure_programs(struct stepflame_bpf *skel, enum attach_backend backend, void *ctx)
{
	const struct session *s = ctx;
	uint64_t *names = (uint64_t *)skel->rodata->fixed_names;

	for (size_t i = 0; i < NAME__COUNT; i++)
		names[i] = session__name_id(fixed_names[i]);
	skel->rodata->step_limit = s->options.steps;
	skel->rodata->want_step_times = s->options.step_times || s->options.live_ns || s->options.frequency ||
					s->options.gpu != SESSION_GPU_OFF;
	skel->rodata->want_children = s->options.children != CHILDREN_NONE;
	if (capabilities__of_program() && geteuid())
		skel->rodata->only_uid = getuid();
	if (!s->options.frequency && !s->options.exact) {
		bpf_map__set_max_entries(skel->maps.paths, 1);
		if (!s->options.stacks && !s->options.modules)
			bpf_map__set_max_entries(skel->maps.codes, 1);
	}
	SOURCES_CALL(configure, s, skel, backend);
}

static int load_programs(struct session *s)
{
	uint64_t call_ns = s->options.syscalls ? selftest__call_ns() : 0;
	const char *why, *fix;
	int err;

	for (size_t i = 0; i < NAME__COUNT; i++)
		session__emit_name(s, fixed_names[i]);
	err = programs__load(configure_programs, s, &s->skel, &s->selftest);
	if (!err) {
		s->skel->bss->pid_level = s->selftest.pid_level;
		s->skel->bss->pid_ns = s->selftest.pid_ns;
		if (s->selftest.attacher.backend == ATTACH_PERF)
			log__warn(PROBES_TOGETHER, "this kernel attaches probes one by one: stepflame does not probe "
						   "collectives, operators and calls of CUDA");
		err = stepflame_bpf__attach(s->skel);
		s->call_ns = s->options.syscalls ? selftest__call_ns() : 0;
		s->call_ns = s->call_ns > call_ns ? s->call_ns - call_ns : 0;
	}
	if (!err) {
		s->ring = ring_buffer__new(bpf_map__fd(s->skel->maps.ring), on_record, s, NULL);
		err = s->ring ? 0 : -errno;
	}
	if (err) {
		programs__explain(err, &why, &fix);
		log__error(fix, "%s", why);
		err = err == -EPERM || err == -ENOMEM ? err : -EOPNOTSUPP;
	}
	return err;
}

static int start_guardian(struct session *s)
{
	struct bpf_program *program;
	int *keep = NULL, err = 0;
	size_t cnt = 0;

	bpf_object__for_each_program (program, s->skel->obj)
		cnt++;
	keep = calloc(cnt + 1, sizeof(*keep));
	if (!keep)
		return -ENOMEM;
	cnt = 0;
	bpf_object__for_each_program (program, s->skel->obj)
		if (bpf_program__fd(program) >= 0)
			keep[cnt++] = bpf_program__fd(program);
	keep[cnt++] = s->selftest.attacher.cookies_fd;
	err = guardian__new(&s->selftest.attacher, keep, cnt, &s->guardian);
	if (err)
		log__error(NULL, "cannot start stepflame-guard, which attaches and detaches the probes: %s",
			   strerror(-err));
	free(keep);
	return err;
}

static void index_handlers(struct session *s)
{
	for (int id = 0; id < SOURCE__COUNT; id++)
		for (int i = 0; i < SOURCE_RECORDS && sources[id]->records[i].handle; i++)
			s->handlers[sources[id]->records[i].type] = &sources[id]->records[i];
}

static int alloc_session_states(struct session *s)
{
	for (int id = 0; id < SOURCE__COUNT; id++) {
		if (!sources[id]->session_bytes)
			continue;
		s->state[id] = calloc(1, sources[id]->session_bytes);
		if (!s->state[id])
			return -ENOMEM;
	}
	return 0;
}

static void free_session_states(struct session *s)
{
	for (int id = 0; id < SOURCE__COUNT; id++)
		free(s->state[id]);
}

int session__new(const struct session_options *options, session_sink sink, void *ctx, struct session **out)
{
	struct session *s = calloc(1, sizeof(*s));
	int err;

	*out = NULL;
	if (!s)
		return -ENOMEM;
	s->options = *options;
	s->sink = sink;
	s->sink_ctx = ctx;
	s->budget.seed = session__now_ns();
	emit_host(s);
	index_handlers(s);
	err = alloc_session_states(s);
	if (err) {
		free_session_states(s);
		free(s);
		return err;
	}
	err = SOURCES_TRY(prepare, s) ?: load_programs(s) ?: start_guardian(s) ?: SOURCES_TRY(start, s);
	if (err)
		session__free(s);
	else
		*out = s;
	return err;
}

/*
 * Detaches the exits of operators after the rest: links with thousands of probes that detach
 * together wait for each other at each probe.
 */
static void detach_all(struct session *s)
{
	struct detachment d = {};

	SOURCES_CALL(detach, s, false, &d);
	targets__detach(s, &d);
	guardian__detach(s->guardian, &d);
	SOURCES_CALL(detach, s, true, &d);
	guardian__detach(s->guardian, &d);
}

void session__free(struct session *s)
{
	if (!s)
		return;
	SOURCES_CALL(restore, s);
	guardian__free(s->guardian);
	SOURCES_CALL(free, s);
	free_session_states(s);
	budget__free(s);
	names__free(&s->names);
	free(s->note_kinds.items);
	map__free(&s->ended_pids);
	for (size_t i = 0; i < s->target_cnt; i++)
		target__free(s->targets[i]);
	session__free_files(s);
	ring_buffer__free(s->ring);
	stepflame_bpf__destroy(s->skel);
	free(s->targets);
	free(s);
}

/* Says that a process is no longer there. -ESRCH. */
static int miss_process(pid_t pid, bool may_end)
{
	if (may_end)
		log__warn(NULL, "process %d ended before it could be recorded", pid);
	else
		log__error("stepflame ps lists the training processes of this host",
			   "process %d ended while probes were being attached", pid);
	return -ESRCH;
}

static bool does_without_python(const struct session *s, const struct target *t)
{
	bool has_framework = t->has_torch || t->jax[0];

	return !s->options.exact && (has_framework || s->options.frequency) &&
	       python__is_dispensable(t->python_err, has_framework, t->python.version);
}

/* Can stepflame record this target? err: from targets__resolve. 0, or -errno after a message. */
static int check_target(struct session *s, struct target *t, bool may_end, int err)
{
	int pid = t->process.pid;
	char why[PYTHON_WHY_BYTES];
	const char *fix;
	bool does_without = !t->has_python && does_without_python(s, t);

	if (err == -ESRCH || !process__alive(&t->process))
		return miss_process(pid, may_end);
	if (SOURCES_TRY(check, s, t))
		return -EOPNOTSUPP;
	if (does_without)
		target__refuse_python(s, t);
	for (int id = 0; id < SOURCE__COUNT; id++)
		if (sources[id]->watches && sources[id]->watches(s, t))
			return 0;
	if (err && !(does_without && err == t->python_err)) {
		fix = python__explain(err, pid, t->process.comm, t->python.version, why);
		log__error(fix, "%s", why);
		return err == -ENOENT ? -EOPNOTSUPP : err;
	}
	if (t->has_torch || t->jax[0])
		return 0;
	if (!s->options.frequency) {
		log__error(NO_FRAMEWORK_FIX, NO_FRAMEWORK, pid, t->python.version);
		return -EOPNOTSUPP;
	}
	log__warn(NULL, NO_FRAMEWORK_YET, pid, t->python.version);
	return 0;
}

/* Returns how many there are that the session did not know. */
static int add_new_children(struct session *s, pid_t pid, uint32_t group)
{
	pid_t *children = NULL;
	int cnt = process__children(pid, true, &children), added = 0;

	for (int i = 0; i < cnt; i++) {
		struct process process = {};
		struct target *t;

		if (targets__find(s, children[i]) || targets__opts_out(s, children[i]) ||
		    process__read(children[i], &process))
			continue;
		if (targets__add(s, &process, ROLE_CHILD, &t)) {
			process__release(&process);
			continue;
		}
		t->group = group;
		budget__join(s, t);
		targets__resolve(s, t);
		added++;
	}
	free(children);
	return added;
}

/*
 * BPF sees the forks of a child from when the child is added. Those that came after the list and
 * before that are in the next list.
 */
static void add_children(struct session *s, pid_t pid, uint32_t group)
{
	int looks = s->options.children == CHILDREN_NONE ? 0 : CHILDREN_LOOKS_MAX;

	while (looks-- && add_new_children(s, pid, group))
		;
}

/* Prints why a process cannot be read, and how to fix that. Returns err. */
static int refuse_process(pid_t pid, int err)
{
	char why[128];
	const char *fix = process__explain(err, pid, why, sizeof(why));

	log__error(fix, "%s", why);
	return err;
}

int session__attach(struct session *s, pid_t pid, uint32_t group, bool may_end)
{
	uint64_t start = session__now_ns();
	struct process process = {};
	struct target *t;
	int err = process__read(pid, &process);

	if (err == -ESRCH && may_end)
		return miss_process(pid, may_end);
	if (err)
		return refuse_process(pid, err);
	t = targets__find(s, process.pid);
	if (t)
		process__release(&process);
	if (t && t->given)
		log__warn(NULL, "process %d was given twice: it is recorded once", pid);
	if (t && t->role != ROLE_MAIN) { /* it is there as the child of one that was given */
		targets__promote(s, t);
		target__emit(s, t);
	}
	if (t) {
		t->given = true;
		return 0;
	}
	err = targets__add(s, &process, ROLE_MAIN, &t);
	if (err) {
		if (err == -E2BIG)
			log__error("record fewer processes at once",
				   "process %d is not recorded: %u processes are, and BPF has no room for more", pid,
				   bpf_map__max_entries(s->skel->maps.procs));
		process__release(&process);
		return err;
	}
	t->given = true;
	t->group = group;
	budget__join(s, t);
	t->unchecked = true;
	err = check_target(s, t, may_end, targets__resolve(s, t));
	err = err ?: SOURCES_TRY(attached, s, t);
	if (err) {
		target__detach(s, t);
		target__mark_gone(s, t);
		return err;
	}
	t->unchecked = false;
	target__emit(s, t);
	t->emitted = true;
	if (s->opened && t->file_cnt) /* who rests has no probes */
		targets__open(s, t);
	add_children(s, t->process.pid, group); /* pid may be that of a thread */
	s->attach_ns += session__now_ns() - start;
	return 0;
}

int session__follow(struct session *s, pid_t pid)
{
	struct process process = {};
	struct target *t;
	int err = process__read(pid, &process);

	if (err)
		return refuse_process(pid, err);
	err = targets__add(s, &process, ROLE_MAIN, &t);
	if (err)
		process__release(&process);
	return err;
}

static uint64_t snapshot_interval_ns(const struct session *s)
{
	uint64_t grown = s->progress.elapsed_ns / SNAPSHOT_GROWTH, most = s->options.snapshot_ns ?: SNAPSHOT_MAX_NS;

	grown = grown < most ? grown : most;
	return s->options.live_ns ?: grown > SNAPSHOT_MIN_NS ? grown : SNAPSHOT_MIN_NS;
}

int session__open(struct session *s)
{
	uint64_t start = session__now_ns();

	for (size_t i = 0; i < s->target_cnt; i++) {
		int err = s->targets[i]->file_cnt && !s->targets[i]->gone ? targets__open(s, s->targets[i]) : 0;

		if (err)
			return err;
	}
	SOURCES_TRY(open, s);
	s->opened = true;
	s->window_start_ns = session__now_ns();
	s->attach_ns += s->window_start_ns - start;
	s->cpu_start_ns = session__cpu_ns();
	s->next_snapshot_ns = s->window_start_ns + snapshot_interval_ns(s);
	s->progress.alive = true;
	SOURCES_CALL(tend, s);
	return s->sink_err;
}

/*
 * Not until the ring is empty: where new processes come faster than the session looks at them, it
 * never is.
 */
void session__read_ring(struct session *s)
{
	uint64_t now = session__now_ns();

	s->read_to = ring__producer_pos(ring_buffer__ring(s->ring, 0));
	ring_buffer__consume(s->ring);
	s->consumed_ns = now;
}

static void check_guardian(struct session *s)
{
	if (s->guardian_gone || guardian__alive(s->guardian))
		return;
	s->guardian_gone = true;
	log__error("end this recording and begin another one", "stepflame-guard was killed: the probes are gone");
	session__note(s,
		      "stepflame-guard was killed %.1f s after the recording began: from then on there were no probes",
		      s->opened ? (session__now_ns() - s->window_start_ns) / 1e9 : 0);
}

int session__poll(struct session *s, int timeout_ms)
{
	struct epoll_event event;
	uint64_t now;

	epoll_wait(ring_buffer__epoll_fd(s->ring), &event, 1, targets__timeout_ms(s, timeout_ms));
	session__read_ring(s);
	targets__tend(s);
	SOURCES_CALL(tend, s);
	budget__tend(s);
	check_guardian(s);
	now = s->progress.now_ns = session__now_ns();
	if (s->opened) {
		s->progress.elapsed_ns = now - s->window_start_ns;
		snapshot__progress(s);
	}
	if (s->opened && (now >= s->next_snapshot_ns || s->ended_pids.items.cnt >= SNAPSHOT_ENDED)) {
		if (s->options.live_ns)
			return session__snapshot(s);
		s->next_snapshot_ns = now + snapshot_interval_ns(s);
		snapshot__emit(s);
	}
	return s->sink_err;
}

int session__snapshot(struct session *s)
{
	int err;

	SOURCES_CALL(cut, s);
	session__read_ring(s);
	s->next_snapshot_ns = session__now_ns() + snapshot_interval_ns(s);
	err = snapshot__emit(s);
	session__read_ring(s); /* names and stacks of rows that were new when the rows were read */
	return err ?: s->sink_err;
}

void session__resend_stacks(struct session *s)
{
	SOURCES_CALL(resend, s);
}

void session__progress(const struct session *s, struct session_progress *out)
{
	*out = s->progress;
}

int session__finish(struct session *s)
{
	uint64_t start = session__now_ns();
	int err;

	session__read_ring(s);
	SOURCES_CALL(close, s);
	s->window_end_ns = session__now_ns();
	for (size_t i = 0; i < s->target_cnt; i++) {
		struct proc_command command = {.what = COMMAND_CLOSE, .pid = s->targets[i]->process.pid};

		programs__command(s->skel, &command);
	}
	SOURCES_CALL(end, s);
	SOURCES_CALL(note, s);
	session__note_left_out(s);
	snapshot__emit(s);
	for (size_t i = 0; i < s->target_cnt; i++)
		target__emit_trainer(s, s->targets[i]);
	err = SOURCES_TRY(finish, s);
	detach_all(s);
	s->detach_ns = session__now_ns() - start;
	session__read_ring(s);
	SOURCES_CALL(drained, s);
	return snapshot__emit(s) ?: err;
}
