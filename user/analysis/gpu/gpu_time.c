// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Goes through the work of a GPU in order of its start. The time from the end of all earlier work
 * to the start of the next is idle, and the next work shows why. Time outside CUPTI's windows is
 * neither busy nor idle.
 */
#include "user/analysis/gpu/gpu_time.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"

/* When CUPTI watched a process, and when it did not. */
struct watched_process {
	uint32_t pid;
	struct gpu_spans windows, unwatched;
};

/* A time in which a CPU thread is in a DataLoader's next, or in a copy. */
struct fetch_span {
	uint32_t pid, tid;
	uint64_t start_ns, end_ns;
};

struct gpu_time {
	const struct gpu *gpu;
	struct array lines;   /* struct gpu_line */
	struct array streams; /* struct gpu_stream */
	struct array watched; /* struct watched_process, by pid */
	struct array fetches; /* struct fetch_span, by thread and time; disjoint */
};

static const struct {
	const char *name, *meaning;
} idles[] = {
#define X(id, name, meaning) [GPU_IDLE_##id] = {name, meaning},
	STEPFLAME_GPU_IDLE(X)
#undef X
};

const char *gpu_idle__name(enum gpu_idle idle)
{
	return idles[idle].name;
}

const char *gpu_idle__meaning(enum gpu_idle idle)
{
	return idles[idle].meaning;
}

#define DIFFER(field)                                       \
	do {                                                \
		if (x->field != y->field)                   \
			return COMPARE(x->field, y->field); \
	} while (0)

/* ---- spans ---- */

/* Adds a span. Add spans in order of their start. 0 or -ENOMEM. */
static int spans__add(struct array *spans, uint64_t start_ns, uint64_t end_ns)
{
	struct gpu_span *last = spans->cnt ? (struct gpu_span *)spans->items + spans->cnt - 1 : NULL, *new;

	if (end_ns <= start_ns)
		return 0;
	if (last && start_ns <= last->end_ns) {
		last->end_ns = end_ns > last->end_ns ? end_ns : last->end_ns;
		return 0;
	}
	new = array__add(spans, sizeof(*new));
	if (!new)
		return -ENOMEM;
	last = spans->cnt > 1 ? new - 1 : NULL;
	*new = (struct gpu_span){start_ns, end_ns, last ? last->before_ns + last->end_ns - last->start_ns : 0};
	return 0;
}

uint64_t gpu_spans__total(const struct gpu_spans *spans)
{
	const struct gpu_span *last = spans->cnt ? &spans->items[spans->cnt - 1] : NULL;

	return last ? last->before_ns + last->end_ns - last->start_ns : 0;
}

/* Total length of the spans before an instant. */
static uint64_t ns_before(const struct gpu_spans *spans, uint64_t time_ns)
{
	const struct gpu_span *at;
	size_t low = SEARCH(i, 0, spans->cnt, spans->items[i].start_ns < time_ns);
	if (!low)
		return 0;
	at = &spans->items[low - 1];
	return at->before_ns + (time_ns < at->end_ns ? time_ns : at->end_ns) - at->start_ns;
}

uint64_t gpu_spans__within(const struct gpu_spans *spans, uint64_t start_ns, uint64_t end_ns)
{
	return end_ns > start_ns ? ns_before(spans, end_ns) - ns_before(spans, start_ns) : 0;
}

uint64_t gpu_line__overlap(const struct gpu_line *line, uint64_t start_ns, uint64_t end_ns)
{
	return gpu_spans__within(&line->compute, start_ns, end_ns) + gpu_spans__within(&line->comm, start_ns, end_ns) -
	       gpu_spans__within(&line->kernels, start_ns, end_ns);
}

/* ---- when CUPTI watched ---- */

static int compare_start(const void *a, const void *b)
{
	return COMPARE(((const struct gpu_span *)a)->start_ns, ((const struct gpu_span *)b)->start_ns);
}

