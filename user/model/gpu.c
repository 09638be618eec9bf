// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Takes records and returns sorted rows. Cumulative records are cached by their key. Activities are
 * joined to calls.
 */
#include "user/model/gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/percentile.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/lib/utf8.h"

/* ---- which call asked for which activity ---- */

/*
 * First by number: CUPTI gives each activity the correlation id of its call. CUPTI reports the call
 * as well: of the runtime, of the driver, or of both, one nested in the other.
 *
 * Then by time: that call is matched to a call that the probes saw on the same thread and of the
 * same class, which encloses it, lies inside it (probes on the driver only), or is a collective
 * that launches its kernels. The two clocks differ by some microseconds. So calls are first matched
 * by raw times, with a coarse offset at which most of them overlap, and again with a fine offset
 * taken from their midpoints. Two calls match only if each is the other's best overlap. All others
 * stay unjoined.
 */
#define BLOCK       4096 /* calls that share one offset: clocks drift, so each block is aligned anew */
#define TRIED       256  /* calls of a block that are tried to find the offset */
#define OFFSET_MAX  16000
#define OFFSET_STEP 2000
#define EARLY_MAX   500000  /* CUPTI fits the GPU's clock to the CPU's: work may seem to begin before its call */
#define UNSEEN_NS   1000000 /* longest duration assumed for a call whose end was not seen */
#define BACK_MAX    16      /* calls to look back: calls of a thread do not overlap, unless the recording is corrupt */

/* A GPU_ACTIVITY_CALL. */
struct asked_call {
	uint32_t pid, tid;
	uint32_t correlation;
	uint32_t driver;
	uint64_t start_ns, end_ns;
	uint32_t activity; /* index */
	uint32_t call;     /* index, or GPU_NOT_JOINED */
	enum gpu_class class;
};

struct join {
	struct gpu *gpu;
	struct gpu_act *activities;
	const struct gpu_call *calls;
	struct asked_call *asked;
	size_t asked_cnt;
	uint32_t *owners;  /* by call: 1 + index of the asked that it is matched to */
	int64_t *overlaps; /* by call: the overlap of that match */
};

/* ---- what is asked ---- */

#define DIFFER(field)                                       \
	do {                                                \
		if (x->field != y->field)                   \
			return COMPARE(x->field, y->field); \
	} while (0)

static int compare_thread(const void *a, const void *b)
{
	const struct asked_call *x = a, *y = b;

	DIFFER(driver);
	DIFFER(pid);
	DIFFER(tid);
	DIFFER(start_ns);
	return COMPARE(x->activity, y->activity);
}

static int compare_correlation(const void *a, const void *b)
{
	const struct asked_call *x = a, *y = b;

	DIFFER(pid);
	DIFFER(correlation);
	DIFFER(driver);
	DIFFER(start_ns);
	return COMPARE(x->activity, y->activity);
}

static bool is_comm_kernel(const char *name)
{
	/*
	 * Mangled: "_Z29ncclDevKernel_AllReduce_Sum_f3224ncclDevKernelArgsStorage...". HTA looks at
	 * the start of the demangled name.
	 */
	if (!strncmp(name, "_Z", 2))
		name += 2 + strspn(name + 2, "0123456789");
	return !strncmp(name, "nccl", 4) && strstr(name, "Kernel");
}

static int list_asked(struct join *join, const struct names *names)
{
	size_t cnt = join->gpu->activities.cnt;

	for (size_t i = 0; i < cnt; i++)
		join->asked_cnt += join->activities[i].kind == GPU_ACTIVITY_CALL;
	join->asked = calloc(join->asked_cnt + 1, sizeof(*join->asked));
	if (!join->asked)
		return -ENOMEM;
	join->asked_cnt = 0;
	for (size_t i = 0; i < cnt; i++) {
		struct gpu_act *activity = &join->activities[i];
		const char *name = names__find(names, activity->name);

		activity->asked_by = activity->call = GPU_NOT_JOINED;
		activity->is_comm = activity->kind == GPU_ACTIVITY_KERNEL && name && is_comm_kernel(name);
		if (activity->kind != GPU_ACTIVITY_CALL)
			continue;
		activity->asked_by = i;
		join->asked[join->asked_cnt++] =
			(struct asked_call){.pid = activity->pid,
					    .tid = activity->tid,
					    .correlation = activity->correlation,
					    .driver = activity->detail[2] != 0,
					    .start_ns = activity->start_ns,
					    .end_ns = gpu_act__end_ns(activity),
					    .activity = i,
					    .call = GPU_NOT_JOINED,
					    .class = name ? gpu_api__class(gpu_api__find(name)) : GPU_NONE};
	}
	return 0;
}

/* ---- by time ---- */

/* Adds an offset to a time, saturating. */
static uint64_t shift_time(uint64_t ns, int64_t offset)
{
	if (offset < 0)
		return ns > (uint64_t)-offset ? ns + offset : 0;
	return ns < UINT64_MAX - offset ? ns + offset : UINT64_MAX;
}

