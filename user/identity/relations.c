// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What processes are to each other. In: a table with what each is by itself. Out: roles and jobs in it. */
#include <string.h>

#include "user/identity/trainings.h"

#define PASSES_MAX 64 /* generations */

const char *training_role__name(enum training_role role)
{
	static const char *const names[] = {
		[TRAINING_TRAINER] = "trainer",   [TRAINING_WORKER] = "worker", [TRAINING_HELPER] = "helper",
		[TRAINING_LAUNCHER] = "launcher", [TRAINING_NONE] = "none",
	};

	return names[role];
}

/* ---- roles ---- */

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

/* ---- ranks ---- */

/* A program that a rank has started has its environment, and is not that rank. */
static void drop_inherited_ranks(struct trainings *t)
{
	for (size_t i = 0; i < t->cnt; i++) {
		struct training *training = &t->items[i];
		const struct training *above = above_of(t, training);

		if (above && !is_fork(training, above) && training->role == TRAINING_TRAINER &&
		    rank__is_inherited(&training->rank, &above->rank))
			training->rank = (struct rank_id){.number = -1};
	}
}

/* ---- jobs ---- */

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

void trainings__relate(struct trainings *t)
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
