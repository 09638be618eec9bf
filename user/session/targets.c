// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The processes of a session: what is mapped in each, which probes that means, and what becomes of them as they fork,
 * exec and exit. In: /proc and REC_PROC records. Out: links, entries of the BPF map `procs`, REC_TARGET records.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stepflame.skel.h"
#include "user/lib/log.h"
#include "user/runtime/python/pythread.h"
#include "user/runtime/torch/torch.h"
#include "user/runtime/xla/jax.h"
#include "user/session/exact.h"
#include "user/session/gpu_probes.h"
#include "user/session/natives.h"
#include "user/session/nvtx_probes.h"
#include "user/session/op_probes.h"
#include "user/session/programs.h"
#include "user/session/sampler.h"
#include "user/session/state.h"
#include "user/session/xla.h"

/* When a forked child is looked at again: by then a DataLoader's worker has given itself its name. */
#define FORK_SETTLE_NS (300 * 1000000ULL)
/* While libraries may still come: often at first, when imports run, and seldom later. */
#define LOOK_OFTEN_NS  (10 * 1000000ULL)
#define LOOK_SELDOM_NS (200 * 1000000ULL)
#define YOUNG_NS       (20 * 1000000000ULL)
/* With --gpu, when all else is there. */
#define LOOK_FOR_DRIVER_NS (1000 * 1000000ULL)
#define LOOK_FOR_MORE_NS   (10000 * 1000000ULL)
/* JAX opens a plugin when it first computes; and that makes its table when it is first asked for it. */
#define LOOK_FOR_PLUGIN_NS (500 * 1000000ULL)
#define PLUGIN_COMES_NS    (120 * 1000000000ULL)
/* The libraries of `import torch` come one after another. */
#define TORCH_SETTLES_NS (2 * 1000000000ULL)

struct target *targets__find(struct session *s, pid_t pid)
{
	for (size_t i = 0; i < s->target_cnt; i++)
		if (s->targets[i]->process.pid == pid && !s->targets[i]->gone)
			return s->targets[i];
	return NULL;
}

/* Also one that is gone, whose counts may not have been read yet. */
static bool is_known(const struct session *s, pid_t pid)
{
	for (size_t i = 0; i < s->target_cnt; i++)
		if (s->targets[i]->process.pid == pid)
			return true;
	return false;
}

void target__free(struct target *t)
{
	target__detach(t);
	gpu_cupti__free(t->cupti);
	free(t->files);
	process__release(&t->process);
	free(t);
}

/* What it had mapped, some 8 KB a library, is of no more use: a job may have thousands of children, one after the other. */
static void leave_target(struct target *t)
{
	t->gone = true;
	process__release(&t->process);
}

static void emit_target(struct session *s, struct target *t)
{
	struct rec_target rec = {
		.hdr = {.type = REC_TARGET, .size = sizeof(rec)},
		.pid = t->process.pid,
		.nspid = t->process.nspid,
		.parent_pid = t->process.parent,
		.role = t->role,
		.rank = -1,
	};
	char rank[16];

	if (!process__environ(t->process.pid, "RANK", rank, sizeof(rank)))
		rec.rank = atoi(rank);
	snprintf(rec.python, sizeof(rec.python), "%s", t->python.version);
	snprintf(rec.torch, sizeof(rec.torch), "%s", t->torch);
	snprintf(rec.jax, sizeof(rec.jax), "%s", t->jax);
	snprintf(rec.command, sizeof(rec.command), "%.*s", (int)sizeof(rec.command) - 1, t->process.command);
	session__emit(s, &rec.hdr);
	t->sent = rec;
}

int targets__add(struct session *s, struct process *process, enum target_role role, struct target **out)
{
	struct target **targets = reallocarray(s->targets, s->target_cnt + 1, sizeof(*targets));
	struct proc proc = {.role = role, .window = WINDOW_CLOSED};
	struct target *t = calloc(1, sizeof(*t));
	uint32_t pid = process->pid;
	uint64_t now, age;

	if (targets)
		s->targets = targets;
	if (!targets || !t) {
		free(t);
		return -ENOMEM;
	}
	/* A fork's entry is there already, made by BPF from its parent's. */
	if (bpf_map_update_elem(bpf_map__fd(s->skel->maps.procs), &pid, &proc, BPF_NOEXIST) && errno != EEXIST) {
		free(t);
		return -errno;
	}
	t->process = *process;
	*process = (struct process){};
	t->role = role;
	now = session__now_ns();
	age = process__age_ns(&t->process);
	t->since_ns = now > age ? now - age : 0;
	s->targets[s->target_cnt++] = t;
	*out = t;
	return 0;
}

