// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Passes records on with their processes, threads and times converted (descriptors.h says where
 * those are). Of some types (MERGE_WHOLE) a merged recording has a single record, which
 * merge__finish makes.
 */
#include "user/recording/merge.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "include/name_hash.h"
#include "include/resource_records.h"
#include "user/lib/array.h"
#include "user/lib/map.h"
#include "user/lib/saturating.h"
#include "user/recording/descriptors.h"

/*
 * NTP alone makes two readings of a host's clock differ by less; the clocks of two boots differ by
 * much more.
 */
#define SAME_CLOCK_NS 10000000000LL

struct counter_total {
	struct counter_total_key {
		char name[sizeof(((struct rec_counter *)0)->name)];
		uint64_t file; /* file number + 1; 0: all files together */
	} key;
	struct rec_counter counter; /* last state */
};

struct introduced {
	uint64_t pid;
	struct rec_target target; /* first state */
};

struct merge_source {
	struct rec_host host;
	struct rec_window window; /* last state, as in the fields below */
	struct rec_cost cost;
	struct map targets; /* struct introduced */
	struct array mains; /* const struct rec_target *: those of `targets` that are main processes */
	struct intern pids;
	struct intern left_out; /* processes that another source has, too */
	struct intern recorded; /* processes of which it says when they were recorded: it was merged itself */
	int64_t clock_ns;       /* to add to the source's times */
	uint32_t pid_shift;     /* to add to the source's processes */
};

struct merge {
	int (*sink)(const struct rec_hdr *record, void *ctx);
	void *ctx;
	struct merge_source *sources;
	size_t cnt;
	struct map counters; /* struct counter_total */
	struct intern once;  /* hashes of the records passed on */
	struct array room;   /* uint64_t: the record being converted */
};

/*
 * Is the field of that kind, and wholly in the record? Processes and threads have 32 bits, times
 * 64.
 */
static bool record_holds(const struct rec_hdr *record, const struct record_field *field, enum field_kind kind)
{
	return field->kind == kind && record->size >= field->offset + field->bytes;
}

/* ---- what a file is ---- */

static int note_target(struct merge_source *source, const struct rec_target *target)
{
	const uint64_t pid = target->pid;
	struct introduced *known = MAP_ADD(&source->targets, struct introduced, &pid);

	if (known && !known->target.hdr.type)
		known->target = *target;
	return known ? 0 : -ENOMEM;
}

/* Returns the state of a counter, zeroed when it is new. NULL: no memory. */
static struct rec_counter *counter_of(struct map *counters, uint64_t file, const char *name)
{
	struct counter_total_key key = {.file = file};
	struct counter_total *counted;

	memcpy(key.name, name, sizeof(key.name));
	counted = MAP_ADD(counters, struct counter_total, &key);
	return counted ? &counted->counter : NULL;
}

static int note_counter(struct merge *merge, size_t file, const struct rec_counter *record)
{
	struct rec_counter *known = counter_of(&merge->counters, file + 1, record->name);

	if (!known)
		return -ENOMEM;
	*known = *record;
	return 0;
}

int merge__scan(struct merge *merge, size_t file, const struct rec_hdr *record)
{
	const struct record_descriptor *descriptor = record_descriptor__of(record->type);
	struct merge_source *source = &merge->sources[file];
	uint32_t pid, number;

	for (size_t i = 0; descriptor && i < descriptor->field_cnt; i++) {
		if (!record_holds(record, &descriptor->fields[i], FIELD_PID))
			continue;
		memcpy(&pid, (const char *)record + descriptor->fields[i].offset, sizeof(pid));
		if (intern__add(&source->pids, pid, &number))
			return -ENOMEM;
	}
#define IS(rec, record_type) (record->type == (record_type) && record->size >= sizeof(struct rec))
	if (IS(rec_host, REC_HOST) && !source->host.hdr.type)
		memcpy(&source->host, record, sizeof(source->host));
	else if (IS(rec_window, REC_WINDOW))
		memcpy(&source->window, record, sizeof(source->window));
	else if (IS(rec_cost, REC_COST))
		memcpy(&source->cost, record, sizeof(source->cost));
	else if (IS(rec_target, REC_TARGET))
		return note_target(source, (const void *)record);
	else if (IS(rec_recorded, REC_RECORDED))
		return intern__add(&source->recorded, ((const struct rec_recorded *)record)->pid, &number);
	else if (IS(rec_counter, REC_COUNTER))
		return note_counter(merge, file, (const void *)record);
	return 0;
}

