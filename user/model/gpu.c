// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Takes records and returns sorted rows. Cumulative records are cached by their key. gpu_join.c
 * joins activities to calls.
 */
#include "user/model/gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/utf8.h"
#include "user/model/gpu_join.h"

/* ---- records ---- */

static int number_pid(struct gpu *gpu, uint32_t pid, uint32_t *number)
{
	return pid ? intern__add(&gpu->pids, pid, number) : -EINVAL;
}

/* A target or a file fills text fields of fixed size: make them valid, NUL-terminated UTF-8. */
#define CLEAN(field)                                                \
	do {                                                        \
		char raw[sizeof(field)];                            \
                                                                    \
		memcpy(raw, (field), sizeof(raw));                  \
		utf8__copy((field), sizeof(raw), raw, sizeof(raw)); \
	} while (0)

static int gpu__add_process(struct gpu *gpu, uint32_t number, const struct rec_gpu *record)
{
	if (record->tier > GPU_TIER_CUPTI)
		return -EINVAL;
	if (array__grow(&gpu->records, number, sizeof(struct rec_gpu)))
		return -ENOMEM;
	((struct rec_gpu *)gpu->records.items)[number - 1] = *record;
	return 0;
}

static bool is_call_key(const struct gpu_calls_key *key)
{
	return key->api > GPU_API_NONE && key->api < GPU_API__COUNT && key->direction < GPU_DIRECTION__COUNT;
}

static int gpu__add_total(struct gpu *gpu, const struct rec_gpu_calls *record)
{
	struct gpu_calls *sum;

	if (!is_call_key(&record->key))
		return -EINVAL;
	sum = MAP_ADD(&gpu->totals, struct gpu_calls, &record->key);
	if (!sum)
		return -ENOMEM;
	sum->val = record->val;
	return 0;
}

static bool ends_after(uint64_t start_ns, uint64_t duration_ns)
{
	return duration_ns <= UINT64_MAX - start_ns;
}

static int gpu__add_call(struct gpu *gpu, struct stacks *stacks, const struct rec_gpu_call *record)
{
	struct gpu_call *call;
	uint32_t path;
	int err;

	if (!is_call_key(&record->key) || !ends_after(record->start_ns, record->duration_ns))
		return -EINVAL;
	if (gpu->calls.cnt >= GPU_NOT_JOINED)
		return -ENOMEM;
	err = stacks__path_number(stacks, record->path, &path);
	call = err ? NULL : array__add(&gpu->calls, sizeof(*call));
	if (!call)
		return -ENOMEM;
	*call = (struct gpu_call){.start_ns = record->start_ns,
				  .duration_ns = record->duration_ns,
				  .op = record->key.op,
				  .action = record->key.action,
				  .object = record->key.object,
				  .bytes = record->bytes,
				  .pid = record->key.pid,
				  .tid = record->tid,
				  .path = path,
				  .step = record->step,
				  .api = record->key.api,
				  .direction = record->key.direction,
				  .dtype = record->key.dtype};
	return 0;
}

static int gpu__add_activity(struct gpu *gpu, const struct rec_gpu_activity *record)
{
	struct gpu_act *activity;

	if (record->kind == GPU_ACTIVITY_NONE || record->kind >= GPU_ACTIVITY__COUNT ||
	    record->direction >= GPU_DIRECTION__COUNT || !ends_after(record->start_ns, record->duration_ns))
		return -EINVAL;
	activity = gpu->activities.cnt < GPU_NOT_JOINED ? array__add(&gpu->activities, sizeof(*activity)) : NULL;
	if (!activity)
		return -ENOMEM;
	*activity = (struct gpu_act){.start_ns = record->start_ns,
				     .duration_ns = record->duration_ns,
				     .name = record->name,
				     .bytes = record->bytes,
				     .pid = record->pid,
				     .tid = record->tid,
				     .correlation = record->correlation,
				     .device = record->device,
				     .context = record->context,
				     .stream = record->stream,
				     .kind = record->kind,
				     .direction = record->direction,
				     .asked_by = GPU_NOT_JOINED,
				     .call = GPU_NOT_JOINED};
	memcpy(activity->detail, record->detail, sizeof(activity->detail));
	return 0;
}

