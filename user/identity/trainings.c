// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/identity/trainings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/clock.h"
#include "user/lib/compare.h"
#include "user/proc/deputy.h"
#include "user/proc/proc.h"
#include "user/runtime/python/python.h"
#include "user/runtime/torch/torch.h"
#include "user/runtime/xla/jax.h"

/* ---- what each is ---- */

#define ANCESTORS_MAX 64 /* generations; a pid that is used again could make a circle */

/* From a look to the next: */
#define SETTLES_NS 10000000000ull  /* a process is examined each time for so long, and so seldom then, */
#define SURE_NS    300000000000ull /* or so seldom, where it hardly will become something else */

/* A process that is not of interest, as it was when it was examined. */
struct other_process {
	pid_t pid;
	struct proc_extent extent;
	int err; /* -ENOENT: it has neither torch nor JAX; else why it may not be examined */
};

static int by_pid(const void *a, const void *b)
{
	const struct training *x = a, *y = b;

	return x->process.pid - y->process.pid;
}

struct training *trainings__pid(const struct trainings *t, pid_t pid)
{
	const struct training wanted = {.process.pid = pid};

	return t->cnt ? bsearch(&wanted, t->items, t->cnt, sizeof(wanted), by_pid) : NULL;
}

static void examine(struct training *training)
{
	const struct python *python = &training->python;
	int err;

	training->rank.number = -1;
	training->python_err = -EAGAIN;
	if (torch__is_worker(&training->process)) { /* the name says it; a job may have hundreds */
		training->program = PROGRAM_WORKER;
		return;
	}
	err = training->python_err = python__find(&training->process, &training->python, NULL);
	if (!err || err == -ENOENT)
		training->program = program__read(&training->process, err ? NULL : python);
	training->rank = rank__read(&training->process, err ? NULL : python);
	program__exec_id(training->process.pid, training->exec_id);
	job_id__read(&training->process, &training->id);
}

/* What the deputy read last, for its next work. */
static struct process last_read;

/* Returns struct process, and then its files; -ENOENT: it has neither torch nor JAX. */
static int read_in_deputy(const void *in, struct deputy_out *out)
{
	const pid_t *pid = in;
	int err;

	process__release(&last_read);
	err = process__read(*pid, &last_read);
	if (err)
		return err;
	if (!torch__file(&last_read) && !jax__file(&last_read))
		return -ENOENT;
	memcpy(out->bytes, &last_read, sizeof(last_read));
	memcpy(out->bytes + sizeof(last_read), last_read.files, last_read.file_cnt * sizeof(*last_read.files));
	out->size = sizeof(last_read) + last_read.file_cnt * sizeof(*last_read.files);
	return 0;
}

struct examined {
	struct training training;
	size_t python_file; /* index of python.file */
};

static int examine_in_deputy(const void *in, struct deputy_out *out)
{
	const struct process *process = in;
	struct examined examined = {0};
	struct training *training = &examined.training;

	if (last_read.pid != process->pid || last_read.start_time != process->start_time)
		return -ESRCH; /* this deputy has not read it: the other one died */
	training->process = last_read;
	examine(training);
	examined.python_file = training->python.file ? training->python.file - last_read.files : 0;
	memcpy(out->bytes, &examined, sizeof(examined));
	out->size = sizeof(examined);
	return 0;
}

/* All of it by two works: it takes hundreds of reads. A process whose memory does not answer is one all the same. */
static int read_training(pid_t pid, struct training *out)
{
	const struct deputy_out *answer;
	struct examined examined;
	struct process process;
	int err = deputy__run(pid, read_in_deputy, &pid, sizeof(pid), &answer);

	if (err)
		return err;
	memcpy(&process, answer->bytes, sizeof(process));
	process.files = malloc(process.file_cnt * sizeof(*process.files) ?: 1);
	if (!process.files)
		return -ENOMEM;
	memcpy(process.files, answer->bytes + sizeof(process), process.file_cnt * sizeof(*process.files));
	err = deputy__run(pid, examine_in_deputy, &process, sizeof(process), &answer);
	*out = (struct training){.process = process};
	if (err == -ETIMEDOUT) {
		examine(out); /* what it asks the deputy fails at once from now on */
		return 0;
	}
	if (err) {
		process__release(&out->process);
		return err;
	}
	memcpy(&examined, answer->bytes, sizeof(examined));
	*out = examined.training;
	out->process = process;
	if (out->python.file)
		out->python.file = &out->process.files[examined.python_file];
	return 0;
}