/* ---- whether they belong together ---- */

static bool same_host(const struct merge_source *a, const struct merge_source *b)
{
	return !memcmp(a->host.hostname, b->host.hostname, sizeof(a->host.hostname));
}

/* Returns the nanoseconds to add to monotonic times of b to convert them to those of a. */
static int64_t clock_difference(const struct merge_source *a, const struct merge_source *b)
{
	uint64_t zero_a = a->host.realtime_ns - a->host.monotonic_ns;
	uint64_t zero_b = b->host.realtime_ns - b->host.monotonic_ns;
	int64_t difference = zero_b - zero_a;
	bool close = difference > -SAME_CLOCK_NS && difference < SAME_CLOCK_NS;

	return same_host(a, b) && close ? 0 : difference;
}

/* Children, of which a job may have any number, need no comparison with those of others. 0 or -ENOMEM. */
static int collect_mains(struct merge_source *source)
{
	const struct introduced *all = source->targets.items.items;

	for (size_t i = 0; i < source->targets.items.cnt; i++) {
		const struct rec_target **main;

		if (all[i].target.role != ROLE_MAIN)
			continue;
		main = array__add(&source->mains, sizeof(*main));
		if (!main)
			return -ENOMEM;
		*main = &all[i].target;
	}
	return 0;
}

static enum merge_fit compare_targets(const struct merge_source *a, const struct merge_source *b, uint32_t *number)
{
	const struct rec_target *const *mains_a = a->mains.items, *const *mains_b = b->mains.items;
	enum merge_fit fit = MERGE_FITS;

	for (size_t i = 0; i < a->mains.cnt; i++) {
		for (size_t j = 0; j < b->mains.cnt; j++) {
			const struct rec_target *x = mains_a[i], *y = mains_b[j];

			if (same_host(a, b) && x->pid == y->pid) {
				*number = x->pid;
				return MERGE_SAME_PROCESS;
			}
			if (x->rank >= 0 && x->rank == y->rank) {
				*number = x->rank;
				fit = MERGE_SAME_RANK;
			}
		}
	}
	return fit;
}

static const struct rec_target *target_of(const struct merge_source *source, uint64_t pid)
{
	const struct introduced *known = MAP_FIND(&source->targets, struct introduced, &pid);

	return known ? &known->target : NULL;
}

/*
 * How well does a source know a process? A rank that another one has started is a child in the
 * recording of that, and its workers are then children of a child.
 */
static int rank_of_view(const struct merge_source *source, const struct rec_target *target)
{
	const struct rec_target *parent = target_of(source, target->parent_pid);

	if (target->role == ROLE_MAIN)
		return 2;
	return parent && parent->role == ROLE_MAIN;
}

/* Two recordings of one host may have a process both: the merged one takes it from the one that knows it better. */
static int leave_out(struct merge_source *a, struct merge_source *b)
{
	const struct introduced *all = a->targets.items.items;
	uint32_t number;

	for (size_t i = 0; same_host(a, b) && i < a->targets.items.cnt; i++) {
		const struct rec_target *x = &all[i].target, *y = target_of(b, all[i].pid);
		struct merge_source *worse = y && rank_of_view(a, x) < rank_of_view(b, y) ? a : b;

		if (y && intern__add(&worse->left_out, all[i].pid, &number))
			return -ENOMEM;
	}
	return 0;
}