/* The file may be mapped long before an interpreter is made. */
static bool has_news_of_python(const struct target *t)
{
	return !t->has_python ||
	       (!t->python.started && py_thread__interpreters(t->process.pid, t->python.runtime, t->python.walk) > 0);
}

static int resolve_python(struct session *s, struct target *t)
{
	struct proc_command command = {.what = COMMAND_PYTHON, .pid = t->process.pid};
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
	err = target__attach(s, t, t->python.file, &t->python, elf, HOLDS_NOTHING);
	elf__free(elf);
	t->has_python = !err;
	if (t->has_python)
		t->exact.file = file_probes__of(s, &t->process, t->python.file, NULL, NULL, HOLDS_NOTHING)->exact;
	t->governor.dev = t->python.file->dev;
	t->governor.inode = t->python.file->inode;
	return err;
}

/* True when it is there, and was not before. Without its probes there still are samples. */
static bool resolve_jax(struct session *s, struct target *t)
{
	const struct mapped_file *jax = t->jax[0] ? NULL : jax__file(&t->process);

	if (!jax)
		return false;
	s->has_jax = true;
	if (target__attach(s, t, jax, NULL, NULL, HOLDS_JAX))
		log__warn(NULL, "no probes could be placed in %s: rows of it will be missing", jax->path);
	jax__version(&t->process, jax, t->jax, sizeof(t->jax));
	return true;
}

static bool is_young(const struct target *t, uint64_t age_ns)
{
	return session__now_ns() - t->since_ns < age_ns;
}

static bool awaits_plugin(const struct target *t)
{
	return !t->has_pjrt && (t->jax[0] || t->lacks_pjrt) && is_young(t, PLUGIN_COMES_NS);
}

int targets__resolve(struct session *s, struct target *t)
{
	const struct mapped_file *torch = torch__file(&t->process);
	bool news = false;
	int err = 0, python_err = 0;

	if (has_news_of_python(t)) {
		python_err = resolve_python(s, t);
		news = t->has_python;
	}
	if (torch && !t->has_torch) {
		err = target__attach(s, t, torch, NULL, NULL, HOLDS_TORCH);
		t->has_torch = !err;
		t->torch_ns = session__now_ns();
		if (t->has_torch)
			torch__version(&t->process, torch, t->torch, sizeof(t->torch));
		err = err ?: op_probes__add_target(s, t);
		if (!err && t->open)
			op_probes__open(s, t); /* of a command, which had no torch when its window was opened */
		news = news || t->has_torch;
	}
	news = resolve_jax(s, t) || news;
	t->lacks_pjrt = false;
	for (size_t i = 0; i < t->process.file_cnt && !err; i++) {
		const struct mapped_file *file = &t->process.files[i];
		enum file_holds holds = xla__is_plugin(file->path) ? HOLDS_PLUGIN : HOLDS_NOTHING;

		if (holds == HOLDS_PLUGIN && !t->has_pjrt && !xla__plugin_is_ready(&t->process, file)) {
			t->lacks_pjrt = true;
			if (is_young(t, PLUGIN_COMES_NS))
				continue;
		}
		if (file_probes__has_action(s, file))
			err = target__attach(s, t, file, NULL, NULL, holds);
		else if ((natives__wanted(file->path) || holds || gpu_probes__holds(s, file) ||
			  nvtx_probes__holds(s, file)) &&
			 target__attach(s, t, file, NULL, NULL, holds) && !t->told)
			log__warn(NULL, "no probes could be placed in %s: rows of it will be missing", file->path);
	}
	if (t->role == ROLE_CHILD && torch__is_worker(&t->process))
		t->role = ROLE_WORKER;
	if (news || !t->told)
		emit_target(s, t);
	t->told = true;
	t->pending = !(t->has_torch || t->jax[0]) || !t->has_python || !t->python.started ||
		     session__now_ns() - t->torch_ns < TORCH_SETTLES_NS;
	for (size_t i = 0; i < s->options.action_cnt; i++)
		t->pending = t->pending || (s->actions[i].library && !s->actions[i].found);
	t->pending = t->pending || awaits_plugin(t);
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
	int err = exact__arm(s, t);

	if (err && err != -EAGAIN)
		return err;
	t->open = true;
	op_probes__open(s, t);
	command.start_ns = session__now_ns();
	return programs__command(s->skel, &command);
}

void targets__trains(struct session *s, struct target *t)
{
	t->role = ROLE_MAIN;
	/* has_torch is not told of a fork, which has its parent's probes. */
	if (torch__file(&t->process) && !op_probes__add_target(s, t) && t->open)
		op_probes__open(s, t);
}