static void find_above(struct trainings *t, struct training *training)
{
	pid_t pid = training->process.parent;
	struct proc_stat stat;

	training->above = 0;
	for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
		if (trainings__pid(t, pid)) {
			training->above = pid;
			return;
		}
		if (proc__stat(pid, 0, &stat))
			return;
		pid = stat.parent;
	}
}

/* ---- what is known from the last look ---- */

static int by_other_pid(const void *a, const void *b)
{
	const struct other_process *x = a, *y = b;

	return x->pid - y->pid;
}

/* Is it one that cannot have got torch or JAX since? Both map hundreds of megabytes. */
static const struct other_process *find_other(const struct trainings *before, pid_t pid,
					      const struct proc_extent *extent)
{
	const struct other_process wanted = {.pid = pid};
	const struct other_process *other =
		before->others.cnt
			? bsearch(&wanted, before->others.items, before->others.cnt, sizeof(wanted), by_other_pid)
			: NULL;

	return other && proc_extent__same(&other->extent, extent) ? other : NULL;
}

/* How long may what was found be taken for what is? same: it has as much memory mapped as then. */
static uint64_t lasts_ns(const struct training *training, bool same)
{
	bool trains = training->role == TRAINING_TRAINER && training->program != PROGRAM_WAITS;

	if (training->program == PROGRAM_WORKER)
		return SURE_NS;
	if (training->program == PROGRAM_IMPORTS || training->program == PROGRAM_UNKNOWN)
		return 0;
	if (training->seen_ns - training->first_seen_ns < SETTLES_NS)
		return trains && same ? SETTLES_NS : 0;
	return trains ? SURE_NS : SETTLES_NS;
}

/* NULL: it is to be examined. *known: it is the same program as before, all the same. */
static struct training *find_known(const struct trainings *before, pid_t pid, const struct proc_extent *extent,
				   uint64_t now_ns, bool *known)
{
	struct training *training = trainings__pid(before, pid);

	*known = training && training->extent.start_time == extent->start_time &&
		 training->extent.stack_start == extent->stack_start;
	return *known && now_ns - training->seen_ns < lasts_ns(training, proc_extent__same(&training->extent, extent))
		       ? training
		       : NULL;
}

/* ---- what they are to each other: roles ---- */

#define PASSES_MAX 64 /* generations */

static const struct training *above_of(const struct trainings *t, const struct training *training)
{
	return training->above ? trainings__pid(t, training->above) : NULL;
}

/* The nearest above that is no helper: a forkserver may have torch, too. */
static const struct training *owner_of(const struct trainings *t, const struct training *training)
{
	const struct training *above = above_of(t, training);

	for (size_t i = 0; above && above->role == TRAINING_HELPER && i < t->cnt; i++)
		above = above_of(t, above);
	return above;
}

static bool is_fork(const struct training *training, const struct training *above)
{
	static const uint8_t unknown[EXEC_ID_BYTES];

	return memcmp(training->exec_id, unknown, sizeof(unknown)) &&
	       !memcmp(training->exec_id, above->exec_id, sizeof(unknown));
}

/* Where its stack is not known: does it look like a part of the process that has started it? */
static bool looks_like_part(const struct training *training, const struct training *above)
{
	return training->process.parent == above->process.pid &&
	       (!strcmp(training->process.command, above->process.command) ||
		strstr(training->process.command, "multiprocessing"));
}

static bool has_own_rank(const struct training *training, const struct training *owner)
{
	return training->rank.number >= 0 && training->rank.number != owner->rank.number;
}