/* The end of a call. A call whose end was not seen was over when the next call of its thread began. */
static uint64_t call_end(const struct join *join, size_t at)
{
	const struct gpu_call *call = &join->calls[at], *next = call + 1;
	bool has_next = at + 1 < join->gpu->calls.cnt && next->pid == call->pid && next->tid == call->tid;

	if (call->duration_ns)
		return call->start_ns + call->duration_ns;
	return has_next && next->start_ns - call->start_ns < UNSEEN_NS ? next->start_ns
								       : shift_time(call->start_ns, UNSEEN_NS);
}

/* The time for which both calls last; negative: the distance between them. */
static int64_t calls_overlap_ns(const struct join *join, const struct asked_call *asked, size_t at, int64_t offset)
{
	const uint64_t call_start = join->calls[at].start_ns, end_ns = call_end(join, at);
	uint64_t a = shift_time(asked->start_ns, offset), b = shift_time(asked->end_ns, offset);
	uint64_t start = a > call_start ? a : call_start, end = b < end_ns ? b : end_ns;
	uint64_t ns = end >= start ? end - start : start - end;

	if (ns > INT64_MAX)
		ns = INT64_MAX;
	return end >= start ? (int64_t)ns : -(int64_t)ns;
}

/* A collective encloses the calls that it makes. */
static bool fits_call(const struct asked_call *asked, const struct gpu_call *call, int64_t overlap_ns)
{
	if (gpu_api__class(call->api) == GPU_COMM)
		return overlap_ns > 0 && 2 * (uint64_t)overlap_ns >= asked->end_ns - asked->start_ns;
	return asked->class == gpu_api__class(call->api) && overlap_ns > 0;
}

/* The calls of one thread: indexes [from, to). */
struct call_range {
	size_t from, to;
};

/* The call that overlaps `asked` the longest, or GPU_NOT_JOINED. */
static uint32_t best_overlap(const struct join *join, struct call_range calls, const struct asked_call *asked,
			     int64_t offset, int64_t *overlap_ns)
{
	uint64_t end_ns = shift_time(asked->end_ns, offset);
	size_t low = SEARCH(i, calls.from, calls.to, join->calls[i].start_ns < end_ns);
	uint32_t best = GPU_NOT_JOINED;

	*overlap_ns = 0;
	for (int back = 0; back < BACK_MAX && low > calls.from; back++) {
		int64_t ns = calls_overlap_ns(join, asked, --low, offset);

		if (ns > *overlap_ns && fits_call(asked, &join->calls[low], ns)) {
			*overlap_ns = ns;
			best = low;
		}
	}
	return best;
}

/* The offset at which the calls of a block overlap most. */
static int64_t coarse_offset(const struct join *join, struct call_range calls, const struct asked_call *asked,
			     size_t cnt)
{
	uint64_t most = 0;
	int64_t found = 0;

	for (int i = 0; i <= 2 * (OFFSET_MAX / OFFSET_STEP); i++) {
		/* 0, +1, -1, +2, ...: of equal offsets, the one nearest to 0 wins */
		int64_t offset = (i % 2 ? 1 : -1) * ((i + 1) / 2) * OFFSET_STEP;
		uint64_t sum = 0;

		for (size_t a = 0; a < cnt && a < TRIED; a++) {
			int64_t ns;

			if (asked[a].call == GPU_NOT_JOINED &&
			    best_overlap(join, calls, &asked[a], offset, &ns) != GPU_NOT_JOINED)
				sum += ns < 1000000 ? ns : 1000000;
		}
		if (sum > most) {
			most = sum;
			found = offset;
		}
	}
	return found;
}

static int compare_offsets(const void *a, const void *b)
{
	return COMPARE(*(const int64_t *)a, *(const int64_t *)b);
}

/*
 * The median distance between the midpoints of the calls that overlap at an offset; that offset
 * itself if no calls overlap.
 */
static int64_t fine_offset(const struct join *join, struct call_range calls, const struct asked_call *asked, size_t cnt,
			   int64_t offset)
{
	int64_t apart[TRIED], ns;
	size_t found = 0;

	for (size_t a = 0; a < cnt && found < TRIED; a++) {
		uint32_t at = asked[a].call == GPU_NOT_JOINED ? best_overlap(join, calls, &asked[a], offset, &ns)
							      : GPU_NOT_JOINED;
		const struct gpu_call *call = &join->calls[at];

		if (at == GPU_NOT_JOINED || !call->duration_ns || gpu_api__class(call->api) == GPU_COMM)
			continue;
		apart[found++] = (int64_t)((call->start_ns + call->duration_ns / 2) -
					   (asked[a].start_ns + (asked[a].end_ns - asked[a].start_ns) / 2));
	}
	if (!found)
		return offset;
	qsort(apart, found, sizeof(*apart), compare_offsets);
	ns = apart[percentile__index(found, 50)];
	return ns > -2 * OFFSET_MAX && ns < 2 * OFFSET_MAX ? ns : offset;
}

