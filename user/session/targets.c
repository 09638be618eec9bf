// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The processes of a session: says who they are, finds their mapped files, attaches the probes of
 * those files, follows forks, execs and exits, and keeps what BPF last knew of those that have ended.
 * In: /proc, the processes' memory and REC_PROC records. Out: links, entries of the BPF map `procs`,
 * REC_TARGET and REC_JOB records.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stepflame.skel.h"
#include "user/identity/job_id.h"
#include "user/identity/program.h"
#include "user/lib/array.h"
#include "user/lib/clock.h"
#include "user/lib/log.h"
#include "user/proc/environ.h"
#include "user/proc/proc.h"
#include "user/runtime/python/pythread.h"
#include "user/runtime/torch/torch.h"
#include "user/runtime/xla/jax.h"
#include "user/session/programs.h"
#include "user/session/state.h"

/* How long after a fork the session looks again: a DataLoader worker has its name by then. */
#define FORK_SETTLE_NS (300 * 1000000ULL)
/* How often the session looks for new libraries: often at first, while imports run. */
#define LOOK_OFTEN_NS  (10 * 1000000ULL)
#define LOOK_SELDOM_NS (200 * 1000000ULL)
#define UNREAD_MAX     8 /* a process that cannot be read is looked at after 0.2 s, 0.4 s, up to 51.2 s */
#define PYTHON_TRIES   3 /* an interpreter that starts may contradict itself for a moment */
#define YOUNG_NS       (20 * 1000000000ULL)
/* `import torch` loads its libraries one after another, for up to this long. */
#define TORCH_SETTLES_NS (2 * 1000000000ULL)
/* The clock of processes' start times ticks every 10 ms, and a system that slept is off further. */
#define START_RESOLUTION_NS (1000 * 1000000ULL)
/* Up to so many targets are checked each time; of more each is so much more seldom. */
#define CHECKED_TOGETHER 4
#define CHECK_NS         (1000 * 1000000ULL)
/* A process joins its group some time after it has started, a job without ranks never does. */
#define RANK_LOOK_NS     (500 * 1000000ULL)
#define RANK_LOOK_MAX_NS (512 * 1000000000ULL)
#define MAINS_KEPT       64 /* main processes that have ended; of earlier ones only sums stay */

struct target *targets__find(struct session *s, pid_t pid)
{
	for (size_t i = 0; i < s->target_cnt; i++)
		if (s->targets[i]->process.pid == pid && !s->targets[i]->gone)
			return s->targets[i];
	return NULL;
}

/* Is there a target with this pid? It may be gone, with counts that are still in BPF. */
static bool is_known_pid(const struct session *s, pid_t pid)
{
	for (size_t i = 0; i < s->target_cnt; i++)
		if (s->targets[i]->process.pid == pid && !s->targets[i]->last)
			return true;
	return false;
}

bool target__proc(const struct session *s, const struct target *t, struct proc *out)
{
	uint32_t pid = t->process.pid;

	if (t->last)
		*out = *t->last;
	return t->last || !bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.procs), &pid, out);
}

void target__clear_state(struct target *t, enum source_id id)
{
	if (t->state[id])
		memset(t->state[id], 0, sources[id]->target_bytes);
}

static int alloc_target_states(struct target *t)
{
	for (int id = 0; id < SOURCE__COUNT; id++) {
		if (!sources[id]->target_bytes)
			continue;
		t->state[id] = calloc(1, sources[id]->target_bytes);
		if (!t->state[id])
			return -ENOMEM;
	}
	return 0;
}

static void free_target_states(struct target *t)
{
	for (int id = 0; id < SOURCE__COUNT; id++)
		free(t->state[id]);
}

void target__free(struct target *t)
{
	SOURCES_CALL(free_target, t);
	free_target_states(t);
	free(t->files);
	free(t->last);
	process__release(&t->process);
	free(t);
}

/* Takes ownership of *process. */
static void set_target_process(struct session *s, struct target *t, struct process *process)
{
	session__renew_files(s, process);
	process__release(&t->process);
	t->process = *process;
	*process = (struct process){};
	t->torch_file = torch__file(&t->process);
	t->jax_file = jax__file(&t->process);
}