/* A process that fork or multiprocessing made: a rank of its own, or a worker? */
static enum training_role role_of_child(const struct training *training, const struct training *owner)
{
	if (!owner || owner->role == TRAINING_LAUNCHER || owner->program == PROGRAM_WAITS ||
	    has_own_rank(training, owner))
		return TRAINING_TRAINER;
	return TRAINING_WORKER;
}

static enum training_role role_of_script(const struct training *training, const struct training *above,
					 const struct training *owner)
{
	if (above && above->role == TRAINING_WORKER)
		return is_fork(training, above) ? TRAINING_WORKER : TRAINING_HELPER;
	if (above && is_fork(training, above))
		return role_of_child(training, owner);
	return TRAINING_TRAINER;
}

/*
 * Has it started ranks, and is none itself? What only waits for a script that it has started may go
 * on to train.
 */
static bool has_launched(const struct trainings *t, const struct training *training)
{
	bool launched = false;

	if (training->rank.number >= 0)
		return false;
	for (size_t i = 0; i < t->cnt; i++) {
		const struct training *other = &t->items[i];
		bool spawned = other->program == PROGRAM_CHILD && training->program == PROGRAM_WAITS;

		if (other->above != training->process.pid)
			continue;
		if (other->role == TRAINING_WORKER)
			return false;
		launched |= other->role == TRAINING_TRAINER && (spawned || other->rank.number >= 0);
	}
	return launched;
}

static enum training_role role_of(const struct trainings *t, const struct training *training)
{
	const struct training *above = above_of(t, training), *owner = owner_of(t, training);
	enum training_role role;

	switch (training->program) {
	case PROGRAM_NATIVE:
		return above ? TRAINING_HELPER : TRAINING_NONE;
	case PROGRAM_LAUNCHER:
		return TRAINING_LAUNCHER;
	case PROGRAM_RANK:
		return TRAINING_TRAINER;
	case PROGRAM_WORKER:
		return TRAINING_WORKER;
	case PROGRAM_HELPER:
		return TRAINING_HELPER;
	case PROGRAM_CHILD:
		role = role_of_child(training, owner);
		break;
	case PROGRAM_UNKNOWN:
		role = above && looks_like_part(training, above) ? role_of_child(training, owner)
								 : role_of_script(training, above, owner);
		break;
	default:
		role = role_of_script(training, above, owner);
	}
	return role == TRAINING_TRAINER && has_launched(t, training) ? TRAINING_LAUNCHER : role;
}

/* Of a process follows what is below it, and the other way round. */
static void find_roles(struct trainings *t)
{
	bool changed = true;

	for (int pass = 0; changed && pass < PASSES_MAX; pass++) {
		changed = false;
		for (size_t i = 0; i < t->cnt; i++) {
			enum training_role role = role_of(t, &t->items[i]);

			changed |= role != t->items[i].role;
			t->items[i].role = role;
		}
	}
}

/* Whose are the workers and helpers? */
static void find_owners(struct trainings *t)
{
	for (size_t i = 0; i < t->cnt; i++) {
		struct training *training = &t->items[i], *of = training;

		if (training->role != TRAINING_WORKER && training->role != TRAINING_HELPER)
			continue;
		for (size_t k = 0; of && of->role != TRAINING_TRAINER && k < t->cnt; k++)
			of = of->above ? trainings__pid(t, of->above) : NULL;
		if (!of || of->role != TRAINING_TRAINER)
			continue;
		training->of = of->process.pid;
		of->workers += training->role == TRAINING_WORKER;
	}
}

/*
 * Has a process that a process with the rank `above` started, as a program of its own, only
 * inherited its rank? An environment is passed on to all that a rank starts.
 */
static bool is_inherited(const struct rank_id *rank, const struct rank_id *above)
{
	return rank->source != RANK_GROUP && rank->number >= 0 && rank->number == above->number;
}

