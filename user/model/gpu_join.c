// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Joins GPU activities to the calls that asked for them.
 *
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
#include "user/model/gpu_join.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/percentile.h"
#include "user/lib/search.h"

#define BLOCK       4096 /* calls that share one offset: clocks drift, so each block is aligned anew */
#define TRIED       256  /* calls of a block that are tried to find the offset */
#define OFFSET_MAX  16000
#define OFFSET_STEP 2000
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
 * of one of them.
 */
static const struct asked_call *find_asked_call(const struct join *join, const struct gpu_act *activity, uint32_t *call)
{
	const struct asked_call key = {.pid = activity->pid, .correlation = activity->correlation};
	const struct asked_call *found[2] = {NULL, NULL};

	for (uint32_t driver = 0; driver < 2; driver++) {
		uint64_t latest = activity->start_ns ? shift_time(activity->start_ns, OFFSET_MAX) : UINT64_MAX;
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

int gpu_join__all(struct gpu *gpu, const struct names *names)
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
