// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The table of formats, and how they name things. */
#include "export.h"

#include <stdlib.h>
#include <string.h>

#define STEP_PREFIX "ProfilerStep#"

static const struct export_ops *const formats[] = {
	&export_chrome,
	&export_perfetto,
};

const struct export_ops *export__find(const char *name)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
		if (!strcmp(formats[i]->name, name))
			return formats[i];
	return NULL;
}

struct rec_target export__target(const struct job *job, uint32_t pid)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (targets[i].pid == pid)
			return targets[i];
	return (struct rec_target){.pid = pid, .rank = -1};
}

char *export__track_name(const struct timeline_track *track)
{
	char *name;

	return asprintf(&name, "thread %u%s", track->tid, track->lane ? ": steps and overlaps" : "") < 0 ? NULL : name;
}

bool export__is_op(enum span_kind kind)
{
	return kind == SPAN_OP || kind == SPAN_EVALUATE || kind == SPAN_NODE;
}

const char *export__category(enum span_kind kind)
{
	return export__is_op(kind) ? "cpu_op" : "user_annotation";
}

static char *name_text(struct job *job, const struct timeline_name *name)
{
	const char *text = name->kind == SPAN_STEP ? STEP_PREFIX : job__name_or_lost(job, name->id);
	char *prefixed;

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