static bool has_steps(struct session *s, uint32_t pid)
{
	struct proc proc;

	return !bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.procs), &pid, &proc) && targets__has_steps(&proc);
}

void targets__tell_trainers(struct session *s)
{
	for (size_t i = 0; i < s->target_cnt; i++) {
		struct target *t = s->targets[i];

		if (!t->sent.pid || t->sent.role != ROLE_CHILD || t->role != ROLE_MAIN ||
		    has_steps(s, t->process.parent))
			continue;
		t->sent.role = ROLE_MAIN;
		session__emit(s, &t->sent.hdr);
	}
}

static void look_later(struct target *t, uint64_t now, uint64_t delay)
{
	t->pending = true;
	t->look_at_ns = now + delay;
}

/*
 * A forked child: the same program and memory as its parent until it calls exec, so BPF has copied what it knows of the
 * parent, and the files whose probes are known are mapped at the same places. Its breakpoints are there from the first
 * instruction, inherited; its calls are counted once the links are there, some ms later.
 */
static void attach_fork(struct session *s, struct target *t)
{
	for (size_t i = 0; i < t->process.file_cnt; i++) {
		const struct mapped_file *file = &t->process.files[i];

		for (size_t k = 0; k < s->file_cnt; k++)
			if (s->files[k].dev == file->dev && s->files[k].inode == file->inode)
				target__attach(s, t, file, NULL, NULL, HOLDS_NOTHING);
	}
}

/* A child that ended before it was looked at is told by what its parent is: workers of short epochs are such children. */
static void emit_ended_child(struct session *s, const struct target *parent, uint32_t pid)
{
	struct rec_target rec = parent->sent;

	if (!rec.pid || s->options.children == CHILDREN_NONE)
		return;
	rec.pid = rec.nspid = pid;
	rec.parent_pid = parent->process.pid;
	rec.role = ROLE_CHILD;
	session__emit(s, &rec.hdr);
}

static void forked(struct session *s, const struct rec_proc *rec)
{
	struct target *parent = targets__find(s, rec->parent_pid), *t;
	struct process process = {};

	if (!parent)
		return;
	op_probes__forked(s, parent);
	if (process__read(rec->pid, &process)) {
		emit_ended_child(s, parent, rec->pid);
		return;
	}
	if (targets__add(s, &process, ROLE_CHILD, &t)) {
		process__release(&process);
		return;
	}
	t->forked = true;
	t->governor.dev = parent->governor.dev;
	t->governor.inode = parent->governor.inode;
	t->nvtx.aside = parent->nvtx.aside;
	snprintf(t->torch, sizeof(t->torch), "%s", parent->torch);
	snprintf(t->jax, sizeof(t->jax), "%s", parent->jax);
	snprintf(t->python.version, sizeof(t->python.version), "%s", parent->python.version);
	attach_fork(s, t);
	exact__forked(s, t, parent, s->options.children != CHILDREN_NONE);
	if (s->options.children == CHILDREN_NONE) {
		target__detach(t);
		leave_target(t); /* as far as we care */
		return;
	}
	emit_target(s, t);
	if (s->opened)
		targets__open(s, t);
	look_later(t, session__now_ns(), FORK_SETTLE_NS);
}

static void forget_number(struct session *s, pid_t pid)
{
	struct proc_command command = {.what = COMMAND_FORGET, .pid = pid};

	programs__command(s->skel, &command);
}

/*
 * Children that have ended: what they paid is added up, and all else goes, since a job may have any number of them. Those
 * that train are kept, for the window is theirs, too.
 */
static void forget_ended(struct session *s)
{
	size_t cnt = 0;

	for (size_t i = 0; i < s->target_cnt; i++) {
		struct target *t = s->targets[i];
		uint32_t pid = t->process.pid;
		struct proc proc = {.ended = 1};

		if (t->gone && t->role != ROLE_MAIN)
			bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.procs), &pid, &proc);
		if (!t->gone || t->role == ROLE_MAIN || !proc.ended || targets__has_steps(&proc) ||
		    t->gpu.tier == GPU_TIER_CUPTI) {
			s->targets[cnt++] = t;
			continue;
		}
		hit_sums__add(s, &s->ended, &proc, 0);
		forget_number(s, pid);
		gpu_cupti__forget(s, t);
		target__free(t);
	}
	s->target_cnt = cnt;
}