static bool is_exiting(const struct process *process)
{
	struct proc_stat stat;

	return proc__stat(process->pid, 0, &stat) || stat.start_time != process->start_time || proc_stat__exits(&stat);
}

/* Tells BPF of a process. For a fork, BPF has already copied the entry of its parent. 0 or -errno. */
static int add_proc(struct session *s, const struct process *process, enum target_role role)
{
	struct proc_command forget = {.what = COMMAND_FORGET, .pid = process->pid};
	struct proc proc = {.role = role, .window = WINDOW_CLOSED}, known;
	int fd = bpf_map__fd(s->skel->maps.procs), err = 0;
	uint32_t pid = process->pid;

	if (bpf_map_update_elem(fd, &pid, &proc, BPF_NOEXIST))
		err = -errno;
	if (err == -EEXIST) {
		err = 0;
		/* It had the pid of this one, and the ring had no room for the record of its end. */
		if (!bpf_map_lookup_elem(fd, &pid, &known) && known.ended && !is_exiting(process)) {
			programs__command(s->skel, &forget);
			err = bpf_map_update_elem(fd, &pid, &proc, BPF_NOEXIST) ? -errno : 0;
		}
	}
	s->procs_full += err == -E2BIG;
	if (!err)
		__atomic_fetch_or(&s->skel->bss->job_pids[pid % PIDS_MAX / 64], 1ULL << pid % 64, __ATOMIC_SEQ_CST);
	return err;
}

int targets__add(struct session *s, struct process *process, enum target_role role, struct target **out)
{
	struct target **targets = reallocarray(s->targets, s->target_cnt + 1, sizeof(*targets));
	struct target *t = calloc(1, sizeof(*t));
	uint32_t pid = process->pid;
	struct ended_pid *ended = MAP_FIND(&s->ended_pids, struct ended_pid, &pid);
	uint64_t now, age;
	int err = t ? alloc_target_states(t) : -ENOMEM;

	if (targets)
		s->targets = targets;
	if (!targets)
		err = -ENOMEM;
	err = err ?: add_proc(s, process, role);
	if (err) {
		if (t)
			free_target_states(t);
		free(t);
		return err;
	}
	if (ended)
		ended->reused = true;
	set_target_process(s, t, process);
	t->role = role;
	t->rank.number = -1;
	now = session__now_ns();
	age = process__age_ns(&t->process);
	t->since_ns = now > age ? now - age : 0;
	s->targets[s->target_cnt++] = t;
	*out = t;
	return 0;
}

/* ---- who they are ---- */

/* What is known of its interpreter: a fork has that of its parent. NULL: nothing. */
static const struct python *target__python(const struct target *t)
{
	return t->python.runtime ? &t->python : NULL;
}

/* Is it a worker of a torch DataLoader? */
static bool is_worker(const struct target *t)
{
	return program__is_worker(&t->process, target__python(t));
}

/* Says of which job it is, if it has not said so before: a job may name itself late, as Lightning's. */
static void emit_job(struct session *s, struct target *t)
{
	struct rec_job rec = {
		.hdr = {.type = REC_JOB, .size = sizeof(rec)},
		.pid = t->process.pid,
		.uid = JOB_UID_UNKNOWN,
		.since_ns = t->job.since_ns ?: clock__ns(CLOCK_MONOTONIC),
	};
	struct proc_status status;
	struct job_id id;

	job_id__read(&t->process, &id);
	job_id__to_record(&id, &rec);
	if (!rec.launcher && !rec.meets[0] && (t->job.launcher || t->job.meets[0]))
		return; /* it is ending, or does not answer: what it has said holds */
	if (!proc__status(t->process.pid, 0, &status))
		rec.uid = status.uids[0];
	if (!memcmp(&rec, &t->job, sizeof(rec)))
		return;
	session__emit(s, &rec.hdr);
	t->job = rec;
}

