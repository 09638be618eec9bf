// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Targets that have ended: keeps what BPF last knew of them, frees the rest, and lets BPF forget
 * their pids.
 */
#include <stdlib.h>

#include "stepflame.skel.h"
#include "user/session/programs.h"
#include "user/session/state.h"

#define MAINS_KEPT 64 /* main processes that have ended; of earlier ones only sums stay */

void targets__forget_pid(struct session *s, uint32_t pid)
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
	targets__forget_pid(s, t->process.pid);
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
		targets__forget_pid(s, t->process.pid);
	SOURCES_CALL(forget, s, t);
	target__free(t);
}

void targets__forget_ended(struct session *s)
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