/* Computes the gaps between spans, from time 0 to the end of time. 0 or -ENOMEM. */
static int spans_between(const struct array *spans, struct array *out)
{
	const struct gpu_span *items = spans->items;
	uint64_t from_ns = 0;
	int err = 0;

	for (size_t i = 0; i < spans->cnt && !err; i++) {
		err = spans__add(out, from_ns, items[i].start_ns);
		from_ns = items[i].end_ns;
	}
	return err ?: spans__add(out, from_ns, UINT64_MAX);
}

struct process_slice {
	const struct rec_gpu_window *windows; /* of one process, like activities */
	const struct gpu_act *activities;     /* in order of their start */
	size_t window_cnt, activity_cnt;
};

/*
 * Without recorded windows, uses one window from the first to the last record of the process. 0 or
 * -ENOMEM.
 */
static int list_cupti_windows(const struct process_slice *slice, struct array *out)
{
	struct gpu_span *spans = calloc(slice->window_cnt + 1, sizeof(*spans));
	size_t cnt = 0;
	int err = 0;

	if (!spans)
		return -ENOMEM;
	for (size_t i = 0; i < slice->window_cnt; i++)
		spans[cnt++] = (struct gpu_span){slice->windows[i].start_ns, slice->windows[i].end_ns, 0};
	qsort(spans, cnt, sizeof(*spans), compare_start);
	for (size_t i = 0; i < cnt && !err; i++)
		err = spans__add(out, spans[i].start_ns, spans[i].end_ns);
	if (!out->cnt) {
		*spans = (struct gpu_span){UINT64_MAX, 0, 0};
		for (size_t i = 0; i < slice->activity_cnt; i++) {
			const struct gpu_act *activity = &slice->activities[i];

			if (!activity->start_ns)
				continue;
			if (activity->start_ns < spans->start_ns)
				spans->start_ns = activity->start_ns;
			if (gpu_act__end_ns(activity) > spans->end_ns)
				spans->end_ns = gpu_act__end_ns(activity);
		}
		err = err ?: spans__add(out, spans->start_ns, spans->end_ns);
	}
	free(spans);
	return err;
}

/* 0 or -ENOMEM. */
static int watch_process(struct gpu_time *time, uint32_t pid, const struct process_slice *slice)
{
	struct watched_process *watched = array__add(&time->watched, sizeof(*watched));
	struct array windows = {0}, unwatched = {0};
	int err = watched ? list_cupti_windows(slice, &windows) : -ENOMEM;

	err = err ?: spans_between(&windows, &unwatched);
	if (watched)
		*watched =
			(struct watched_process){pid, {windows.items, windows.cnt}, {unwatched.items, unwatched.cnt}};
	return err;
}

static const struct watched_process *find_watched(const struct gpu_time *time, uint32_t pid)
{
	static const struct watched_process none;
	const struct watched_process *watched = time->watched.items;
	size_t low = SEARCH(i, 0, time->watched.cnt, watched[i].pid < pid);
	return low < time->watched.cnt && watched[low].pid == pid ? &watched[low] : &none;
}

/* The times of a process outside CUPTI's windows. */
static const struct gpu_spans *gpu_time__unwatched(const struct gpu_time *time, uint32_t pid)
{
	return &find_watched(time, pid)->unwatched;
}

uint64_t gpu_time__watched(const struct gpu_time *time, uint32_t pid, uint64_t start_ns, uint64_t end_ns)
{
	return gpu_spans__within(&find_watched(time, pid)->windows, start_ns, end_ns);
}

/* ---- when the CPU fetched data ---- */

static int compare_fetch(const void *a, const void *b)
{
	const struct fetch_span *x = a, *y = b;

	DIFFER(pid);
	DIFFER(tid);
	DIFFER(start_ns);
	return COMPARE(x->end_ns, y->end_ns);
}

static int add_fetch(struct gpu_time *time, uint32_t pid, uint32_t tid, uint64_t start_ns, uint64_t end_ns)
{
	struct fetch_span *fetch = array__add(&time->fetches, sizeof(*fetch));

	if (!fetch)
		return -ENOMEM;
	*fetch = (struct fetch_span){pid, tid, start_ns, end_ns};
	return 0;
}