static bool sources_overlap(const struct merge_source *a, const struct merge_source *b)
{
	return a->window.start_ns + a->clock_ns < b->window.end_ns + b->clock_ns &&
	       b->window.start_ns + b->clock_ns < a->window.end_ns + a->clock_ns;
}

/*
 * Finds process numbers for a file. Where a process has the same number as one of another host in
 * an earlier file, all processes of this file's host get other numbers.
 */
static int number_processes(struct merge *merge, size_t file, struct intern *taken)
{
	struct merge_source *source = &merge->sources[file];
	uint32_t number, top = 0;
	size_t same = 0;

	while (same < file && !same_host(&merge->sources[same], source))
		same++;
	for (uint32_t i = 1; same == file && i < intern__end(&source->pids); i++)
		source->pid_shift |= intern__find(taken, intern__key(&source->pids, i)) > 0;
	if (source->pid_shift) {
		for (uint32_t i = 1; i < intern__end(taken); i++)
			top = intern__key(taken, i) > top ? intern__key(taken, i) : top;
		source->pid_shift = ((top >> REC_PID_BITS) + 1) << REC_PID_BITS;
	} else if (same < file) {
		source->pid_shift = merge->sources[same].pid_shift;
	}
	for (uint32_t i = 1; i < intern__end(&source->pids); i++)
		if (intern__add(taken, (uint32_t)(intern__key(&source->pids, i) + source->pid_shift), &number))
			return -ENOMEM;
	return 0;
}

static void compare_sources(const struct merge *merge, size_t a, size_t b, struct merge_verdict *worst)
{
	const struct merge_source *x = &merge->sources[a], *y = &merge->sources[b];
	uint32_t number = 0;
	enum merge_fit fit = compare_targets(x, y, &number);

	if (fit == MERGE_FITS && !sources_overlap(x, y))
		fit = MERGE_APART;
	if (fit > worst->fit)
		*worst = (struct merge_verdict){fit, {a, b}, number};
}

int merge__judge(struct merge *merge, struct merge_verdict *verdict)
{
	struct intern taken = {0};
	int err = 0;

	*verdict = (struct merge_verdict){.fit = MERGE_FITS};
	for (size_t i = 0; i < merge->cnt && !err; i++) {
		merge->sources[i].clock_ns = clock_difference(&merge->sources[0], &merge->sources[i]);
		err = collect_mains(&merge->sources[i]) ?: number_processes(merge, i, &taken);
		for (size_t before = 0; before < i && !err; before++) {
			compare_sources(merge, before, i, verdict);
			err = leave_out(&merge->sources[before], &merge->sources[i]);
		}
	}
	intern__free(&taken);
	return err;
}

/* ---- what comes out ---- */

static void move_fields(const struct merge_source *source, const struct record_descriptor *descriptor,
			struct rec_hdr *record)
{
	for (size_t i = 0; i < descriptor->field_cnt; i++) {
		const struct record_field *field = &descriptor->fields[i];
		char *at = (char *)record + field->offset;
		uint64_t time_ns;
		uint32_t number;

		if (record_holds(record, field, FIELD_TIME)) {
			memcpy(&time_ns, at, sizeof(time_ns));
			time_ns += time_ns ? source->clock_ns : 0;
			memcpy(at, &time_ns, sizeof(time_ns));
		} else if (record_holds(record, field, FIELD_PID) || record_holds(record, field, FIELD_TID)) {
			memcpy(&number, at, sizeof(number));
			number += number ? source->pid_shift : 0;
			memcpy(at, &number, sizeof(number));
		}
	}
}