void target__emit(struct session *s, struct target *t)
{
	struct rec_target rec = {
		.hdr = {.type = REC_TARGET, .size = sizeof(rec)},
		.pid = t->process.pid,
		.nspid = t->process.nspid,
		.parent_pid = t->process.parent,
		.role = t->role,
	};

	if (!t->forked) /* a fork has its parent's rank until the session looks at it */
		t->rank = rank__read(&t->process, target__python(t));
	rec.rank = t->rank.number;
	snprintf(rec.python, sizeof(rec.python), "%s", t->python.version);
	snprintf(rec.torch, sizeof(rec.torch), "%s", t->torch);
	snprintf(rec.jax, sizeof(rec.jax), "%s", t->jax);
	snprintf(rec.command, sizeof(rec.command), "%.*s", (int)sizeof(rec.command) - 1, t->process.command);
	session__emit(s, &rec.hdr);
	t->sent = rec;
	if (t->role == ROLE_MAIN)
		emit_job(s, t);
}

/* Now and then: emits the target again when its rank is another one than the session said. */
static void look_at_rank(struct session *s, struct target *t, uint64_t now)
{
	if (t->role != ROLE_MAIN || !t->sent.pid || t->rank.source == RANK_GROUP || t->rank_look_at_ns > now)
		return;
	t->rank_delay_ns = !t->rank_delay_ns                     ? RANK_LOOK_NS
			   : t->rank_delay_ns < RANK_LOOK_MAX_NS ? t->rank_delay_ns * 2
								 : t->rank_delay_ns;
	t->rank_look_at_ns = now + t->rank_delay_ns;
	t->rank = rank__read(&t->process, target__python(t));
	emit_job(s, t);
	if (t->rank.number == t->sent.rank)
		return;
	t->sent.rank = t->rank.number;
	session__emit(s, &t->sent.hdr);
}

static struct target *find_with_steps(struct session *s, pid_t pid)
{
	struct proc proc;

	for (size_t i = 0; i < s->target_cnt; i++)
		if (s->targets[i]->process.pid == pid && target__proc(s, s->targets[i], &proc) &&
		    targets__has_steps(&proc))
			return s->targets[i];
	return NULL;
}

/* A process with steps that has started another one with steps: are they two ranks? */
static bool are_two_ranks(const struct target *t, const struct target *parent)
{
	return t->rank.number >= 0 && t->rank.number != parent->rank.number;
}

void target__emit_trainer(struct session *s, struct target *t)
{
	struct target *parent;

	if (!t->sent.pid || t->sent.role != ROLE_CHILD || t->role != ROLE_MAIN)
		return;
	parent = find_with_steps(s, t->process.parent);
	if (parent && !are_two_ranks(t, parent))
		return;
	t->sent.role = ROLE_MAIN;
	session__emit(s, &t->sent.hdr);
	emit_job(s, t);
}

/* ---- what they map ---- */

/* Must the session look for Python? The file may be mapped long before an interpreter starts. */
static bool must_look_for_python(const struct target *t)
{
	if (t->python_refused)
		return false;
	return !t->has_python ||
	       (!t->python.started && py_thread__interpreters(t->process.pid, t->python.runtime, t->python.walk) > 0);
}

static void tell_tried(struct session *s, const struct target *t)
{
	if (t->role == ROLE_MAIN)
		log__warn(NULL, "process %d: Python %s " PYTHON_TRIED, t->process.pid, t->python.version);
	session__note(s, "process %d: Python %s " PYTHON_TRIED, t->process.pid, t->python.version);
}

static int resolve_python(struct session *s, struct target *t)
{
	struct proc_command command = {.what = COMMAND_PYTHON, .pid = t->process.pid};
	bool had = t->has_python;
	struct elf *elf = NULL;
	struct python found;
	int err;

	err = python__find(&t->process, &found, &elf);
	if (!err || !t->has_python)
		t->python = found;
	if (err)
		return err;
	command.py = t->python.process;
	programs__command(s->skel, &command);
	t->python_dev = t->python.file->dev;
	t->python_inode = t->python.file->inode;
	err = target__attach(s, t, t->python.file, elf);
	elf__free(elf);
	t->has_python = !err;
	if (err)
		t->python_inode = 0;
	else if (t->python.tried && !had)
		tell_tried(s, t);
	return err;
}

static int resolve_torch(struct session *s, struct target *t)
{
	int err = target__attach(s, t, t->torch_file, NULL);

	t->has_torch = !err;
	t->torch_ns = session__now_ns();
	if (!err)
		torch__version(&t->process, t->torch_file, t->torch, sizeof(t->torch));
	return err;
}

static bool found_jax(struct target *t)
{
	if (!t->jax_file || t->jax[0])
		return false;
	jax__version(&t->process, t->jax_file, t->jax, sizeof(t->jax));
	return true;
}