static int list_fetches(struct gpu_time *time, const struct samples *samples, const struct steps *steps)
{
	struct fetch_span *fetches;
	size_t cnt, unique_cnt = 0;
	const struct gpu_call *calls = gpu__calls(time->gpu, &cnt);
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++)
		if (gpu_api__class(calls[i].api) == GPU_COPY && calls[i].direction != GPU_DTOD_DIRECTION)
			err = add_fetch(time, calls[i].pid, calls[i].tid, calls[i].start_ns,
					calls[i].start_ns + calls[i].duration_ns);
	for (size_t i = 0; steps && i < samples__cnt(samples) && !err; i++) {
		struct sample sample = samples__get(samples, i);
		bool is_data = sample.cause == CAUSE_DATA_WAIT || steps__phase(steps, sample.path) == PHASE_DATA;

		if (is_data && gpu__process(time->gpu, sample.pid))
			err = add_fetch(time, sample.pid, sample.tid,
					sample.time_ns > sample.weight_ns ? sample.time_ns - sample.weight_ns : 0,
					sample.time_ns);
	}
	fetches = time->fetches.items;
	if (time->fetches.cnt)
		qsort(fetches, time->fetches.cnt, sizeof(*fetches), compare_fetch);
	for (size_t i = 0; i < time->fetches.cnt; i++) {
		struct fetch_span *last = unique_cnt ? &fetches[unique_cnt - 1] : NULL;

		if (!last || last->pid != fetches[i].pid || last->tid != fetches[i].tid ||
		    last->end_ns < fetches[i].start_ns)
			fetches[unique_cnt++] = fetches[i];
		else if (last->end_ns < fetches[i].end_ns)
			last->end_ns = fetches[i].end_ns;
	}
	time->fetches.cnt = unique_cnt;
	return err;
}

/* The first fetch of a thread that ends after an instant; may belong to a later thread. */
static size_t find_fetch(const struct gpu_time *time, uint32_t pid, uint32_t tid, uint64_t start_ns)
{
	const struct fetch_span key = {pid, tid, start_ns, 0}, *fetches = time->fetches.items;
	size_t low = SEARCH(i, 0, time->fetches.cnt, compare_fetch(&fetches[i], &key) < 0);
	if (low && fetches[low - 1].pid == pid && fetches[low - 1].tid == tid && fetches[low - 1].end_ns > start_ns)
		low--;
	return low;
}

/* ---- lines and streams ---- */

static int compare_act_device(const void *a, const void *b)
{
	const struct gpu_act *x = *(const struct gpu_act *const *)a, *y = *(const struct gpu_act *const *)b;

	DIFFER(pid);
	DIFFER(device);
	DIFFER(start_ns);
	return COMPARE(x, y);
}

static int compare_stream(const void *a, const void *b)
{
	const struct gpu_act *x = *(const struct gpu_act *const *)a, *y = *(const struct gpu_act *const *)b;

	DIFFER(pid);
	DIFFER(device);
	DIFFER(context);
	DIFFER(stream);
	DIFFER(start_ns);
	return COMPARE(x, y);
}

/* As HTA asks: had the CPU asked for this work when all earlier work was done? */
static enum gpu_idle idle_before(const struct gpu_time *time, const struct gpu_act *next, uint64_t idle_from_ns)
{
	const struct gpu_act *asked = gpu__asked_by(time->gpu, next);

	if (!asked || !asked->start_ns)
		return GPU_IDLE_OTHER;
	if (asked->start_ns > idle_from_ns)
		return GPU_IDLE_HOST;
	return next->start_ns - idle_from_ns < GPU_IDLE_LAUNCH_NS ? GPU_IDLE_LAUNCH : GPU_IDLE_OTHER;
}

/* Adds a span without the parts that CUPTI did not watch. 0 or -ENOMEM. */
static int add_watched(const struct gpu_time *time, uint32_t pid, struct array *spans, uint64_t from_ns, uint64_t to_ns)
{
	const struct gpu_spans *unwatched = gpu_time__unwatched(time, pid);
	int err = 0;
	size_t low = SEARCH(i, 0, unwatched->cnt, unwatched->items[i].end_ns <= from_ns);
	for (; low < unwatched->cnt && unwatched->items[low].start_ns < to_ns && !err; low++) {
		err = spans__add(spans, from_ns, unwatched->items[low].start_ns);
		from_ns = unwatched->items[low].end_ns;
	}
	return err ?: spans__add(spans, from_ns, to_ns);
}