void targets__event(struct session *s, const struct rec_proc *rec)
{
	uint64_t now = session__now_ns();
	uint32_t pid = rec->pid, windows;
	struct target *t;

	if (rec->event == PROC_FORK) {
		forked(s, rec);
		return;
	}
	t = targets__find(s, pid);
	if (!t && rec->event == PROC_EXIT && !is_known(s, pid))
		forget_number(s, pid); /* of a child that ended before it was looked at, or is not recorded */
	if (!t)
		return;
	if (rec->event == PROC_LIGHTNING) {
		t->lightning = true;
		target__attach_again(s, t);
		return;
	}
	target__detach(t);
	op_probes__remove_target(s, t);
	sampler__forget(s, pid);
	t->lightning = t->interpreters_noted = false;
	t->has_python = t->has_torch = t->has_pjrt = t->lacks_pjrt = t->forked = false;
	t->python = (struct python){};
	t->governor.inode = 0;
	memset(&t->nvtx, 0, sizeof(t->nvtx));
	memset(&t->exact, 0, sizeof(t->exact));
	t->torch[0] = t->jax[0] = 0;
	if (rec->event == PROC_EXIT) {
		leave_target(t);
		t->pending = false;
	} else {
		t->op_slot = 0;
		gpu_cupti__forget(s, t);
		windows = t->gpu.windows; /* they are told by pid and number */
		memset(&t->gpu, 0, sizeof(t->gpu));
		t->gpu.windows = windows;
		t->since_ns = now;
		look_later(t, now, 0);
	}
}

/*
 * The child has settled: is it one to watch? Detaching takes the inherited breakpoints away, too, so that it runs at
 * full speed.
 */
static void settle_fork(struct session *s, struct target *t)
{
	t->pending = false;
	if (torch__is_worker(&t->process)) {
		t->role = ROLE_WORKER;
		emit_target(s, t);
	} else if (s->options.children == CHILDREN_WORKERS) {
		exact__disarm(s, t);
		target__detach(t);
	}
}

static uint64_t look_delay(const struct target *t)
{
	if (awaits_plugin(t))
		return LOOK_FOR_PLUGIN_NS;
	if (is_young(t, YOUNG_NS) && !t->has_torch && !t->jax[0])
		return LOOK_OFTEN_NS;
	return LOOK_SELDOM_NS;
}

/* All is there but what CUDA brings: the runtime maps the driver when it is first called. */
static uint64_t gpu_delay(const struct target *t)
{
	return process__file(&t->process, "libcuda.so") ? LOOK_FOR_MORE_NS : LOOK_FOR_DRIVER_NS;
}

static void look_at_target(struct session *s, struct target *t, uint64_t now)
{
	struct process process;

	if (process__read(t->process.pid, &process)) {
		leave_target(t);
		return;
	}
	process__release(&t->process);
	t->process = process;
	if (t->forked)
		settle_fork(s, t);
	else
		targets__resolve(s, t);
	if (!t->open && s->opened && t->file_cnt)
		targets__open(s, t);
	else if (t->open)
		exact__arm(s, t);
	t->pending = t->pending || exact__waits(s, t);
	t->look_at_ns = now + (t->pending ? look_delay(t) : gpu_delay(t));
	t->pending = t->pending || (s->options.gpu != SESSION_GPU_OFF && !t->forked);
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

#define MINOR_BINDS \
	12 /* from which on a thread's word has the state of the interpreter that it runs, not of its first */

static void note_interpreters(struct session *s, struct target *t)
{
	if (!t->has_python || t->interpreters_noted ||
	    py_thread__interpreters(t->process.pid, t->python.runtime, t->python.walk) < 2)
		return;
	t->interpreters_noted = true;
	session__note(
		s,
		t->python.process.layout.minor < MINOR_BINDS
			? "process %d has several interpreters: what a thread runs in another than its first is in "
			  "the function that calls it"
			: "process %d has several interpreters: stacks are those within the one that runs, without "
			  "what called it in another",
		t->process.pid);
}

void targets__tend(struct session *s)
{
	uint64_t now = session__now_ns();

	s->progress.alive = false;
	for (size_t i = 0; i < s->target_cnt; i++) {
		struct target *t = s->targets[i];

		if (!t->gone && t->pending && t->look_at_ns <= now)
			look_at_target(s, t, now);
		if (!t->gone && !process__alive(&t->process)) {
			target__detach(t);
			leave_target(t);
		}
		if (!t->gone)
			note_interpreters(s, t);
		s->progress.alive = s->progress.alive || (!t->gone && t->role == ROLE_MAIN);
	}
	forget_ended(s);
}

void targets__note(struct session *s)
{
	for (size_t i = 0; i < s->target_cnt; i++)
		if (s->targets[i]->lacks_pjrt && !s->targets[i]->has_pjrt)
			session__note(s,
				      "the PJRT_Api of process %d's plugin was not found, or is none that is known: "
				      "there are no pjrt rows",
				      s->targets[i]->process.pid);
}