static int gpu__add_step(struct gpu *gpu, const struct rec_gpu_step *record)
{
	struct rec_gpu_step *step = array__add(&gpu->steps, sizeof(*step));

	if (!step)
		return -ENOMEM;
	*step = *record;
	return 0;
}

static int gpu__add_device(struct gpu *gpu, const struct rec_gpu_device *record)
{
	struct rec_gpu_device *device;
	uint32_t number;

	if (intern__add(&gpu->device_ids, (uint64_t)record->pid << 32 | record->device, &number) ||
	    array__grow(&gpu->devices, number, sizeof(*device)))
		return -ENOMEM;
	device = &((struct rec_gpu_device *)gpu->devices.items)[number - 1];
	*device = *record;
	CLEAN(device->name);
	return 0;
}

static int gpu__add_usage(struct gpu *gpu, const struct rec_gpu_usage *record)
{
	struct rec_gpu_usage *usage = array__add(&gpu->usages, sizeof(*usage));

	if (!usage)
		return -ENOMEM;
	*usage = *record;
	CLEAN(usage->name);
	return 0;
}

static int gpu__add_window(struct gpu *gpu, const struct rec_gpu_window *record)
{
	uint32_t number;

	if (record->end >= GPU_WINDOW__COUNT || record->start_ns > record->end_ns)
		return -EINVAL;
	if (intern__add(&gpu->window_ids, (uint64_t)record->pid << 32 | record->index, &number) ||
	    array__grow(&gpu->windows, number, sizeof(*record)))
		return -ENOMEM;
	((struct rec_gpu_window *)gpu->windows.items)[number - 1] = *record;
	return 0;
}

int gpu__add(struct gpu *gpu, struct stacks *stacks, const struct rec_hdr *record)
{
	const struct rec_gpu *process = (const void *)record;
	const struct rec_gpu_calls *sum = (const void *)record;
	const struct rec_gpu_call *call = (const void *)record;
	const struct rec_gpu_activity *activity = (const void *)record;
	const struct rec_gpu_step *step = (const void *)record;
	const struct rec_gpu_device *device = (const void *)record;
	const struct rec_gpu_window *window = (const void *)record;
	const struct rec_gpu_user *user = (const void *)record;
	uint32_t number;

	gpu->joined = false;
	switch (record->type) {
	case REC_GPU:
		return number_pid(gpu, process->pid, &number) ?: gpu__add_process(gpu, number, process);
	case REC_GPU_CALLS:
		return number_pid(gpu, sum->key.pid, &number) ?: gpu__add_total(gpu, sum);
	case REC_GPU_CALL:
		return number_pid(gpu, call->key.pid, &number) ?: gpu__add_call(gpu, stacks, call);
	case REC_GPU_ACTIVITY:
		return number_pid(gpu, activity->pid, &number) ?: gpu__add_activity(gpu, activity);
	case REC_GPU_STEP:
		return number_pid(gpu, step->pid, &number) ?: gpu__add_step(gpu, step);
	case REC_GPU_DEVICE:
		return number_pid(gpu, device->pid, &number) ?: gpu__add_device(gpu, device);
	case REC_GPU_WINDOW:
		return number_pid(gpu, window->pid, &number) ?: gpu__add_window(gpu, window);
	case REC_GPU_USER: /* it may do so by other means than CUDA */
		return intern__add(&gpu->users, (uint64_t)user->pid << 32 | user->device, &number);
	}
	return gpu__add_usage(gpu, (const void *)record);
}

/* ---- order ---- */