/* The highest answer of all sources, or HOLDS_LATER if any source gives it. */
static enum source_holds highest_holds(struct session *s, struct target *t, const struct mapped_file *file)
{
	enum source_holds most = HOLDS_NO;

	for (int id = 0; id < SOURCE__COUNT; id++) {
		enum source_holds holds = sources[id]->holds ? sources[id]->holds(s, t, file) : HOLDS_NO;

		if (holds == HOLDS_LATER)
			return holds; /* a source searches a file only once */
		most = holds > most ? holds : most;
	}
	return most;
}

/* Attaches the probes of every file. Returns the first error of a file with HOLDS_MUST. */
static int resolve_files(struct session *s, struct target *t)
{
	int first_err = 0;

	for (size_t i = 0; i < t->process.file_cnt; i++) {
		const struct mapped_file *file = &t->process.files[i];
		enum source_holds holds = highest_holds(s, t, file);
		int err = holds >= HOLDS_YES ? target__attach(s, t, file, NULL) : 0;
		const char *fix = NULL, *why = mapped_file__explain(err, &fix);

		file__close(s, file);
		if (err && holds == HOLDS_MUST)
			first_err = first_err ?: err;
		else if (err && (!t->emitted || file == t->jax_file))
			log__warn(fix, "no probes could be placed in %s%s%s: its rows will be missing", file->path,
				  why ? ", since " : "", why ?: "");
	}
	return first_err;
}

bool targets__is_young(const struct target *t, uint64_t age_ns)
{
	return session__now_ns() - t->since_ns < age_ns;
}

/* The shortest time in ns after which a source wants another look at the target; 0: never. */
static uint64_t soonest_look_ns(const struct session *s, const struct target *t)
{
	uint64_t soonest = 0;

	for (int id = 0; id < SOURCE__COUNT; id++) {
		uint64_t delay = sources[id]->look_again_ns ? sources[id]->look_again_ns(s, t) : 0;

		if (delay && (!soonest || delay < soonest))
			soonest = delay;
	}
	return soonest;
}

void target__refuse_python(struct session *s, struct target *t)
{
	char why[PYTHON_WHY_BYTES];
	const char *fix = python__explain(t->python_err, t->process.pid, t->process.comm, t->python.version, why);

	t->python_refused = true;
	log__warn(fix, "%s: " PYTHON_REFUSED, why);
	session__note(s, "process %d: Python %s cannot be read: " PYTHON_REFUSED, t->process.pid, t->python.version);
}

int targets__resolve(struct session *s, struct target *t)
{
	int err = 0, python_err = 0, later_err;
	bool news = false;

	if (must_look_for_python(t)) {
		python_err = t->python_err = resolve_python(s, t);
		news = t->has_python;
		t->python_failed += python__is_unreadable(python_err);
	}
	if (t->torch_file && !t->has_torch) {
		err = resolve_torch(s, t);
		news = news || t->has_torch;
	}
	news = found_jax(t) || news;
	later_err = resolve_files(s, t);
	err = err ?: later_err;
	later_err = SOURCES_TRY(looked_at, s, t);
	err = err ?: later_err;
	if (t->role == ROLE_CHILD && is_worker(t))
		t->role = ROLE_WORKER;
	if (!t->unchecked && (news || !t->emitted)) {
		target__emit(s, t);
		t->emitted = true;
	}
	if (s->opened && !t->has_python && !t->python_refused && t->python_failed >= PYTHON_TRIES &&
	    python__is_unreadable(t->python_err) && (t->has_torch || t->jax[0] || !targets__is_young(t, YOUNG_NS)))
		target__refuse_python(s, t);
	t->awaits_libraries = !(t->has_torch || t->jax[0]) || (!t->python_refused && !t->python.started) ||
			      session__now_ns() - t->torch_ns < TORCH_SETTLES_NS;
	t->pending = t->awaits_libraries || soonest_look_ns(s, t);
	return err ?: python_err;
}

