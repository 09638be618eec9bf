// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Who the processes of a session are: says it in REC_TARGET records, and again when more is known.
 * In: struct target, and the processes' memory. Out: records.
 */
#include <stdio.h>
#include <string.h>

#include "user/identity/job_id.h"
#include "user/identity/program.h"
#include "user/lib/clock.h"
#include "user/proc/proc.h"
#include "user/session/state.h"

/* A process joins its group some time after it has started, a job without ranks never does. */
#define RANK_LOOK_NS     (500 * 1000000ULL)
#define RANK_LOOK_MAX_NS (512 * 1000000000ULL)

/* What is known of its interpreter: a fork has that of its parent. NULL: nothing. */
static const struct python *target__python(const struct target *t)
{
	return t->python.runtime ? &t->python : NULL;
}

bool target__is_worker(const struct target *t)
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

void target__look_at_rank(struct session *s, struct target *t, uint64_t now)
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