#define DIFFER(field)                                       \
	do {                                                \
		if (x->field != y->field)                   \
			return COMPARE(x->field, y->field); \
	} while (0)

static int compare_gpu_call(const void *a, const void *b)
{
	const struct gpu_call *x = a, *y = b;

	DIFFER(pid);
	DIFFER(tid);
	DIFFER(start_ns);
	DIFFER(duration_ns);
	return COMPARE(x->api, y->api);
}

static int compare_gpu_activity(const void *a, const void *b)
{
	const struct gpu_act *x = a, *y = b;

	DIFFER(pid);
	DIFFER(start_ns);
	DIFFER(kind);
	DIFFER(device);
	DIFFER(stream);
	DIFFER(duration_ns);
	DIFFER(correlation);
	return COMPARE(x->name, y->name);
}

static int compare_gpu_step(const void *a, const void *b)
{
	const struct rec_gpu_step *x = a, *y = b;

	DIFFER(pid);
	DIFFER(time_ns);
	return COMPARE(x->from_ns, y->from_ns);
}

static int compare_device_index(const void *a, const void *b)
{
	const struct rec_gpu_device *x = a, *y = b;

	DIFFER(pid);
	return COMPARE(x->device, y->device);
}

static int compare_gpu_window(const void *a, const void *b)
{
	const struct rec_gpu_window *x = a, *y = b;

	DIFFER(pid);
	return COMPARE(x->index, y->index);
}

static int compare_gpu_usage(const void *a, const void *b)
{
	const struct rec_gpu_usage *x = a, *y = b;

	DIFFER(device);
	return COMPARE(x->time_ns, y->time_ns);
}

static int compare_gpu_process(const void *a, const void *b)
{
	const struct gpu_process *x = a, *y = b;

	return COMPARE(x->pid, y->pid);
}

static void sort_items(struct array *array, size_t item_bytes, int (*compare)(const void *a, const void *b))
{
	if (array->cnt)
		qsort(array->items, array->cnt, item_bytes, compare);
}

/* A sorted copy. 0 or -ENOMEM. */
static int sort_into(struct array *to, const struct array *from, size_t item_bytes,
		     int (*compare)(const void *a, const void *b))
{
	if (array__grow(to, from->cnt, item_bytes))
		return -ENOMEM;
	if (from->cnt)
		memcpy(to->items, from->items, from->cnt * item_bytes);
	sort_items(to, item_bytes, compare);
	return 0;
}

/* ---- processes ---- */

static struct gpu_process *gpu__find_process(const struct gpu *gpu, uint32_t pid)
{
	struct gpu_process key = {.pid = pid};

	if (!gpu->processes.cnt)
		return NULL;
	return bsearch(&key, gpu->processes.items, gpu->processes.cnt, sizeof(key), compare_gpu_process);
}

static void at_least(struct gpu *gpu, uint32_t pid, enum gpu_tier tier)
{
	struct gpu_process *process = gpu__find_process(gpu, pid);

	if (process && process->tier < tier)
		process->tier = tier;
}

static int gpu__list_processes(struct gpu *gpu)
{
	const struct gpu_calls *totals = gpu->totals.items.items;
	const struct gpu_act *activities = gpu->activities.items;
	const struct rec_gpu *records = gpu->records.items;

	gpu->processes.cnt = 0;
	for (uint32_t i = 1; i < intern__end(&gpu->pids); i++) {
		struct gpu_process *process = array__add(&gpu->processes, sizeof(*process));

		if (!process)
			return -ENOMEM;
		process->pid = intern__key(&gpu->pids, i);
		if (i > gpu->records.cnt || !records[i - 1].pid)
			continue;
		process->tier = records[i - 1].tier;
		process->cupti_ns = records[i - 1].cupti_ns;
		process->lost = records[i - 1].lost;
		process->cupti_version = records[i - 1].cupti_version;
		utf8__copy(process->why, sizeof(process->why), records[i - 1].why, sizeof(records[i - 1].why));
	}
	sort_items(&gpu->processes, sizeof(struct gpu_process), compare_gpu_process);
	for (size_t i = 0; i < gpu->totals.items.cnt; i++)
		at_least(gpu, totals[i].key.pid, GPU_TIER_PROBES);
	for (size_t i = 0; i < gpu->activities.cnt; i++)
		if (!i || activities[i].pid != activities[i - 1].pid)
			at_least(gpu, activities[i].pid, GPU_TIER_CUPTI);
	return 0;
}