int targets__open(struct session *s, struct target *t)
{
	struct proc_command command = {
		.what = COMMAND_OPEN,
		.pid = t->process.pid,
		.role = t->role,
		.wait = s->options.steps && t->role == ROLE_MAIN,
	};
	int err = SOURCES_TRY(open_target, s, t);

	if (!err) {
		t->open = true;
		command.start_ns = session__now_ns();
		if (!command.wait && !t->opened_ns)
			t->opened_ns = command.start_ns;
		err = programs__command(s->skel, &command);
	}
	return err == -ESRCH ? 0 : err; /* it has just ended, which the session sees at its next look */
}

void targets__promote(struct session *s, struct target *t)
{
	t->role = ROLE_MAIN;
	SOURCES_TRY(looked_at, s, t);
}

static void schedule_look(struct target *t, uint64_t now, uint64_t delay)
{
	t->pending = true;
	t->look_at_ns = now + delay;
}

/*
 * Attaches the probes of known files to a forked child. Until it calls exec, the child has the
 * program and memory of its parent: BPF has copied the parent's state, and files with known probes
 * are mapped at the same places. The child inherits breakpoints, so it pays for hits from its first
 * instruction on; its calls count once its own links exist, some ms later.
 */
static void attach_fork(struct session *s, struct target *t)
{
	for (size_t i = 0; i < t->process.file_cnt; i++)
		if (file_probes__find(s, &t->process.files[i]))
			target__attach(s, t, &t->process.files[i], NULL);
}

void targets__reattach(struct session *s, struct target *t)
{
	if (t->forked)
		attach_fork(s, t);
	else
		targets__resolve(s, t);
	target__attach_again(s, t);
}

/*
 * Emits a child that ended before the session looked at it, with the properties of its parent:
 * workers of short epochs are such children.
 */
static void emit_ended_child(struct session *s, struct target *parent, uint32_t pid)
{
	struct rec_target rec = parent->sent;

	if (!rec.pid || s->options.children == CHILDREN_NONE)
		return;
	rec.pid = rec.nspid = pid;
	rec.parent_pid = parent->process.pid;
	rec.role = ROLE_CHILD;
	session__emit(s, &rec.hdr);
	SOURCES_CALL(lost_child, s, parent, pid);
}

/* Is this the process that was forked at that time? Another one may have its pid by now. */
static bool is_forked_at(const struct process *process, uint64_t time_ns)
{
	uint64_t now = session__now_ns(), age = process__age_ns(process);

	return now < time_ns + age + START_RESOLUTION_NS;
}

static void add_forked_child(struct session *s, const struct rec_proc *rec)
{
	struct target *parent = targets__find(s, rec->parent_pid), *t = targets__find(s, rec->pid);
	bool followed = s->options.children != CHILDREN_NONE;
	struct process process = {};

	if (!parent)
		return;
	if (process__read(rec->pid, &process) || !is_forked_at(&process, rec->time_ns)) {
		process__release(&process);
		SOURCES_CALL(on_fork, s, parent, NULL, followed);
		emit_ended_child(s, parent, rec->pid);
		return;
	}
	/* session__attach may have found it in /proc already. */
	if ((t && t->process.start_time == process.start_time) || targets__add(s, &process, ROLE_CHILD, &t)) {
		SOURCES_CALL(on_fork, s, parent, NULL, followed);
		process__release(&process);
		return;
	}
	t->forked = true;
	t->python_dev = parent->python_dev;
	t->python_inode = parent->python_inode;
	snprintf(t->torch, sizeof(t->torch), "%s", parent->torch);
	snprintf(t->jax, sizeof(t->jax), "%s", parent->jax);
	t->python = parent->python; /* which has the same addresses in a fork */
	t->python.file = NULL;
	t->rank = parent->rank;
	t->group = parent->group;
	budget__join(s, t);
	SOURCES_CALL(on_fork, s, parent, t, followed);
	attach_fork(s, t);
	if (!followed) {
		target__detach(s, t);
		target__mark_gone(s, t); /* the session ignores it from now on */
		return;
	}
	target__emit(s, t);
	if (s->opened && !t->rest.rests)
		targets__open(s, t);
	schedule_look(t, session__now_ns(), FORK_SETTLE_NS);
}

/* ---- those that have ended ---- */

/*
 * BPF has seen a process end: the next snapshot deletes its rows, and BPF forgets the process now,
 * since another one may get its pid.
 */
