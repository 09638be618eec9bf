// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reads the stacks of waits that are in progress as the window opens or closes, from outside as
 * `stepflame dump` does.
 * In: the targets. Out: REC_CODE and REC_STACK, and the REC_STACK id for the samples of that one
 * wait.
 */
#include "user/session/sources/waiting.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "include/counters.h"
#include "include/name_hash.h"
#include "user/proc/task.h"
#include "user/runtime/python/pyframes.h"
#include "user/runtime/python/pythread.h"
#include "user/session/session.h"
#include "user/session/sources/samples.h"

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
	has_lines = samples__lines_emitted(s, id, &again);
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
	if (!err && !stack.moving && !task__waits(seen.pid, tid, &nstid, &runs_after) && runs == runs_after)
		seen.stack = emit_stack(s, seen.pid, &stack);
	py_stack__release(&stack);
	if (!seen.stack)
		return 0;
	for (size_t i = 0; i < waiting->cnt; i++) {
		if (waiting->threads[i].pid == seen.pid && waiting->threads[i].tid == tid) {
			waiting->threads[i] = seen;
			return 0;
		}
	}
	more = reallocarray(waiting->threads, waiting->cnt + 1, sizeof(*more));
	if (!more)
		return -ENOMEM;
	waiting->threads = more;
	more[waiting->cnt++] = seen;
	return 0;
}

int waiting__read(struct session *s, struct waiting *waiting)
{
	uint64_t end_ns = session__now_ns() + READING_NS;
	int err = 0;

	for (size_t i = 0; i < s->target_cnt && !err; i++) {
		const struct target *t = s->targets[i];
		struct py_thread *states = NULL;
		pid_t *tids = NULL;
		int state_cnt = t->has_python ? py_thread__list_still(t->process.pid, &t->python, &states) : 0;
		int cnt = state_cnt > 0 ? task__list(t->process.pid, &tids) : 0;

		for (int k = 0; k < cnt && !err && session__now_ns() < end_ns; k++)
			err = read_waiting_thread(s, waiting, t, tids[k], states, state_cnt);
		free(states);
		free(tids);
	}
	return err ?: s->sink_err;
}

void waiting__free(struct waiting *waiting)
{
	free(waiting->threads);
}

/*
 * A wait may arrive in parts (blocked and queued, or cut for a live view), each of which goes on
 * where the one before ended. A later wait begins after that time, since the thread ran in between.
 */
uint64_t waiting__stack(struct waiting *waiting, const struct rec_sample *sample)
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
