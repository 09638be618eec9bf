// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The table of formats, and the names that formats share. */
#include "user/export/export.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "user/analysis/gpu/gpu_ops.h"
#include "user/lib/json.h"
#include "user/model/stacks.h"

#define FORMATS(X) X(chrome) X(perfetto) X(tensorboard) X(speedscope) X(pprof) X(folded) X(pstats) X(arrow)

static const struct export_ops *const formats[] = {
#define X(name) &export_##name,
	FORMATS(X)
#undef X
};

const char *export__list(void)
{
#define X(name) ", " #name
	return &FORMATS(X)[strlen(", ")];
#undef X
}

const struct export_ops *export__find(const char *name)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
		if (!strcmp(formats[i]->name, name))
			return formats[i];
	return NULL;
}

char *export__track_name(const struct timeline_track *track)
{
	const char *more = !track->lane ? "" : track->gpu ? ": overlaps" : ": steps and overlaps";
	char *name;

	if (track->gpu && track->tid == TIMELINE_WINDOWS)
		return strdup("windows of CUPTI");
	return asprintf(&name, "%s %u%s", track->gpu ? "stream" : "thread", track->tid, more) < 0 ? NULL : name;
}

char *export__json_text(const char *text)
{
	json_t *string = json_string(text);
	char *json = string ? json__text(string, JSON_ENCODE_ANY) : NULL;

	json_decref(string);
	return json;
}

bool export__is_op(enum span_kind kind)
{
	return kind == SPAN_OP || kind == SPAN_EVALUATE || kind == SPAN_NODE;
}

const char *export_category__name(enum export_category category)
{
	static const char *const names[] = {
#define X(id, name) [EXPORT_##id] = name,
		EXPORT_CATEGORIES(X)
#undef X
	};

	return names[category];
}

enum export_category export__category(const struct timeline_name *name, const char *text)
{
	switch (name->activity) {
	case GPU_ACTIVITY_KERNEL:
	case GPU_ACTIVITY_GRAPH:
		return EXPORT_KERNEL;
	case GPU_ACTIVITY_COPY:
		return EXPORT_COPY;
	case GPU_ACTIVITY_SET:
		return EXPORT_SET;
	case GPU_ACTIVITY_CALL: /* "cuLaunchKernel" and "cudaLaunchKernel" */
		return strncmp(text, "cu", 2) || !strncmp(text, "cuda", 4) ? EXPORT_RUNTIME : EXPORT_DRIVER;
	default:
		if (name->kind == SPAN_NONE && !name->api)
			return EXPORT_WINDOW;
		return export__is_op(name->kind) ? EXPORT_OP : EXPORT_ANNOTATION;
	}
}

static char *name_text(struct job *job, const struct timeline_name *name)
{
	const char *text;
	char *prefixed;

	if (name->kind == SPAN_NONE && !name->activity && !name->api)
		return strdup("CUPTI");
	if (name->kind == SPAN_NONE)
		return name->api ? strdup(gpu_api__name(name->api))
				 : gpu_work__text(job, name->activity, name->direction, name->id);
	text = name->kind == SPAN_STEP ? EXPORT_STEP_PREFIX : job__name_or_lost(job, name->id);
	if (!text)
		return NULL;
	if (name->kind == SPAN_EVALUATE)
		return asprintf(&prefixed, OP_EVALUATE_PREFIX "%s", text) < 0 ? NULL : prefixed;
	return name->kind == SPAN_OP ? strndup(text, strcspn(text, ".")) : strdup(text);
}

char **export__names(struct job *job, const struct timeline *timeline)
{
	size_t cnt;
	const struct timeline_name *names = timeline__names(timeline, &cnt);
	char **texts = calloc(cnt + 1, sizeof(*texts));

	for (size_t i = 0; i < cnt && texts; i++) {
		texts[i] = name_text(job, &names[i]);
		if (!texts[i]) {
			export__free_texts(texts, cnt);
			return NULL;
		}
	}
	return texts;
}

void export__free_texts(char **texts, size_t cnt)
{
	for (size_t i = 0; texts && i < cnt; i++)
		free(texts[i]);
	free(texts);
}

/* ---- tracks ---- */

const struct track *export__tracks(const struct export_options *options, size_t *cnt)
{
	*cnt = 0;
	return options->tracks ? tracks__all(options->tracks, cnt) : NULL;
}

bool export__has_track(const struct export_options *options, const struct track *track)
{
	return !options->pid || track->pid == options->pid;
}