static void count_joined(struct gpu *gpu)
{
	const struct gpu_act *activities = gpu->activities.items;
	struct gpu_call *calls = gpu->calls.items;
	struct gpu_process *process = NULL;

	for (size_t i = 0; i < gpu->activities.cnt; i++) {
		const struct gpu_act *activity = &activities[i];

		if (!gpu_act__is_work(activity))
			continue;
		if (!process || process->pid != activity->pid)
			process = gpu__find_process(gpu, activity->pid);
		process->activities++;
		process->unasked += activity->asked_by == GPU_NOT_JOINED;
		process->unjoined += activity->call == GPU_NOT_JOINED;
		if (activity->call != GPU_NOT_JOINED) {
			struct gpu_call *call = &calls[activity->call];

			call->device_ns = saturating__add(call->device_ns, activity->duration_ns);
			call->activities++;
		}
	}
}

static bool is_within(const struct gpu *gpu, const struct gpu_act *activity, const struct rec_window *window)
{
	const struct gpu_act *asked_by = gpu__asked_by(gpu, activity);

	/* The probes see calls only within the window. */
	if (activity->call != GPU_NOT_JOINED || !activity->start_ns)
		return true;
	if (asked_by && asked_by->start_ns)
		return asked_by->start_ns >= window->start_ns && asked_by->start_ns <= window->end_ns;
	return gpu_act__end_ns(activity) >= window->start_ns && activity->start_ns <= window->end_ns;
}

static int drop_outside(struct gpu *gpu, const struct rec_window *window)
{
	struct gpu_act *activities = gpu->activities.items;
	uint32_t *places =
		calloc(gpu->activities.cnt + 1, sizeof(*places)); /* new index + 1 of each activity; 0: dropped */
	size_t retained_cnt = 0;

	if (!places)
		return -ENOMEM;
	for (size_t i = 0; i < gpu->activities.cnt; i++) {
		if (!is_within(gpu, &activities[i], window))
			continue;
		places[i] = 1;
		if (activities[i].asked_by != GPU_NOT_JOINED)
			places[activities[i].asked_by] = 1;
	}
	for (size_t i = 0; i < gpu->activities.cnt; i++)
		if (places[i])
			places[i] = ++retained_cnt;
	for (size_t i = 0; i < gpu->activities.cnt; i++) {
		if (!places[i])
			continue;
		if (activities[i].asked_by != GPU_NOT_JOINED)
			activities[i].asked_by = places[activities[i].asked_by] - 1;
		activities[places[i] - 1] = activities[i];
	}
	gpu->activities.cnt = retained_cnt;
	free(places);
	return 0;
}

int gpu__join(struct gpu *gpu, const struct names *names, const struct rec_window *window)
{
	struct gpu_call *calls = gpu->calls.items;
	int err;

	if (gpu->joined)
		return 0;
	sort_items(&gpu->calls, sizeof(struct gpu_call), compare_gpu_call);
	sort_items(&gpu->activities, sizeof(struct gpu_act), compare_gpu_activity);
	sort_items(&gpu->steps, sizeof(struct rec_gpu_step), compare_gpu_step);
	sort_items(&gpu->usages, sizeof(struct rec_gpu_usage), compare_gpu_usage);
	err = sort_into(&gpu->sorted_devices, &gpu->devices, sizeof(struct rec_gpu_device), compare_device_index)
		      ?: sort_into(&gpu->sorted_windows, &gpu->windows, sizeof(struct rec_gpu_window),
				   compare_gpu_window);
	if (err)
		return err;
	for (size_t i = 0; i < gpu->calls.cnt; i++)
		calls[i].device_ns = calls[i].activities = 0;
	err = gpu__list_processes(gpu) ?: gpu_join__all(gpu, names);
	if (!err && window && window->end_ns > window->start_ns)
		err = drop_outside(gpu, window);
	if (err)
		return err;
	count_joined(gpu);
	gpu->joined = true;
	return 0;
}