/* Adds an idle time to idle[GPU_IDLE__COUNT], whose spans must all be earlier. 0 or -ENOMEM. */
static int add_idle(const struct gpu_time *time, struct array *idle, const struct gpu_act *next, uint64_t from_ns)
{
	const struct gpu_act *asked = gpu__asked_by(time->gpu, next);
	enum gpu_idle why = idle_before(time, next, from_ns);
	const struct fetch_span *fetches = time->fetches.items;
	int err = 0;

	if (why != GPU_IDLE_HOST)
		return add_watched(time, next->pid, &idle[why], from_ns, next->start_ns);
	for (size_t i = find_fetch(time, asked->pid, asked->tid, from_ns); i < time->fetches.cnt && !err; i++) {
		const struct fetch_span *fetch = &fetches[i];
		uint64_t end_ns = fetch->end_ns < next->start_ns ? fetch->end_ns : next->start_ns;

		if (fetch->pid != asked->pid || fetch->tid != asked->tid || fetch->start_ns >= next->start_ns)
			break;
		err = add_watched(time, next->pid, &idle[GPU_IDLE_HOST], from_ns, fetch->start_ns);
		if (fetch->start_ns > from_ns)
			from_ns = fetch->start_ns;
		err = err ?: add_watched(time, next->pid, &idle[GPU_IDLE_DATA], from_ns, end_ns);
		from_ns = end_ns;
	}
	return err ?: add_watched(time, next->pid, &idle[GPU_IDLE_HOST], from_ns, next->start_ns);
}

static void take_spans(struct gpu_spans *spans, struct array *array)
{
	*spans = (struct gpu_spans){array->items, array->cnt};
}

/* acts: work of one device, in order of its start. 0 or -ENOMEM. */
static int make_line(struct gpu_time *time, const struct gpu_act *const *acts, size_t cnt)
{
	struct gpu_line *line = array__add(&time->lines, sizeof(*line));
	struct array work = {0}, kernels = {0}, compute = {0}, comm = {0}, idle[GPU_IDLE__COUNT] = {0};
	int err = line ? 0 : -ENOMEM;

	if (err)
		return err;
	line->pid = acts[0]->pid;
	line->device = acts[0]->device;
	for (size_t i = 0; i < cnt && !err; i++) {
		const struct gpu_act *act = acts[i];
		uint64_t end_ns = gpu_act__end_ns(act);

		if (!act->start_ns) {
			line->untimed++;
			continue;
		}
		if (!line->last_ns)
			line->first_ns = line->last_ns = act->start_ns;
		if (act->start_ns > line->last_ns)
			err = add_idle(time, idle, act, line->last_ns);
		if (end_ns > line->last_ns)
			line->last_ns = end_ns;
		err = err ?: add_watched(time, line->pid, &work, act->start_ns, end_ns);
		if (!err && (act->kind == GPU_ACTIVITY_KERNEL || act->kind == GPU_ACTIVITY_GRAPH))
			err = add_watched(time, line->pid, &kernels, act->start_ns, end_ns)
				      ?: add_watched(time, line->pid, act->is_comm ? &comm : &compute, act->start_ns,
						     end_ns);
	}
	take_spans(&line->work, &work);
	take_spans(&line->kernels, &kernels);
	take_spans(&line->compute, &compute);
	take_spans(&line->comm, &comm);
	for (int why = 0; why < GPU_IDLE__COUNT; why++)
		take_spans(&line->idle[why], &idle[why]);
	line->watched_ns = line->last_ns - line->first_ns -
			   gpu_spans__within(gpu_time__unwatched(time, line->pid), line->first_ns, line->last_ns);
	return err;
}

