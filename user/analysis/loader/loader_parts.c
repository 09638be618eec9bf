// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/loader/loader_parts.h"

#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/histograms.h"
#include "user/lib/map.h"
#include "user/lib/saturating.h"
#include "user/model/io.h"

struct loader_iterator {
	struct pipe_val val; /* as read by the process */
	uint32_t worker_cnt;
	uint32_t loader; /* LOADER_NONE: the pipe does not belong to a loader */
};

/* ---- workers to iterators ---- */

static uint64_t pipe_key(const struct file_key *key)
{
	return (key->inode ^ (uint64_t)key->dev << 44) + 1;
}

/*
 * Adds the pipes from which the process reads messages. Their numbers in `keys` are those of the
 * iterators, plus 1.
 */
static int add_iterators(const struct job *job, uint32_t pid, struct intern *keys, struct array *out)
{
	size_t cnt;
	const struct io_pipe *pipes = io__pipes(job__io(job), &cnt);

	for (size_t i = 0; i < cnt; i++) {
		uint32_t number;

		if (pipes[i].key.pid != pid || !pipes[i].val.messages)
			continue;
		if (intern__add(keys, pipe_key(&pipes[i].key), &number) ||
		    array__grow(out, number, sizeof(struct loader_iterator)))
			return -1;
		((struct loader_iterator *)out->items)[number - 1] =
			(struct loader_iterator){.val = pipes[i].val, .loader = LOADER_NONE};
	}
	return 0;
}

/* Assigns each worker to the pipe that it writes most, of those that the process reads. */
static int assign_writers(const struct job *job, struct worker *workers, size_t worker_cnt, struct intern *keys)
{
	size_t cnt;
	const struct io_pipe *pipes = io__pipes(job__io(job), &cnt);
	uint64_t *most = calloc(worker_cnt + 1, sizeof(*most));
	struct worker **by_number = calloc(worker_cnt + 1, sizeof(*by_number));
	struct intern pids = {0};
	uint32_t number;
	int failed = !most || !by_number;

	for (size_t i = 0; i < worker_cnt && !failed; i++) {
		failed = intern__add(&pids, workers[i].pid, &number);
		by_number[number] = &workers[i];
	}
	for (size_t i = 0; i < cnt && !failed; i++) {
		const struct io_pipe *pipe = &pipes[i];

		if (!pipe->val.writes || !intern__find(&pids, pipe->key.pid) ||
		    !intern__find(keys, pipe_key(&pipe->key)))
			continue;
		failed = intern__add(&pids, pipe->key.pid, &number);
		if (failed || pipe->val.writes <= most[number])
			continue;
		most[number] = pipe->val.writes;
		failed = intern__add(keys, pipe_key(&pipe->key), &by_number[number]->iterator);
	}
	intern__free(&pids);
	free(by_number);
	free(most);
	return failed ? -1 : 0;
}

/*
 * A worker that wrote nothing belongs to the iterator of the workers started before it, if that
 * iterator needed all its workers for its first batch; else to the next iterator.
 */
static void assign_others(const struct loader_iterator *iterators, struct worker *workers, size_t worker_cnt)
{
	for (size_t i = 0; i < worker_cnt; i++) {
		uint32_t before = i ? workers[i - 1].iterator : 0, next = 0;

		if (workers[i].iterator)
			continue;
		for (size_t k = i + 1; k < worker_cnt && !next; k++)
			next = workers[k].iterator;
		if (before == next || (before && workers[i].first_ns <= iterators[before - 1].val.first_ns))
			workers[i].iterator = before;
		else
			workers[i].iterator = next;
	}
}

int loader_parts__find_iterators(struct loader_parts *parts, const struct job *job, struct loader *whole)
{
	struct worker *workers = (struct worker *)whole->workers;
	struct intern keys = {0};
	struct loader_iterator *iterators;
	int failed = add_iterators(job, whole->pid, &keys, &parts->iterators) ||
		     assign_writers(job, workers, whole->worker_cnt, &keys);

	intern__free(&keys);
	if (failed)
		return -1;
	iterators = parts->iterators.items;
	assign_others(iterators, workers, whole->worker_cnt);
	for (size_t i = 0; i < whole->worker_cnt; i++)
		if (workers[i].iterator)
			iterators[workers[i].iterator - 1].worker_cnt++;
	return 0;
}

/* ---- iterators to loaders ---- */

struct iterator_group {
	uint32_t worker_cnt;
	uint64_t place;
	uint64_t last_ns;
};

struct placed_iterator {
	struct loader_iterator *iterator;
	const struct loader_place *place; /* NULL: not known */
};

static int compare_first_read(const void *a, const void *b)
{
	const struct placed_iterator *x = a, *y = b;

	return COMPARE(x->iterator->val.first_ns, y->iterator->val.first_ns) ?: COMPARE(x->iterator, y->iterator);
}

