// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Chooses a part of a flame graph: some steps, some threads. The page (user/page/select.js) weighs
 * in the same way.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/flame/flame.h"

#include "user/lib/compare.h"
#include "user/lib/search.h"

/* The steps of a track that are chosen. */
struct chosen_steps {
	const struct flame_track *track;
	bool *steps;         /* by index */
	uint64_t *before_us; /* by index: chosen time before it starts */
	size_t cnt;
};

static uint64_t step_duration_us(const struct flame_step *step)
{
	return step->end_us - step->start_us;
}

/* The longest step first; of equal steps, the earlier one. */
static int compare_slowest_first(const void *a, const void *b, void *steps)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	uint64_t x_us = step_duration_us((const struct flame_step *)steps + x);
	uint64_t y_us = step_duration_us((const struct flame_step *)steps + y);

	return x_us != y_us ? COMPARE(y_us, x_us) : COMPARE(x, y);
}

static int choose_slowest(struct chosen_steps *chosen, uint64_t number)
{
	size_t cnt = chosen->track->step_cnt;
	uint32_t *order = calloc(cnt + 1, sizeof(*order));

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++)
		order[i] = i;
	if (cnt)
		qsort_r(order, cnt, sizeof(*order), compare_slowest_first, chosen->track->steps);
	for (size_t i = 0; i < cnt && i < number; i++)
		chosen->steps[order[i]] = true;
	free(order);
	return 0;
}

static int choose_steps(const struct flame_choice *choice, struct chosen_steps *chosen)
{
	const struct flame_step *steps = chosen->track->steps;
	uint64_t before_us = 0;
	int err = 0;

	chosen->steps = calloc(chosen->track->step_cnt + 1, sizeof(*chosen->steps));
	chosen->before_us = calloc(chosen->track->step_cnt + 1, sizeof(*chosen->before_us));
	if (!chosen->steps || !chosen->before_us)
		return -ENOMEM;
	if (choice->steps == FLAME_SLOWEST)
		err = choose_slowest(chosen, choice->number);
	for (size_t i = 0; i < chosen->track->step_cnt && !err; i++) {
		if (choice->steps == FLAME_STEP)
			chosen->steps[i] = steps[i].index == choice->number;
		chosen->before_us[i] = before_us;
		before_us += chosen->steps[i] ? step_duration_us(&steps[i]) : 0;
		chosen->cnt += chosen->steps[i];
	}
	return err;
}

/* The last step that starts at or before an instant; -1: no step. */
static long find_step(const struct flame_track *track, uint64_t time_us)
{
	size_t low = SEARCH(i, 0, track->step_cnt, track->steps[i].start_us <= time_us);
	return (long)low - 1;
}

/* Chosen time before an instant. */
static uint64_t chosen_before(const struct chosen_steps *chosen, uint64_t time_us)
{
	long at = find_step(chosen->track, time_us);
	const struct flame_step *step;

	if (at < 0)
		return 0;
	step = &chosen->track->steps[at];
	if (!chosen->steps[at])
		return chosen->before_us[at];
	return chosen->before_us[at] + (time_us < step->end_us ? time_us - step->start_us : step_duration_us(step));
}

static double weigh_row(const struct chosen_steps *chosen, const struct flame_row *row)
{
	uint64_t start_us = row->end_us - (row->span_us < row->end_us ? row->span_us : row->end_us);
	long at;

	if (row->span_us)
		return (double)row->weight_ns * (chosen_before(chosen, row->end_us) - chosen_before(chosen, start_us)) /
		       row->span_us;
	at = find_step(chosen->track, row->end_us);
	if (at < 0 || !chosen->steps[at] || row->end_us >= chosen->track->steps[at].end_us)
		return 0;
	return row->weight_ns;
}

bool flame__chooses(const struct flame *flame, const struct flame_choice *choice, const struct flame_thread *thread)
{
	size_t cnt;
	const struct flame_track *tracks = flame__tracks(flame, &cnt);
	bool has_track = false;

	if (thread->recording != choice->recording || (choice->pid && thread->pid != choice->pid))
		return false;
	for (size_t i = 0; i < cnt; i++)
		has_track |= tracks[i].recording == choice->recording && (!choice->pid || tracks[i].pid == choice->pid);
	return choice->all_threads || (has_track ? thread->steps : choice->pid || thread->main);
}

static void weigh_thread(const struct flame_thread *thread, const struct chosen_steps *chosen, double *ns)
{
	const struct flame_row *rows = thread->rows.items;

	for (size_t i = 0; i < thread->rows.cnt; i++)
		ns[rows[i].node] += chosen ? weigh_row(chosen, &rows[i]) : rows[i].weight_ns;
}

int flame__weigh(const struct flame *flame, const struct flame_choice *choice, double *ns, size_t *step_cnt)
{
	size_t thread_cnt, track_cnt;
	const struct flame_thread *threads = flame__threads(flame, &thread_cnt);
	const struct flame_track *tracks = flame__tracks(flame, &track_cnt);
	struct chosen_steps *chosen = calloc(track_cnt + 1, sizeof(*chosen));
	int err = chosen ? 0 : -ENOMEM;

	*step_cnt = 0;
	for (size_t i = 0; i < track_cnt && !err && choice->steps != FLAME_ALL_TIME; i++) {
		chosen[i].track = &tracks[i];
		err = choose_steps(choice, &chosen[i]);
		if (tracks[i].recording == choice->recording && (!choice->pid || tracks[i].pid == choice->pid))
			*step_cnt += chosen[i].cnt;
	}
	for (size_t i = 0; i < thread_cnt && !err; i++) {
		if (!flame__chooses(flame, choice, &threads[i]))
			continue;
		if (choice->steps == FLAME_ALL_TIME)
			weigh_thread(&threads[i], NULL, ns);
		else if (threads[i].track >= 0)
			weigh_thread(&threads[i], &chosen[threads[i].track], ns);
	}
	for (size_t i = 0; chosen && i < track_cnt; i++) {
		free(chosen[i].steps);
		free(chosen[i].before_us);
	}
	free(chosen);
	return err;
}
