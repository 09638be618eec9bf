// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/resources.h"

#include <errno.h>
#include <stdlib.h>

#include "user/lib/compare.h"

/* The last records of a process; without a type: there was none. */
struct last {
	uint64_t pid;
	struct rec_limits limits;
	struct rec_shortage shortage;
	struct rec_job job;
};

static const struct last *find_last(const struct resources *resources, uint32_t pid)
{
	const uint64_t key = pid;

	return MAP_FIND(&resources->last, struct last, &key);
}

const struct rec_limits *resources__limits(const struct resources *resources, uint32_t pid)
{
	const struct last *last = find_last(resources, pid);

	return last && last->limits.hdr.type ? &last->limits : NULL;
}

const struct rec_shortage *resources__shortage(const struct resources *resources, uint32_t pid)
{
	const struct last *last = find_last(resources, pid);

	return last && last->shortage.hdr.type ? &last->shortage : NULL;
}

const struct rec_job *resources__job(const struct resources *resources, uint32_t pid)
{
	const struct last *last = find_last(resources, pid);

	return last && last->job.hdr.type ? &last->job : NULL;
}

static int keep_last(struct resources *resources, const struct rec_hdr *record)
{
	const struct rec_limits *limits = (const void *)record;
	const struct rec_shortage *shortage = (const void *)record;
	const struct rec_job *job = (const void *)record;
	const uint64_t key = record->type == REC_LIMITS     ? limits->pid
			     : record->type == REC_SHORTAGE ? shortage->pid
							    : job->pid;
	struct last *last = MAP_ADD(&resources->last, struct last, &key);

	if (last && record->type == REC_LIMITS)
		last->limits = *limits;
	else if (last && record->type == REC_SHORTAGE)
		last->shortage = *shortage;
	else if (last)
		last->job = *job;
	return last ? 0 : -ENOMEM;
}

int resources__add(struct resources *resources, const struct rec_hdr *record)
{
	struct rec_resources *sample;
	struct rec_throttle *throttle;
	struct rec_machine *machine;
	struct rec_copied *copied;

	if (record->type == REC_LIMITS || record->type == REC_SHORTAGE || record->type == REC_JOB)
		return keep_last(resources, record);
	resources->sorted = false;
	if (record->type == REC_MACHINE) {
		machine = array__add(&resources->machines, sizeof(*machine));
		if (machine)
			*machine = *(const struct rec_machine *)record;
		return machine ? 0 : -ENOMEM;
	}
	if (record->type == REC_THROTTLE) {
		throttle = array__add(&resources->throttles, sizeof(*throttle));
		if (throttle)
			*throttle = *(const struct rec_throttle *)record;
		return throttle ? 0 : -ENOMEM;
	}
	if (record->type == REC_COPIED) {
		copied = array__add(&resources->copies, sizeof(*copied));
		if (copied)
			*copied = *(const struct rec_copied *)record;
		return copied ? 0 : -ENOMEM;
	}
	sample = array__add(&resources->samples, sizeof(*sample));
	if (sample)
		*sample = *(const struct rec_resources *)record;
	return sample ? 0 : -ENOMEM;
}

static int compare_samples(const void *a, const void *b)
{
	const struct rec_resources *x = a, *y = b;

	return COMPARE(x->pid, y->pid) ?: COMPARE(x->time_ns, y->time_ns);
}

static int compare_machines(const void *a, const void *b)
{
	const struct rec_machine *x = a, *y = b;

	return COMPARE(x->pid, y->pid) ?: COMPARE(x->time_ns, y->time_ns);
}

static int compare_throttles(const void *a, const void *b)
{
	const struct rec_throttle *x = a, *y = b;

	return COMPARE(x->pid, y->pid) ?: COMPARE(x->group, y->group) ?: COMPARE(x->time_ns, y->time_ns);
}

static int compare_copies(const void *a, const void *b)
{
	const struct rec_copied *x = a, *y = b;

	return COMPARE(x->pid, y->pid) ?: COMPARE(x->time_ns, y->time_ns);
}

static void sort_readings(struct resources *resources)
{
	struct array *samples = &resources->samples, *machines = &resources->machines;
	struct array *throttles = &resources->throttles;

	if (!resources->sorted && samples->cnt)
		qsort(samples->items, samples->cnt, sizeof(struct rec_resources), compare_samples);
	if (!resources->sorted && machines->cnt)
		qsort(machines->items, machines->cnt, sizeof(struct rec_machine), compare_machines);
	if (!resources->sorted && throttles->cnt)
		qsort(throttles->items, throttles->cnt, sizeof(struct rec_throttle), compare_throttles);
	if (!resources->sorted && resources->copies.cnt)
		qsort(resources->copies.items, resources->copies.cnt, sizeof(struct rec_copied), compare_copies);
	resources->sorted = true;
}

const struct rec_resources *resources__samples(struct resources *resources, size_t *cnt)
{
	sort_readings(resources);
	*cnt = resources->samples.cnt;
	return resources->samples.items;
}

const struct rec_machine *resources__machines(struct resources *resources, size_t *cnt)
{
	sort_readings(resources);
	*cnt = resources->machines.cnt;
	return resources->machines.items;
}

const struct rec_throttle *resources__throttles(struct resources *resources, size_t *cnt)
{
	sort_readings(resources);
	*cnt = resources->throttles.cnt;
	return resources->throttles.items;
}

const struct rec_copied *resources__copies(struct resources *resources, size_t *cnt)
{
	sort_readings(resources);
	*cnt = resources->copies.cnt;
	return resources->copies.items;
}

void resources__forget(struct resources *resources)
{
	resources->samples.cnt = resources->machines.cnt = resources->throttles.cnt = 0;
	resources->copies.cnt = 0;
}

void resources__free(struct resources *resources)
{
	free(resources->samples.items);
	free(resources->machines.items);
	free(resources->throttles.items);
	free(resources->copies.items);
	map__free(&resources->last);
}