static void forget_pid(struct session *s, uint32_t pid)
{
	struct proc_command command = {.what = COMMAND_FORGET, .pid = pid};
	struct ended_pid *ended = MAP_ADD(&s->ended_pids, struct ended_pid, &pid);

	if (ended)
		ended->reused = false;
	programs__command(s->skel, &command);
}

static void keep_last(struct session *s, struct target *t)
{
	struct proc *last = malloc(sizeof(*last));

	if (!last || t->last || !target__proc(s, t, last) || !last->ended) {
		free(last);
		return;
	}
	t->last = last;
	forget_pid(s, t->process.pid);
}

void target__mark_gone(struct session *s, struct target *t)
{
	keep_last(s, t);
	t->gone = true;
	t->torch_file = t->jax_file = NULL;
	process__release(&t->process);
}

static bool source_keeps(const struct target *t)
{
	for (int id = 0; id < SOURCE__COUNT; id++)
		if (sources[id]->keeps && sources[id]->keeps(t))
			return true;
	return false;
}

static bool stays(const struct target *t, const struct proc *proc, size_t mains)
{
	if (!t->gone || !proc->ended || source_keeps(t))
		return true;
	return t->role == ROLE_MAIN ? mains <= MAINS_KEPT : targets__has_steps(proc);
}

static void forget(struct session *s, struct target *t, const struct proc *proc)
{
	hit_sums__add(s, &s->ended, t, proc);
	if (t->role == ROLE_MAIN) {
		target__emit_trainer(s, t);
		window_sums__add(&s->ended_window, t, proc);
		s->ended_mains = true;
	}
	if (!t->last)
		forget_pid(s, t->process.pid);
	SOURCES_CALL(forget, s, t);
	target__free(t);
}

/*
 * Frees children that have ended, since a job may have any number of them, and keeps the sum of
 * what they paid. Of main processes, and children that train, the last ones stay.
 */
static void forget_ended(struct session *s)
{
	size_t cnt = 0, mains = 0;

	for (size_t i = 0; i < s->target_cnt; i++)
		mains += s->targets[i]->gone && s->targets[i]->role == ROLE_MAIN;
	for (size_t i = 0; i < s->target_cnt; i++) {
		struct target *t = s->targets[i];
		struct proc proc = {.ended = 1};

		if (t->gone)
			target__proc(s, t, &proc);
		if (stays(t, &proc, mains)) {
			s->targets[cnt++] = t;
			continue;
		}
		mains -= t->role == ROLE_MAIN;
		forget(s, t, &proc);
	}
	s->target_cnt = cnt;
}

/* ---- events ---- */

/* The target has called exec or ended: discards what the session found in its program. */
static void forget_program(struct session *s, struct target *t, bool ended)
{
	target__detach(s, t);
	for (int id = 0; id < SOURCE__COUNT; id++) {
		void (*hook)(struct session * s, struct target * t) =
			ended ? sources[id]->on_exit : sources[id]->on_exec;

		if (hook)
			hook(s, t);
		else
			target__clear_state(t, id);
	}
	t->interpreters_noted = t->has_python = t->python_refused = t->has_torch = t->forked = t->files_settled = false;
	t->python_err = 0;
	t->python_failed = 0;
	t->python = (struct python){};
	t->python_dev = t->python_inode = 0;
	t->torch[0] = t->jax[0] = 0;
	t->rank = (struct rank_id){.number = -1};
}

static void end_target(struct session *s, struct target *t)
{
	forget_program(s, t, true);
	target__mark_gone(s, t);
	t->pending = false;
}

bool targets__opts_out(const struct session *s, pid_t child)
{
	char value[8];

	return s->options.opt_out && !process__environ(child, s->options.opt_out, value, sizeof(value)) &&
	       !strcmp(value, "0");
}

/* It has no probes any more. */
static void leave_out(struct session *s, struct target *t)
{
	struct proc_command command = {.what = COMMAND_CLOSE, .pid = t->process.pid};

	programs__command(s->skel, &command);
	SOURCES_CALL(unfollow, s, t);
	target__mark_gone(s, t);
	t->pending = false;
}