/* A program that a rank has started has its environment, and is not that rank. */
static void drop_inherited_ranks(struct trainings *t)
{
	for (size_t i = 0; i < t->cnt; i++) {
		struct training *training = &t->items[i];
		const struct training *above = above_of(t, training);

		if (above && !is_fork(training, above) && training->role == TRAINING_TRAINER &&
		    is_inherited(&training->rank, &above->rank))
			training->rank = (struct rank_id){.number = -1};
	}
}

/* ---- what they are to each other: jobs ---- */

static bool is_same(const char *a, const char *b)
{
	return a[0] && !strcmp(a, b);
}

static bool meet(const struct training *a, const struct training *b)
{
	return a->rank.number >= 0 && b->rank.number >= 0 && is_same(a->id.port, b->id.port) &&
	       !strcmp(a->id.address, b->id.address) && !strcmp(a->id.container, b->id.container);
}

/* Anybody can say that he is of the job of another user: what happens to his processes would count as that job's. */
static bool is_same_by_name(const struct training *a, const struct training *b)
{
	if (a->process.uid != b->process.uid)
		return false;
	return is_same(a->id.run, b->id.run) || is_same(a->id.mpi, b->id.mpi) || meet(a, b) ||
	       (is_same(a->id.slurm, b->id.slurm) && is_same(a->id.slurm_step, b->id.slurm_step));
}

static bool is_same_job(const struct training *a, const struct training *b)
{
	if (a->above == b->process.pid || b->above == a->process.pid)
		return true;
	if (is_same_by_name(a, b))
		return true;
	return a->rank.number >= 0 && b->rank.number >= 0 && a->process.parent > 1 &&
	       a->process.parent == b->process.parent;
}

static void join_jobs(struct trainings *t, size_t a, size_t b)
{
	size_t first = a < b ? a : b, other = a < b ? b : a;

	for (size_t i = 0; i < t->cnt; i++)
		if (t->items[i].job == other)
			t->items[i].job = first;
}

/* Finds out from what each is by itself what follows from it. */
static void relate(struct trainings *t)
{
	for (size_t i = 0; i < t->cnt; i++) {
		t->items[i].role = TRAINING_TRAINER;
		t->items[i].of = 0;
		t->items[i].workers = 0;
	}
	find_roles(t);
	find_owners(t);
	drop_inherited_ranks(t);
	for (size_t i = 0; i < t->cnt; i++)
		t->items[i].job = i;
	for (size_t i = 0; i < t->cnt; i++)
		for (size_t k = 0; k < i; k++)
			if (t->items[i].job != t->items[k].job && is_same_job(&t->items[i], &t->items[k]))
				join_jobs(t, t->items[i].job, t->items[k].job);
}

/* ---- a look ---- */

static void keep(struct trainings *t, struct training *known, const struct proc_stat *stat)
{
	struct training *training = &t->items[t->cnt++];

	process__release(&known->process); /* files take half a megabyte */
	*training = *known;
	training->python.file = NULL;
	training->process.parent = stat->parent;
}

/* Examines a process. 0 or -ENOMEM. */
static int add(struct trainings *t, pid_t pid, const struct proc_extent *extent)
{
	struct training *training = &t->items[t->cnt];
	struct other_process *other;
	int err = read_training(pid, training);

	if (!err) {
		training->extent = *extent;
		t->cnt++;
	}
	t->hidden += err == -EACCES || err == -EPERM;
	if (err != -ENOENT && err != -EACCES && err != -EPERM)
		return err == -ENOMEM ? err : 0; /* what does not answer is asked again */
	other = array__add(&t->others, sizeof(*other));
	if (!other)
		return -ENOMEM;
	*other = (struct other_process){pid, *extent, err};
	return 0;
}

/* Who has started what is new may do something else by now. */
static void examine_above(struct trainings *t, const struct training *new, uint64_t now_ns)
{
	struct training *above = new->above ? trainings__pid(t, new->above) : NULL;

	if (!above || above->seen_ns == now_ns)
		return;
	above->program = program__read(&above->process, above->python_err ? NULL : &above->python);
	above->seen_ns = now_ns;
}