/* Finds the place where the process waits for each iterator most often. */
static int find_places(struct placed_iterator *order, const struct array *iterators, const struct worker *workers,
		       const struct loader_wait *waits, size_t wait_cnt)
{
	struct histogram_top *top = calloc(iterators->cnt + 1, sizeof(*top));
	struct histograms histograms = {0};
	struct intern keys = {0};
	const struct loader_place **places = calloc(wait_cnt + 1, sizeof(*places));
	int failed = !top || !places;

	for (size_t i = 0; i < wait_cnt && !failed; i++) {
		uint32_t iterator = waits[i].worker == WORKER_NONE ? 0 : workers[waits[i].worker].iterator, place;

		if (!iterator)
			continue;
		failed = intern__add(&keys, waits[i].place.key, &place) ||
			 histograms__add(&histograms, iterator - 1, place, 1);
		if (!failed && place && !places[place - 1])
			places[place - 1] = &waits[i].place;
	}
	if (!failed)
		histograms__top(&histograms, iterators->cnt, 1, top);
	for (size_t i = 0; i < iterators->cnt && !failed; i++) {
		order[i].iterator = (struct loader_iterator *)iterators->items + i;
		order[i].place = top[i].total && top[i].value ? places[top[i].value - 1] : NULL;
	}
	histograms__free(&histograms);
	intern__free(&keys);
	free(places);
	free(top);
	return failed ? -1 : 0;
}

/*
 * Finds the loader that an iterator may continue; the very last iterator may not have all its
 * workers yet.
 */
static size_t find_group(const struct iterator_group *groups, size_t cnt, const struct placed_iterator *at, bool last)
{
	size_t found = cnt;

	for (size_t i = 0; i < cnt; i++) {
		bool same = groups[i].worker_cnt == at->iterator->worker_cnt;

		if (groups[i].last_ns >= at->iterator->val.first_ns ||
		    groups[i].place != (at->place ? at->place->key : 0))
			continue;
		if (same)
			return i;
		if (last && found == cnt)
			found = i;
	}
	return found;
}

static int make_iterator_groups(struct loader_parts *parts, const struct placed_iterator *order)
{
	struct array groups = {0};
	int failed = 0;

	for (size_t i = 0; i < parts->iterators.cnt && !failed; i++) {
		struct loader_iterator *iterator = order[i].iterator;
		struct iterator_group *group;
		size_t number;

		if (!iterator->worker_cnt)
			continue;
		number = find_group(groups.items, groups.cnt, &order[i], i + 1 == parts->iterators.cnt);
		failed = array__grow(&groups, number + 1, sizeof(*group)) ||
			 array__grow(&parts->places, number + 1, sizeof(struct loader_place));
		if (failed)
			break;
		group = (struct iterator_group *)groups.items + number;
		if (!group->worker_cnt) {
			group->worker_cnt = iterator->worker_cnt;
			group->place = order[i].place ? order[i].place->key : 0;
			if (order[i].place)
				((struct loader_place *)parts->places.items)[number] = *order[i].place;
		}
		group->last_ns = iterator->val.last_ns;
		iterator->loader = number;
	}
	parts->cnt = groups.cnt;
	free(groups.items);
	return failed;
}

/* ---- workers and waits to loaders ---- */

static uint32_t loader_of_worker(const struct loader_parts *parts, const struct worker *worker)
{
	const struct loader_iterator *iterators = parts->iterators.items;

	return worker->iterator ? iterators[worker->iterator - 1].loader : parts->places.cnt;
}

static uint32_t loader_of_place(const struct loader_parts *parts, uint64_t key)
{
	const struct loader_place *places = parts->places.items;
	uint32_t found = LOADER_NONE;

	for (size_t i = 0; i < parts->places.cnt; i++) {
		if (places[i].key != key)
			continue;
		if (found != LOADER_NONE)
			return LOADER_NONE;
		found = i;
	}
	return found;
}

/*
 * A wait opens a new turn after two waits in a row for another loader since this loader's last
 * wait; struct pipe_val defines active time in the same way.
 */
static void find_firsts(struct loader_parts *parts, const struct loader *whole, uint64_t *rows, size_t *last)
{
	const struct loader_iterator *iterators = parts->iterators.items;

	for (size_t i = 0; i < whole->wait_cnt; i++) {
		const struct loader_wait *wait = &whole->waits[i];
		uint32_t loader = parts->loader_of[i];
		uint32_t iterator = wait->worker == WORKER_NONE ? 0 : whole->workers[wait->worker].iterator;

		rows[i] = (i ? rows[i - 1] : 0) + (i && loader == parts->loader_of[i - 1]);
		if (loader == LOADER_NONE)
			continue;
		parts->first[i] = iterator && wait->start_ns < iterators[iterator - 1].val.first_ns;
		if (last[loader] && last[loader] < i)
			parts->first[i] |= rows[i - 1] > rows[last[loader]];
		last[loader] = i + 1;
	}
}