void targets__handle_event(struct session *s, const struct rec_proc *rec)
{
	struct target *t;

	if (rec->event == PROC_FORK) {
		add_forked_child(s, rec);
		return;
	}
	t = targets__find(s, rec->pid);
	if (!t && rec->event == PROC_EXIT && !is_known_pid(s, rec->pid))
		/* A child that ended before the session looked at it, or that is not recorded. */
		forget_pid(s, rec->pid);
	if (!t || (rec->event != PROC_EXEC && rec->event != PROC_EXIT))
		return;
	if (rec->event == PROC_EXIT) {
		end_target(s, t);
	} else {
		forget_program(s, t, false);
		t->since_ns = session__now_ns();
		schedule_look(t, t->since_ns, 0);
		if (!t->given && targets__opts_out(s, t->process.pid))
			leave_out(s, t);
	}
}

void targets__forget_unseen(struct session *s)
{
	int fd = bpf_map__fd(s->skel->maps.procs);
	uint32_t most = bpf_map__max_entries(s->skel->maps.procs), key = 0, *pid;
	struct array ended = {0};
	struct proc proc;

	for (uint32_t i = 0; i < most && !bpf_map_get_next_key(fd, i ? &key : NULL, &key); i++) {
		if (is_known_pid(s, key) || bpf_map_lookup_elem(fd, &key, &proc) || !proc.ended)
			continue;
		pid = array__add(&ended, sizeof(*pid));
		if (pid)
			*pid = key;
	}
	session__read_ring(s); /* of whom it does not tell, nothing will */
	pid = ended.items;
	for (size_t i = 0; i < ended.cnt; i++)
		if (!is_known_pid(s, pid[i]) && !bpf_map_lookup_elem(fd, &pid[i], &proc) && proc.ended)
			forget_pid(s, pid[i]);
	free(ended.items);
}

/*
 * Decides whether to record a forked child. Detaching also removes the breakpoints that it
 * inherited, so that it runs at full speed.
 */
static void settle_fork(struct session *s, struct target *t)
{
	t->pending = t->awaits_libraries = false;
	if (is_worker(t)) {
		t->role = ROLE_WORKER;
		target__emit(s, t);
	} else if (s->options.children == CHILDREN_WORKERS) {
		SOURCES_CALL(unfollow, s, t);
		target__detach(s, t);
	}
}

/* ---- looks ---- */

/* Looks often while a young program has neither torch nor JAX. */
static uint64_t look_delay(const struct target *t)
{
	return targets__is_young(t, YOUNG_NS) && !t->has_torch && !t->jax[0] ? LOOK_OFTEN_NS : LOOK_SELDOM_NS;
}

/* That it cannot be read, as with too many files open, says nothing. */
static bool has_ended(const struct process *process)
{
	struct proc_stat stat;
	int err = proc__stat(process->pid, 0, &stat);

	return err == -ESRCH || (!err && (stat.start_time != process->start_time || proc_stat__dead(&stat)));
}

/* The ring had no room for the record of its end. */
static void tell_lost_exit(struct session *s, const struct target *t)
{
	struct rec_proc rec = {
		.hdr = {.type = REC_PROC, .size = sizeof(rec)},
		.time_ns = session__now_ns(),
		.event = PROC_EXIT,
		.pid = t->process.pid,
	};
	struct proc proc;

	if (!target__proc(s, t, &proc) || !proc.ended)
		return;
	rec.exit_code = proc.exit_code;
	memcpy(rec.comm, t->process.comm, sizeof(rec.comm));
	session__emit(s, &rec.hdr);
}

/* The process is gone, maybe since the ring was read: what it did before comes first. */
static void end_gone_target(struct session *s, struct target *t)
{
	session__read_ring(s);
	if (t->gone)
		return;
	tell_lost_exit(s, t);
	end_target(s, t);
}

/*
 * Reads again which files it maps, which takes milliseconds, unless it maps as much as at the last two
 * looks: a file that was just being mapped at the last one was not there at the one before. 0 or -errno.
 */
static int read_files_again(struct session *s, struct target *t)
{
	struct process process;
	struct proc_extent extent;
	struct proc_stat stat;
	bool same;
	int err = proc__stat(t->process.pid, 0, &stat);

	if (err)
		return err;
	extent = proc_stat__extent(&stat);
	same = proc_extent__same(&extent, &t->extent);
	if (same && t->files_settled && !proc_stat__dead(&stat))
		return 0;
	err = process__read(t->process.pid, &process);
	if (err)
		return err;
	t->extent = extent;
	t->files_settled = same;
	set_target_process(s, t, &process);
	target__detach_unmapped(s, t);
	return 0;
}