static int make_stream(struct gpu_time *time, const struct gpu_act *const *acts, size_t cnt)
{
	struct gpu_stream *stream = array__add(&time->streams, sizeof(*stream));
	uint64_t done_ns = 0;

	if (!stream)
		return -ENOMEM;
	stream->pid = acts[0]->pid;
	stream->device = acts[0]->device;
	stream->context = acts[0]->context;
	stream->stream = acts[0]->stream;
	stream->activities = cnt;
	for (size_t i = 0; i < cnt; i++) {
		uint64_t start_ns = acts[i]->start_ns, end_ns = gpu_act__end_ns(acts[i]), ns;
		enum gpu_idle idle;

		if (!start_ns)
			continue;
		if (done_ns && start_ns > done_ns) {
			ns = start_ns - done_ns -
			     gpu_spans__within(gpu_time__unwatched(time, stream->pid), done_ns, start_ns);
			idle = idle_before(time, acts[i], done_ns);
			*(idle == GPU_IDLE_HOST     ? &stream->host_wait_ns
			  : idle == GPU_IDLE_LAUNCH ? &stream->kernel_wait_ns
						    : &stream->other_ns) += ns;
		}
		stream->busy_ns +=
			gpu_time__watched(time, stream->pid, start_ns > done_ns ? start_ns : done_ns, end_ns);
		done_ns = end_ns > done_ns ? end_ns : done_ns;
	}
	return 0;
}

/* Computes when CUPTI watched each process, and picks its work. 0 or -ENOMEM. */
static int watch_work(struct gpu_time *time, const struct gpu_act **work, size_t *work_cnt)
{
	size_t process_cnt, window_cnt, cnt;
	const struct gpu_process *processes = gpu__processes(time->gpu, &process_cnt);
	const struct rec_gpu_window *window = gpu__windows(time->gpu, &window_cnt), *windows_end = window + window_cnt;
	const struct gpu_act *activity = gpu__activities(time->gpu, &cnt), *activities_end = activity + cnt;
	int err = 0;

	for (size_t i = 0; i < process_cnt && !err; i++) {
		struct process_slice slice = {.windows = window, .activities = activity};

		for (; window < windows_end && window->pid == processes[i].pid; window++)
			slice.window_cnt++;
		for (; activity < activities_end && activity->pid == processes[i].pid; activity++) {
			slice.activity_cnt++;
			if (gpu_act__is_work(activity))
				work[(*work_cnt)++] = activity;
		}
		err = watch_process(time, processes[i].pid, &slice);
	}
	return err;
}

static int make_times(struct gpu_time *time, const struct samples *samples, const struct steps *steps)
{
	size_t cnt, work_cnt = 0;
	const struct gpu_act **work;
	int err;

	gpu__activities(time->gpu, &cnt);
	work = calloc(cnt + 1, sizeof(*work));
	err = work ? list_fetches(time, samples, steps) : -ENOMEM;
	err = err ?: watch_work(time, work, &work_cnt);
	if (work_cnt)
		qsort(work, work_cnt, sizeof(*work), compare_act_device);
	for (size_t from = 0, to; from < work_cnt && !err; from = to) {
		for (to = from;
		     to < work_cnt && work[to]->pid == work[from]->pid && work[to]->device == work[from]->device; to++)
			;
		err = make_line(time, &work[from], to - from);
	}
	if (work_cnt)
		qsort(work, work_cnt, sizeof(*work), compare_stream);
	for (size_t from = 0, to; from < work_cnt && !err; from = to) {
		for (to = from;
		     to < work_cnt && work[to]->pid == work[from]->pid && work[to]->device == work[from]->device &&
		     work[to]->context == work[from]->context && work[to]->stream == work[from]->stream;
		     to++)
			;
		err = make_stream(time, &work[from], to - from);
	}
	free(work);
	return err;
}

struct gpu_time *gpu_time__new(struct job *job, const struct steps *steps)
{
	struct gpu_time *time = calloc(1, sizeof(*time));
	const struct samples *samples = job__samples(job);

	if (time)
		time->gpu = job__gpu(job);
	if (!time || !time->gpu || !samples || make_times(time, samples, steps)) {
		gpu_time__free(time);
		return NULL;
	}
	return time;
}