/* ---- what reports read ---- */

const struct gpu_process *gpu__processes(const struct gpu *gpu, size_t *cnt)
{
	*cnt = gpu->processes.cnt;
	return gpu->processes.items;
}

const struct gpu_process *gpu__process(const struct gpu *gpu, uint32_t pid)
{
	return gpu__find_process(gpu, pid);
}

const struct gpu_calls *gpu__totals(const struct gpu *gpu, size_t *cnt)
{
	*cnt = gpu->totals.items.cnt;
	return gpu->totals.items.items;
}

const struct gpu_call *gpu__calls(const struct gpu *gpu, size_t *cnt)
{
	*cnt = gpu->calls.cnt;
	return gpu->calls.items;
}

const struct gpu_act *gpu__activities(const struct gpu *gpu, size_t *cnt)
{
	*cnt = gpu->activities.cnt;
	return gpu->activities.items;
}

const struct rec_gpu_step *gpu__steps(const struct gpu *gpu, size_t *cnt)
{
	*cnt = gpu->steps.cnt;
	return gpu->steps.items;
}

const struct rec_gpu_device *gpu__devices(const struct gpu *gpu, size_t *cnt)
{
	*cnt = gpu->sorted_devices.cnt;
	return gpu->sorted_devices.items;
}

const struct rec_gpu_window *gpu__windows(const struct gpu *gpu, size_t *cnt)
{
	*cnt = gpu->sorted_windows.cnt;
	return gpu->sorted_windows.items;
}

bool gpu__uses(const struct gpu *gpu, uint32_t pid, uint32_t device)
{
	return intern__find(&gpu->users, (uint64_t)pid << 32 | device) != 0;
}

const struct rec_gpu_usage *gpu__usages(const struct gpu *gpu, size_t *cnt)
{
	*cnt = gpu->usages.cnt;
	return gpu->usages.items;
}

const struct gpu_act *gpu__asked_by(const struct gpu *gpu, const struct gpu_act *activity)
{
	const struct gpu_act *activities = gpu->activities.items;

	return activity->asked_by == GPU_NOT_JOINED ? NULL : &activities[activity->asked_by];
}

const struct gpu_call *gpu__call_of(const struct gpu *gpu, const struct gpu_act *activity)
{
	const struct gpu_call *calls = gpu->calls.items;

	return activity->call == GPU_NOT_JOINED ? NULL : &calls[activity->call];
}

void gpu__forget(struct gpu *gpu)
{
	gpu->calls.cnt = 0;
	gpu->activities.cnt = 0;
	gpu->steps.cnt = 0;
	gpu->usages.cnt = 0;
	gpu->joined = false;
}

void gpu__free(struct gpu *gpu)
{
	map__free(&gpu->totals);
	intern__free(&gpu->pids);
	intern__free(&gpu->device_ids);
	intern__free(&gpu->users);
	free(gpu->records.items);
	free(gpu->processes.items);
	free(gpu->calls.items);
	free(gpu->activities.items);
	free(gpu->steps.items);
	free(gpu->devices.items);
	free(gpu->sorted_devices.items);
	free(gpu->usages.items);
	intern__free(&gpu->window_ids);
	free(gpu->windows.items);
	free(gpu->sorted_windows.items);
	*gpu = (struct gpu){0};
}