struct training_look {
	uint64_t now_ns;
	uint64_t limit_ns; /* 0: none */
	uint64_t took_ns;  /* to examine processes, so far */
};

static bool look__is_over(const struct training_look *look)
{
	return look->limit_ns && look->took_ns >= look->limit_ns;
}

/* What is known of a process moves from `before` to *t, or it is examined. 0 or -ENOMEM. */
static int examine_or_move(pid_t pid, struct trainings *before, struct trainings *t, struct training_look *look)
{
	const struct other_process *other;
	struct training *training;
	struct proc_extent extent;
	struct proc_stat stat;
	size_t cnt = t->cnt;
	uint64_t begin_ns;
	bool known;
	int err;

	if (proc__stat(pid, 0, &stat) || !proc_stat__is_program(&stat))
		return 0;
	extent = proc_stat__extent(&stat);
	other = find_other(before, pid, &extent);
	if (other) {
		struct other_process *again = array__add(&t->others, sizeof(*again));

		if (!again)
			return -ENOMEM;
		*again = *other;
		t->hidden += other->err != -ENOENT;
		return 0;
	}
	training = find_known(before, pid, &extent, look->now_ns, &known);
	if (!training && known && pid < before->stopped_at) /* the look before has examined it */
		training = trainings__pid(before, pid);
	if (!training && look__is_over(look)) {
		t->stopped_at = t->stopped_at ?: pid;
		if (!known)
			return 0;
		training = trainings__pid(before, pid);
	}
	if (training) {
		keep(t, training, &stat);
		return 0;
	}
	begin_ns = clock__ns(CLOCK_MONOTONIC);
	err = add(t, pid, &extent);
	look->took_ns += clock__ns(CLOCK_MONOTONIC) - begin_ns;
	if (t->cnt > cnt) {
		t->items[cnt].seen_ns = look->now_ns;
		t->items[cnt].first_seen_ns = known ? trainings__pid(before, pid)->first_seen_ns : look->now_ns;
	}
	return err;
}

int trainings__look_again(struct trainings *t, uint64_t limit_ns)
{
	uint64_t now_ns = clock__ns(CLOCK_MONOTONIC);
	struct training_look look = {.now_ns = now_ns, .limit_ns = limit_ns};
	struct trainings before = *t;
	pid_t *pids = NULL;
	int cnt = process__list(&pids), err;

	*t = (struct trainings){.items = calloc(cnt > 0 ? cnt : 1, sizeof(*t->items))};
	err = t->items ? 0 : -ENOMEM;
	if (cnt > 0)
		qsort(pids, cnt, sizeof(*pids), compare__pid);
	for (int i = 0; i < cnt && !err; i++)
		err = examine_or_move(pids[i], &before, t, &look);
	free(pids);
	trainings__release(&before);
	if (err) {
		trainings__release(t);
		return err;
	}
	for (size_t i = 0; i < t->cnt; i++)
		find_above(t, &t->items[i]);
	for (size_t i = 0; i < t->cnt; i++)
		if (t->items[i].first_seen_ns == now_ns)
			examine_above(t, &t->items[i], now_ns);
	relate(t);
	return 0;
}

int trainings__find(struct trainings *out)
{
	*out = (struct trainings){0};
	return trainings__look_again(out, 0);
}

void trainings__release(struct trainings *t)
{
	for (size_t i = 0; i < t->cnt; i++)
		process__release(&t->items[i].process);
	free(t->items);
	free(t->others.items);
	*t = (struct trainings){0};
}

bool training__is_target(const struct training *training)
{
	return training->role == TRAINING_TRAINER;
}

const char *training_role__name(enum training_role role)
{
	static const char *const names[] = {
		[TRAINING_TRAINER] = "trainer",   [TRAINING_WORKER] = "worker", [TRAINING_HELPER] = "helper",
		[TRAINING_LAUNCHER] = "launcher", [TRAINING_NONE] = "none",
	};

	return names[role];
}