void gpu_time__free(struct gpu_time *time)
{
	struct gpu_line *lines;
	struct watched_process *watched;

	if (!time)
		return;
	lines = time->lines.items;
	watched = time->watched.items;
	for (size_t i = 0; i < time->lines.cnt; i++) {
		free(lines[i].work.items);
		free(lines[i].kernels.items);
		free(lines[i].compute.items);
		free(lines[i].comm.items);
		for (int why = 0; why < GPU_IDLE__COUNT; why++)
			free(lines[i].idle[why].items);
	}
	for (size_t i = 0; i < time->watched.cnt; i++) {
		free(watched[i].windows.items);
		free(watched[i].unwatched.items);
	}
	free(time->lines.items);
	free(time->streams.items);
	free(time->watched.items);
	free(time->fetches.items);
	free(time);
}

const struct gpu_line *gpu_time__lines(const struct gpu_time *time, size_t *cnt)
{
	*cnt = time->lines.cnt;
	return time->lines.items;
}

const struct gpu_stream *gpu_time__streams(const struct gpu_time *time, size_t *cnt)
{
	*cnt = time->streams.cnt;
	return time->streams.items;
}

#define WATCHED_SHARE 0.95

bool gpu_step__is_watched(const struct gpu_step *step, uint64_t step_ns)
{
	return step->watched_ns && step->watched_ns >= WATCHED_SHARE * step_ns;
}

double gpu_step__busy(const struct gpu_step *step)
{
	return step->watched_ns ? (double)step->busy_ns / step->watched_ns : 0;
}

static void gpu_step__add(struct gpu_step *sum, const struct gpu_step *step)
{
	sum->known += step->known;
	sum->launches = saturating__add(sum->launches, step->launches);
	sum->copies = saturating__add(sum->copies, step->copies);
	sum->copied_bytes = saturating__add(sum->copied_bytes, step->copied_bytes);
	sum->api_ns = saturating__add(sum->api_ns, step->api_ns);
	sum->sync_ns = saturating__add(sum->sync_ns, step->sync_ns);
	sum->watched_ns = saturating__add(sum->watched_ns, step->watched_ns);
	sum->busy_ns = saturating__add(sum->busy_ns, step->busy_ns);
	sum->profiling_ns = saturating__add(sum->profiling_ns, step->profiling_ns);
}

bool gpu_step__calls(const struct gpu *gpu, const struct step_track *track, const struct step *step, size_t *at,
		     struct gpu_step *out)
{
	size_t cnt;
	const struct rec_gpu_step *records = gpu__steps(gpu, &cnt);
	uint64_t up_to_ns = step->start_ns;
	struct gpu_step sum = {.known = 1};

	while (*at < cnt && (records[*at].pid < track->pid ||
			     (records[*at].pid == track->pid && records[*at].time_ns <= step->start_ns)))
		(*at)++;
	for (; *at < cnt && records[*at].pid == track->pid && records[*at].time_ns <= step->end_ns; (*at)++) {
		if (records[*at].from_ns != up_to_ns)
			continue;
		up_to_ns = records[*at].time_ns;
		sum.launches = saturating__add(sum.launches, records[*at].launches);
		sum.copies = saturating__add(sum.copies, records[*at].copies);
		sum.copied_bytes = saturating__add(sum.copied_bytes, records[*at].copied_bytes);
		sum.api_ns = saturating__add(sum.api_ns, records[*at].api_ns);
		sum.sync_ns = saturating__add(sum.sync_ns, records[*at].sync_ns);
	}
	if (up_to_ns != step->end_ns)
		return false;
	*out = sum;
	return true;
}

static void add_step_calls(struct gpu_steps *out, const struct gpu *gpu, const struct step_track *track)
{
	size_t at = 0;

	for (size_t i = 0; i < track->step_cnt; i++)
		gpu_step__calls(gpu, track, &track->steps[i], &at, &out->steps[i]);
}