static int assign_waits(struct loader_parts *parts, const struct loader *whole)
{
	uint64_t *rows = calloc(whole->wait_cnt + 1, sizeof(*rows));
	size_t *last = calloc(parts->cnt + 1, sizeof(*last)); /* 1 + index of the loader's last wait */

	parts->loader_of = calloc(whole->wait_cnt + 1, sizeof(*parts->loader_of));
	parts->first = calloc(whole->wait_cnt + 1, sizeof(*parts->first));
	for (size_t i = 0; parts->loader_of && i < whole->wait_cnt; i++) {
		const struct loader_wait *wait = &whole->waits[i];

		parts->loader_of[i] = wait->worker == WORKER_NONE
					      ? loader_of_place(parts, wait->place.key)
					      : loader_of_worker(parts, &whole->workers[wait->worker]);
	}
	if (rows && last && parts->loader_of && parts->first)
		find_firsts(parts, whole, rows, last);
	free(rows);
	free(last);
	return rows && last && parts->loader_of && parts->first ? 0 : -1;
}

int loader_parts__group(struct loader_parts *parts, const struct loader *whole)
{
	struct placed_iterator *order = calloc(parts->iterators.cnt + 1, sizeof(*order));
	int failed = !order || find_places(order, &parts->iterators, whole->workers, whole->waits, whole->wait_cnt);

	if (!failed)
		qsort(order, parts->iterators.cnt, sizeof(*order), compare_first_read);
	failed = failed || make_iterator_groups(parts, order);
	free(order);
	if (failed || parts->cnt < 2)
		return failed ? -1 : 0;
	for (size_t i = 0; i < whole->worker_cnt; i++)
		if (!whole->workers[i].iterator) {
			parts->cnt = parts->places.cnt + 1;
			break;
		}
	return assign_waits(parts, whole);
}

/* ---- a loader's part ---- */

static void add_part_times(const struct loader_parts *parts, uint32_t number, struct loader *part)
{
	const struct loader_iterator *iterators = parts->iterators.items;

	for (size_t i = 0; i < parts->iterators.cnt; i++) {
		if (iterators[i].loader != number)
			continue;
		if (iterators[i].worker_cnt > part->at_once)
			part->at_once = iterators[i].worker_cnt;
		part->batches = saturating__add(part->batches, iterators[i].val.messages);
		part->active_ns = saturating__add(part->active_ns, iterators[i].val.active_ns);
		part->active_cnt = saturating__add(part->active_cnt, iterators[i].val.active_cnt);
	}
}

int loader_parts__make(const struct loader_parts *parts, const struct loader *whole, uint32_t number,
		       struct loader *part)
{
	struct worker *workers = calloc(whole->worker_cnt + 1, sizeof(*workers));
	struct loader_wait *waits = calloc(whole->wait_cnt + 1, sizeof(*waits));
	uint32_t *moved = calloc(whole->worker_cnt + 1, sizeof(*moved));
	uint64_t first_ns = 0;

	*part = (struct loader){.pid = whole->pid,
				.track = whole->track,
				.number = number,
				.of_cnt = parts->cnt,
				.main_cpu_ns = whole->main_cpu_ns,
				.slow = WORKER_NONE,
				.workers = workers,
				.waits = waits};
	if (!workers || !waits || !moved) {
		free(moved);
		return -1;
	}
	if (number < parts->places.cnt)
		part->place = ((const struct loader_place *)parts->places.items)[number];
	for (size_t i = 0; i < whole->worker_cnt; i++) {
		moved[i] = part->worker_cnt;
		if (loader_of_worker(parts, &whole->workers[i]) == number)
			workers[part->worker_cnt++] = whole->workers[i];
	}
	for (size_t i = 0; i < whole->wait_cnt; i++) {
		struct loader_wait wait = whole->waits[i];

		if (parts->loader_of[i] == LOADER_NONE)
			part->no_loader_ns = saturating__add(part->no_loader_ns, wait.ns);
		if (parts->loader_of[i] != number)
			continue;
		if (parts->first[i])
			first_ns = saturating__add(first_ns, wait.ns);
		else
			part->active_wait_ns = saturating__add(part->active_wait_ns, wait.ns);
		if (wait.worker != WORKER_NONE)
			wait.worker = moved[wait.worker];
		waits[part->wait_cnt++] = wait;
	}
	add_part_times(parts, number, part);
	part->observed_ns = saturating__add(part->active_ns, first_ns);
	free(moved);
	return 0;
}

void loader_parts__release(struct loader_parts *parts)
{
	free(parts->iterators.items);
	free(parts->places.items);
	free(parts->loader_of);
	free(parts->first);
	*parts = (struct loader_parts){0};
}