bool export__steps_of(const struct export_options *options, uint32_t pid)
{
	size_t cnt;
	const struct track *tracks = export__tracks(options, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (tracks[i].pid == pid && tracks[i].kind == TRACK_STEPS)
			return true;
	return false;
}

bool export__is_in_timeline(const struct timeline *timeline, uint32_t pid)
{
	size_t cnt;
	const struct timeline_track *tracks = timeline__tracks(timeline, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (tracks[i].pid == pid)
			return true;
	return false;
}

const char *export__track_category(enum track_kind kind)
{
	static const char *const names[] = {
		[TRACK_STEPS] = "step",        [TRACK_GC] = "gc",         [TRACK_LOADER] = "dataloader",
		[TRACK_WORKER] = "dataloader", [TRACK_WAITS] = "wait",    [TRACK_SAMPLES] = "cpu_sample",
		[TRACK_MEMORY] = "memory",     [TRACK_DEVICE] = "memory",
	};

	return kind >= TRACK_CURVES + CURVE_GPU_BUSY ? "gpu_usage" : kind >= TRACK_CURVES ? "resources" : names[kind];
}

char *export__tensorboard_path(const struct job *job, size_t target, const char *folder)
{
	const struct rec_host *host = job__host(job);
	const char *name = job__target_host(job, target) ?: host->hostname;
	uint64_t time_ns = job__window(job)->end_ns - host->monotonic_ns + host->realtime_ns;
	char worker[sizeof(host->hostname)];
	size_t cnt, length;
	const struct rec_target *targets = job__targets(job, &cnt);
	char *path;

	snprintf(worker, sizeof(worker), "%s", *name ? name : "host");
	/* The plugin ends the worker's name at a dot with digits behind it. */
	for (length = 0; worker[length]; length++)
		if (!isalnum((unsigned char)worker[length]) && !strchr("-_", worker[length]))
			worker[length] = '_';
	if (asprintf(&path, "%s/%s_%u.%" PRIu64 ".pt.trace.json.gz", folder, worker, REC_PID(targets[target].pid),
		     time_ns) < 0)
		return NULL;
	return path;
}

/* ---- samples ---- */

/*
 * Returns, by path number, whether the options choose the samples of the path. malloc'ed; NULL: no
 * memory.
 */
static bool *chosen_paths(struct job *job, const char *action)
{
	const struct stacks *stacks = job__stacks(job);
	bool *chosen = calloc(stacks__path_end(stacks), sizeof(*chosen));

	for (size_t i = 0; chosen && i < stacks__path_end(stacks); i++) {
		struct path path = stacks__path(stacks, i);

		chosen[i] = !action;
		for (uint32_t s = 0; s < path.cnt && !chosen[i]; s++) {
			const char *name = job__name(job, path.spans[s].name);

			chosen[i] = name && !strcmp(name, action);
		}
	}
	return chosen;
}

static bool is_of_process(const struct job *job, const struct export_options *options, uint32_t pid)
{
	const struct rec_target *target;

	if (!options->workers)
		return !options->pid || pid == options->pid;
	target = job__target(job, pid);
	return target && target->role == ROLE_WORKER && target->parent_pid == options->pid;
}

int export__each_sample(struct job *job, const struct export_options *options,
			int (*fn)(const struct sample *sample, void *ctx), void *ctx)
{
	const struct samples *samples = job__samples(job);
	bool *paths = samples ? chosen_paths(job, options->action) : NULL;
	int err = paths ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < samples__cnt(samples); i++) {
		struct sample sample = samples__get(samples, i);

		if (paths[sample.path] && is_of_process(job, options, sample.pid) &&
		    (!options->cpu || sample.kind == SAMPLE_CPU) &&
		    (!options->main_threads || sample.tid == sample.pid))
			err = fn(&sample, ctx);
	}
	free(paths);
	return err;
}

int export__each_calls(struct job *job, const struct export_options *options,
		       int (*fn)(const struct calls *calls, void *ctx), void *ctx)
{
	const struct samples *samples = job__samples(job);
	bool *paths = samples ? chosen_paths(job, options->action) : NULL;
	size_t cnt = 0;
	const struct calls *calls = paths ? samples__calls(samples, &cnt) : NULL;
	int err = paths ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < cnt; i++)
		if (paths[calls[i].path] && (!options->pid || calls[i].pid == options->pid))
			err = fn(&calls[i], ctx);
	free(paths);
	return err;
}

/* ---- Streams that are compressed as they are written ---- */

static ssize_t write_gzip(void *cookie, const char *data, size_t bytes)
{
	return gzwrite(cookie, data, bytes);
}

static int close_gzip(void *cookie)
{
	return gzclose(cookie) == Z_OK ? 0 : -1;
}

FILE *export__open_gzip(int fd)
{
	gzFile gzip;
	FILE *out;

	errno = ENOMEM;
	gzip = gzdopen(fd, "wb");
	if (!gzip) {
		close(fd);
		return NULL;
	}
	out = fopencookie(gzip, "wb", (cookie_io_functions_t){.write = write_gzip, .close = close_gzip});
	if (!out)
		gzclose(gzip);
	return out;
}