/* Has merge passed on a record with these bytes? 0, 1 or -ENOMEM. */
static int is_merged_record(struct merge *merge, const struct rec_hdr *record)
{
	uint64_t hash = name_hash__seed(0, record->size), word;
	size_t before = intern__end(&merge->once);
	uint32_t number;

	for (size_t at = sizeof(*record); at < record->size; at += sizeof(word)) {
		memcpy(&word, (const char *)record + at, sizeof(word));
		hash = name_hash__add(hash, word);
	}
	if (intern__add(&merge->once, name_hash__end(hash), &number))
		return -ENOMEM;
	return intern__end(&merge->once) == before;
}

/* Is it of a process that another file has? What is of no process alone (MERGE_ONCE) is kept. */
static bool is_left_out(const struct merge_source *source, const struct record_descriptor *descriptor,
			const struct rec_hdr *record)
{
	uint32_t pid;

	for (size_t i = 0; descriptor->merge != MERGE_ONCE && i < descriptor->field_cnt; i++) {
		if (!record_holds(record, &descriptor->fields[i], FIELD_PID))
			continue;
		memcpy(&pid, (const char *)record + descriptor->fields[i].offset, sizeof(pid));
		return pid && intern__find(&source->left_out, pid);
	}
	return false;
}

int merge__add(struct merge *merge, size_t file, const struct rec_hdr *record)
{
	const struct record_descriptor *descriptor = record_descriptor__of(record->type);
	int known;

	if (descriptor && descriptor->merge == MERGE_WHOLE)
		return 0; /* merge__finish passes it on */
	if (descriptor && is_left_out(&merge->sources[file], descriptor, record))
		return 0;
	if (descriptor && descriptor->merge == MERGE_ONCE) {
		known = is_merged_record(merge, record);
		if (known)
			return known < 0 ? known : 0;
	}
	if (array__grow(&merge->room, record->size / sizeof(uint64_t), sizeof(uint64_t)))
		return -ENOMEM;
	memcpy(merge->room.items, record, record->size);
	if (descriptor)
		move_fields(&merge->sources[file], descriptor, merge->room.items);
	return merge->sink(merge->room.items, merge->ctx);
}

static struct rec_window whole_window(const struct merge *merge)
{
	struct rec_window whole = {0};

	for (size_t i = 0; i < merge->cnt; i++) {
		struct rec_window one = merge->sources[i].window;

		if (!one.hdr.type)
			continue;
		one.start_ns += merge->sources[i].clock_ns;
		one.end_ns += merge->sources[i].clock_ns;
		if (!whole.hdr.type) {
			whole = one;
			continue;
		}
		if (one.start_ns < whole.start_ns)
			whole.start_ns = one.start_ns;
		if (one.end_ns > whole.end_ns)
			whole.end_ns = one.end_ns;
		if (one.steps > whole.steps)
			whole.steps = one.steps;
		if (!whole.step_rule)
			whole.step_rule = one.step_rule;
	}
	return whole;
}

#define RAISE(field)                              \
	do {                                      \
		if (one->field > whole.field)     \
			whole.field = one->field; \
	} while (0)

/* What it cost the process that paid most. */
static double busiest_cost_ns(const struct rec_cost *cost)
{
	return (double)cost->busiest_hits * cost->hit_ns + (double)cost->busiest_calls * cost->call_ns +
	       cost->busiest_sampler_ns;
}

static struct rec_cost whole_cost(const struct merge *merge)
{
	struct rec_cost whole = {0}, busiest = {0};

	for (size_t i = 0; i < merge->cnt; i++) {
		const struct rec_cost *one = &merge->sources[i].cost;

		if (one->hdr.type)
			whole.hdr = one->hdr;
		whole.hits = saturating__add(whole.hits, one->hits);
		whole.own_cpu_ns = saturating__add(whole.own_cpu_ns, one->own_cpu_ns);
		whole.own_rss_bytes = saturating__add(whole.own_rss_bytes, one->own_rss_bytes);
		RAISE(attach_ns);
		RAISE(detach_ns);
		if (one->hdr.type && (!busiest.hdr.type || busiest_cost_ns(one) > busiest_cost_ns(&busiest)))
			busiest = *one;
	}
	whole.busiest_hits = busiest.busiest_hits;
	whole.hit_ns = busiest.hit_ns;
	whole.busiest_calls = busiest.busiest_calls;
	whole.call_ns = busiest.call_ns;
	whole.busiest_sampler_ns = busiest.busiest_sampler_ns;
	whole.hdr.size = sizeof(whole);
	return whole;
}