/*
 * A process that does not answer, or a file too many, is no end. -EPERM: it is another user's by now,
 * and stepflame may no longer watch it.
 */
static void handle_unread(struct session *s, struct target *t, uint64_t now, int err)
{
	struct proc_command command = {.what = COMMAND_CLOSE, .pid = t->process.pid};

	if (err == -EPERM)
		programs__command(s->skel, &command);
	if (err == -EPERM || err == -ESRCH || has_ended(&t->process)) {
		end_gone_target(s, t);
		return;
	}
	if (!t->unread)
		session__note(
			s, "process %d could not be read (%s): libraries that it loads have no probes until it can be",
			t->process.pid, strerror(-err));
	schedule_look(t, now, LOOK_SELDOM_NS << t->unread);
	t->unread += t->unread < UNREAD_MAX;
}

static void look_at_target(struct session *s, struct target *t, uint64_t now)
{
	uint64_t delay;
	int err = read_files_again(s, t);

	if (err) {
		handle_unread(s, t, now, err);
		return;
	}
	t->unread = 0;
	if (t->forked)
		settle_fork(s, t);
	else
		targets__resolve(s, t);
	if (!t->open && s->opened && t->file_cnt)
		targets__open(s, t);
	else if (t->open)
		SOURCES_TRY(open_target, s, t); /* do what was not possible when it opened */
	delay = soonest_look_ns(s, t);
	if (t->awaits_libraries && (!delay || look_delay(t) < delay))
		delay = look_delay(t);
	t->pending = delay;
	t->look_at_ns = now + delay;
}

int targets__timeout_ms(const struct session *s, int timeout_ms)
{
	uint64_t now = session__now_ns(), soonest = now + timeout_ms * 1000000ULL;

	for (size_t i = 0; i < s->target_cnt; i++) {
		const struct target *t = s->targets[i];

		if (!t->gone && t->pending && t->look_at_ns < soonest)
			soonest = t->look_at_ns;
	}
	return soonest > now ? (int)((soonest - now) / 1000000) : 0;
}

/*
 * From this minor version on, a thread's TSS word points to the state of the interpreter that the
 * thread runs; before, to the state of the thread's first interpreter.
 */
#define MINOR_TSS_CURRENT 12

/* From one check to the next: up to CHECKED_TOGETHER targets are checked each time, and of more each the more seldom. */
static uint64_t check_interval_ns(const struct session *s)
{
	size_t rounds = (s->target_cnt + CHECKED_TOGETHER - 1) / CHECKED_TOGETHER;

	return rounds * CHECK_NS;
}

static void note_interpreters(struct session *s, struct target *t)
{
	if (!t->has_python || t->interpreters_noted)
		return;
	if (py_thread__interpreters(t->process.pid, t->python.runtime, t->python.walk) < 2)
		return;
	t->interpreters_noted = true;
	session__note(
		s,
		t->python.process.layout.minor < MINOR_TSS_CURRENT
			? "process %d has several interpreters: code that a thread runs outside its first "
			  "interpreter counts for the function that calls it"
			: "process %d has several interpreters: stacks are those within the one that runs, without "
			  "what called it in another",
		t->process.pid);
}

/* BPF tells of the end of a process, too, unless it had no room for that record. */
static void check_life(struct session *s, struct target *t, uint64_t now)
{
	t->checked_ns = now;
	if (has_ended(&t->process))
		end_gone_target(s, t);
	else
		note_interpreters(s, t);
}

void targets__tend(struct session *s)
{
	uint64_t now = session__now_ns(), check_ns = check_interval_ns(s);

	s->progress.alive = false;
	for (size_t i = 0; i < s->target_cnt; i++) {
		struct target *t = s->targets[i];

		if (!t->gone && t->pending && t->look_at_ns <= now)
			look_at_target(s, t, now);
		if (!t->gone && now - t->checked_ns >= check_ns)
			check_life(s, t, now);
		if (!t->gone)
			look_at_rank(s, t, now);
		s->progress.alive = s->progress.alive || (!t->gone && t->role == ROLE_MAIN);
	}
	forget_ended(s);
	session__forget_files(s);
}