static void match_block(struct join *join, struct call_range calls, struct asked_call *asked, size_t cnt)
{
	int64_t offset = coarse_offset(join, calls, asked, cnt);

	offset = fine_offset(join, calls, asked, cnt, offset);
	for (size_t a = 0; a < cnt; a++) {
		int64_t ns;
		uint32_t at = asked[a].call == GPU_NOT_JOINED ? best_overlap(join, calls, &asked[a], offset, &ns)
							      : GPU_NOT_JOINED;

		if (at == GPU_NOT_JOINED)
			continue;
		if (gpu_api__class(join->calls[at].api) == GPU_COMM) {
			asked[a].call = at;
			continue;
		}
		if (join->owners[at] && join->overlaps[at] >= ns)
			continue;
		if (join->owners[at])
			join->asked[join->owners[at] - 1].call = GPU_NOT_JOINED;
		join->owners[at] = &asked[a] - join->asked + 1;
		join->overlaps[at] = ns;
		asked[a].call = at;
	}
}

static struct call_range thread_calls(const struct join *join, uint32_t pid, uint32_t tid)
{
	const struct gpu_call *calls = join->calls;
	size_t cnt = join->gpu->calls.cnt;
	size_t from = SEARCH(i, 0, cnt, calls[i].pid < pid || (calls[i].pid == pid && calls[i].tid < tid));

	return (struct call_range){from, SEARCH(i, from, cnt, calls[i].pid == pid && calls[i].tid == tid)};
}

/*
 * `asked` is sorted by thread. The runtime's calls come first, so the driver's calls get only what
 * those leave over.
 */
static void match_by_time(struct join *join)
{
	for (size_t from = 0, to; from < join->asked_cnt; from = to) {
		const struct asked_call *first = &join->asked[from];
		struct call_range calls = thread_calls(join, first->pid, first->tid);

		for (to = from;
		     to < join->asked_cnt && join->asked[to].driver == first->driver &&
		     join->asked[to].pid == first->pid && join->asked[to].tid == first->tid && to - from < BLOCK;
		     to++)
			;
		if (calls.from < calls.to && first->tid)
			match_block(join, calls, &join->asked[from], to - from);
	}
}

/* ---- by number ---- */

/*
 * Of the calls of the process with this correlation id, returns the last one that began before the
 * activity, and prefers the runtime's to the driver's; NULL: no such call. *call: the probes' view
 * of one of them. An id may come again, in another window.
 */
static const struct asked_call *find_asked_call(const struct join *join, const struct gpu_act *activity, uint32_t *call)
{
	const struct asked_call key = {.pid = activity->pid, .correlation = activity->correlation};
	const struct asked_call *found[2] = {NULL, NULL};

	for (uint32_t driver = 0; driver < 2; driver++) {
		uint64_t latest = activity->start_ns ? shift_time(activity->start_ns, EARLY_MAX) : UINT64_MAX;
		struct asked_call last = {.pid = key.pid,
					  .correlation = key.correlation,
					  .driver = driver,
					  .start_ns = latest,
					  .activity = UINT32_MAX};
		size_t low = SEARCH(i, 0, join->asked_cnt, compare_correlation(&join->asked[i], &last) <= 0);

		if (low && join->asked[low - 1].pid == key.pid && join->asked[low - 1].correlation == key.correlation &&
		    join->asked[low - 1].driver == driver)
			found[driver] = &join->asked[low - 1];
	}
	*call = found[0] ? found[0]->call : GPU_NOT_JOINED;
	if (*call == GPU_NOT_JOINED && found[1])
		*call = found[1]->call;
	return found[0] ?: found[1];
}

static void match_by_number(struct join *join)
{
	for (size_t i = 0; i < join->asked_cnt; i++)
		join->activities[join->asked[i].activity].call = join->asked[i].call;
	for (size_t i = 0; i < join->gpu->activities.cnt; i++) {
		struct gpu_act *activity = &join->activities[i];
		const struct asked_call *asked;
		uint32_t call;

		if (activity->kind == GPU_ACTIVITY_CALL || !activity->correlation)
			continue;
		asked = find_asked_call(join, activity, &call);
		if (!asked)
			continue;
		activity->asked_by = asked->activity;
		activity->call = call;
	}
}

/*
 * Sets asked_by, call and is_comm of the activities. Activities and calls must be sorted. 0 or
 * -ENOMEM.
 */
static int gpu_join__all(struct gpu *gpu, const struct names *names)
{
	struct join join = {.gpu = gpu, .activities = gpu->activities.items, .calls = gpu->calls.items};
	int err = -ENOMEM;

	join.owners = calloc(gpu->calls.cnt + 1, sizeof(*join.owners));
	join.overlaps = calloc(gpu->calls.cnt + 1, sizeof(*join.overlaps));
	if (!join.owners || !join.overlaps || list_asked(&join, names))
		goto out;
	if (join.asked_cnt)
		qsort(join.asked, join.asked_cnt, sizeof(*join.asked), compare_thread);
	match_by_time(&join);
	if (join.asked_cnt)
		qsort(join.asked, join.asked_cnt, sizeof(*join.asked), compare_correlation);
	match_by_number(&join);
	err = 0;
out:
	free(join.asked);
	free(join.owners);
	free(join.overlaps);
	return err;
}

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