static int add_counters(struct merge *merge)
{
	const struct counter_total *counted = merge->counters.items.items;
	struct map totals = {0};
	struct counter_total *sum;
	int err = 0;

	for (size_t i = 0; i < merge->counters.items.cnt && !err; i++) {
		const struct rec_counter *one = &counted[i].counter;
		struct rec_counter *whole = counter_of(&totals, 0, one->name);
		uint64_t before = whole ? whole->value : 0;

		if (whole && !whole->hdr.type)
			*whole = *one;
		if (whole)
			whole->value = saturating__add(before, one->value);
		err = whole ? 0 : -ENOMEM;
	}
	sum = totals.items.items;
	for (size_t i = 0; i < totals.items.cnt && !err; i++) {
		sum[i].counter.hdr.size = sizeof(sum[i].counter);
		err = merge->sink(&sum[i].counter.hdr, merge->ctx);
	}
	map__free(&totals);
	return err;
}

/* Says of each main process when it was recorded. 0 or the error of the sink. */
static int add_recorded(const struct merge *merge, const struct merge_source *source)
{
	const struct rec_target *const *mains = source->mains.items;
	int err = 0;

	for (size_t i = 0; i < source->mains.cnt && !err && source->window.hdr.type; i++) {
		const struct rec_recorded recorded = {
			.hdr = {.type = REC_RECORDED, .size = sizeof(recorded)},
			.pid = mains[i]->pid + source->pid_shift,
			.from_ns = source->window.start_ns + source->clock_ns,
			.to_ns = source->window.end_ns + source->clock_ns,
		};

		if (!intern__find(&source->left_out, mains[i]->pid) && !intern__find(&source->recorded, mains[i]->pid))
			err = merge->sink(&recorded.hdr, merge->ctx);
	}
	return err;
}

int merge__finish(struct merge *merge)
{
	struct rec_window window = whole_window(merge);
	struct rec_cost cost = whole_cost(merge);
	int err = add_counters(merge);

	for (size_t i = 0; i < merge->cnt && !err; i++)
		err = add_recorded(merge, &merge->sources[i]);
	window.hdr.size = sizeof(window);
	if (!err && window.hdr.type)
		err = merge->sink(&window.hdr, merge->ctx);
	if (!err && cost.hdr.type)
		err = merge->sink(&cost.hdr, merge->ctx);
	return err;
}

struct merge *merge__new(size_t file_cnt, int (*sink)(const struct rec_hdr *record, void *ctx), void *ctx)
{
	struct merge *merge = calloc(1, sizeof(*merge));

	if (!merge)
		return NULL;
	merge->sink = sink;
	merge->ctx = ctx;
	merge->cnt = file_cnt;
	merge->sources = calloc(file_cnt, sizeof(*merge->sources));
	if (merge->sources)
		return merge;
	free(merge);
	return NULL;
}

void merge__free(struct merge *merge)
{
	if (!merge)
		return;
	for (size_t i = 0; i < merge->cnt; i++) {
		map__free(&merge->sources[i].targets);
		free(merge->sources[i].mains.items);
		intern__free(&merge->sources[i].pids);
		intern__free(&merge->sources[i].left_out);
		intern__free(&merge->sources[i].recorded);
	}
	free(merge->sources);
	map__free(&merge->counters);
	intern__free(&merge->once);
	free(merge->room.items);
	free(merge);
}