static void add_step_work(struct gpu_steps *out, const struct gpu_time *time, const struct step_track *track)
{
	size_t cnt, own = 0;
	const struct gpu_line *lines = gpu_time__lines(time, &cnt);

	for (size_t l = 0; l < cnt; l++)
		own += lines[l].pid == track->pid;
	for (size_t i = 0; i < track->step_cnt && own; i++) {
		uint64_t start_ns = track->steps[i].start_ns, end_ns = track->steps[i].end_ns, busy_ns = 0;

		out->steps[i].watched_ns = gpu_time__watched(time, track->pid, start_ns, end_ns);
		for (size_t l = 0; l < cnt; l++)
			if (lines[l].pid == track->pid)
				busy_ns += gpu_spans__within(&lines[l].work, start_ns, end_ns);
		busy_ns /= own;
		out->steps[i].busy_ns = busy_ns < out->steps[i].watched_ns ? busy_ns : out->steps[i].watched_ns;
	}
}

static void add_kernels(struct gpu_steps *out, const struct gpu *gpu, const struct step_track *track)
{
	size_t cnt;
	const struct gpu_act *activities = gpu__activities(gpu, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		if (activities[i].pid != track->pid || step_track__at(track, activities[i].start_ns) < 0 ||
		    (activities[i].kind != GPU_ACTIVITY_KERNEL && activities[i].kind != GPU_ACTIVITY_GRAPH))
			continue;
		out->kernels++;
		out->kernel_ns = saturating__add(out->kernel_ns, activities[i].duration_ns);
	}
}

/* ---- steps ---- */

/* Of overheads inside each other, time counts once. */
static void add_profiling(struct gpu_steps *out, const struct gpu *gpu, const struct step_track *track)
{
	size_t cnt, at = 0;
	const struct gpu_act *activities = gpu__activities(gpu, &cnt);
	uint64_t counted_ns = 0;

	for (size_t i = 0; i < cnt; i++) {
		const struct gpu_act *activity = &activities[i];
		uint64_t from_ns = activity->start_ns, to_ns = gpu_act__end_ns(activity);

		if (activity->kind != GPU_ACTIVITY_OVERHEAD || activity->pid != track->pid ||
		    activity->tid != track->tid || !gpu_overhead__is_profiling(activity->detail[0]))
			continue;
		from_ns = from_ns > counted_ns ? from_ns : counted_ns;
		counted_ns = to_ns > counted_ns ? to_ns : counted_ns;
		while (at < track->step_cnt && track->steps[at].end_ns <= from_ns)
			at++;
		for (size_t s = at; s < track->step_cnt && track->steps[s].start_ns < to_ns; s++) {
			const struct step *step = &track->steps[s];
			uint64_t start_ns = from_ns > step->start_ns ? from_ns : step->start_ns;
			uint64_t end_ns = to_ns < step->end_ns ? to_ns : step->end_ns;

			out->steps[s].profiling_ns += end_ns > start_ns ? end_ns - start_ns : 0;
		}
	}
}

static void sum_gpu_steps(struct gpu_steps *out, const struct step_track *track)
{
	for (size_t i = 0; i < track->step_cnt; i++)
		gpu_step__add(&out->all, &out->steps[i]);
	for (size_t i = 0; i < track->slow_cnt; i++)
		gpu_step__add(&out->slow, &out->steps[track->slow[i]]);
}

int gpu_steps__new(const struct gpu *gpu, const struct gpu_time *time, const struct step_track *track,
		   struct gpu_steps *out)
{
	const struct gpu_process *process = gpu__process(gpu, track->pid);

	*out = (struct gpu_steps){0};
	if (!process || process->tier == GPU_TIER_NONE)
		return 0;
	out->steps = calloc(track->step_cnt + 1, sizeof(*out->steps));
	if (!out->steps)
		return -ENOMEM;
	add_step_calls(out, gpu, track);
	add_step_work(out, time, track);
	add_kernels(out, gpu, track);
	add_profiling(out, gpu, track);
	sum_gpu_steps(out, track);
	return 0;
}

void gpu_steps__release(struct gpu_steps *gpu)
{
	free(gpu->steps);
	*gpu = (struct gpu_steps){0};
}
