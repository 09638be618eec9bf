// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* --step-at NAME: each end of a span of that name is a step boundary. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "include/name_hash.h"
#include "stepflame.skel.h"
#include "user/lib/log.h"
#include "user/lib/utf8.h"
#include "user/session/state.h"

#define CANDIDATES 5

struct candidate {
	uint64_t name, calls, total_ns;
};

/* Session state. */
struct step_at {
	bool seen;                               /* the span was seen in some process */
	struct candidate candidates[CANDIDATES]; /* of processes that have ended */
	size_t candidate_cnt;
};

#define FIX "give the name of an action or a label, as report --all lists them"

/*
 * The id that BPF computes for a Python str with this text: its characters have 1, 2 or 4 bytes
 * each, as many as the widest one needs.
 */
static uint64_t id_of_python_str(const char *text)
{
	const char *end = text + strlen(text);
	uint64_t words[REC_NAME_MAX / 8] = {0}, hash;
	size_t chars = 0, width = 1, bytes;

	for (const char *at = text; at < end; chars++) {
		uint32_t c = utf8__next(&at, end, NULL);

		width = c > 0xffff ? 4 : c > 0xff && width < 2 ? 2 : width;
	}
	bytes = chars * width;
	hash = name_hash__seed(width, bytes);
	for (size_t i = 0; text < end && (i + 1) * width <= sizeof(words); i++) {
		uint32_t c = utf8__next(&text, end, NULL);

		memcpy((char *)words + i * width, &c, width); /* little-endian */
	}
	for (size_t i = 0; i * 8 < bytes && i < sizeof(words) / sizeof(*words); i++)
		hash = name_hash__add(hash, words[i]);
	return name_hash__end(hash);
}

static int prepare(struct session *s)
{
	s->keeps_names = s->keeps_names || s->options.step_at;
	return 0;
}

static void configure(const struct session *s, struct stepflame_bpf *skel, enum attach_backend backend)
{
	uint64_t *names = (uint64_t *)skel->rodata->step_at;

	if (!s || !s->options.step_at)
		return;
	names[0] = session__name_id(s->options.step_at);
	names[1] = id_of_python_str(s->options.step_at);
}

static void observe(struct session *s, struct target *t, const struct proc *proc)
{
	struct step_at *own = session__state(s, SOURCE_STEP_AT);

	own->seen = own->seen || proc->steps.rule == STEP_USER;
}

static bool is_candidate(uint32_t kind)
{
	return kind == SPAN_ACTION || kind == SPAN_LABEL || kind == SPAN_USER || kind == SPAN_BACKWARD ||
	       kind == SPAN_FORWARD || kind == SPAN_VALIDATION || kind == SPAN_JIT;
}

static bool candidate_comes_before(const struct candidate *a, const struct candidate *b)
{
	return a->calls != b->calls ? a->calls > b->calls : a->total_ns > b->total_ns;
}

/* Inserts a candidate; keeps the first CANDIDATES of them, each name once. Returns their number. */
static size_t add_candidate(struct candidate *all, size_t cnt, const struct candidate *new)
{
	size_t i;

	for (i = 0; i < cnt && all[i].name != new->name; i++)
		;
	if (i < cnt && !candidate_comes_before(new, &all[i]))
		return cnt;
	if (i == cnt && cnt < CANDIDATES)
		cnt++;
	else if (i == cnt && !candidate_comes_before(new, &all[--i]))
		return cnt;
	for (; i && candidate_comes_before(new, &all[i - 1]); i--)
		all[i] = all[i - 1];
	all[i] = *new;
	return cnt;
}

static void on_ended_row(struct session *s, const struct rec_agg *row)
{
	const struct candidate new = {row->key.name, row->val.calls, row->val.total_ns};
	struct step_at *own = session__state(s, SOURCE_STEP_AT);

	if (is_candidate(row->key.kind))
		own->candidate_cnt = add_candidate(own->candidates, own->candidate_cnt, &new);
}

/*
 * Finds the names with the most calls in one row; among equals, those with the most time. Returns
 * how many.
 */
static size_t find_candidates(const struct session *s, struct candidate *all)
{
	const struct step_at *own = session__state(s, SOURCE_STEP_AT);
	int fd = bpf_map__fd(s->skel->maps.aggs);
	struct agg_key key, *prev = NULL;
	size_t cnt = own->candidate_cnt;
	struct agg_val val;

	memcpy(all, own->candidates, sizeof(own->candidates));

	for (; !bpf_map_get_next_key(fd, prev, &key); prev = &key) {
		if (!is_candidate(key.kind) || bpf_map_lookup_elem(fd, &key, &val))
			continue;
		cnt = add_candidate(all, cnt, &(struct candidate){key.name, val.calls, val.total_ns});
	}
	return cnt;
}

/* Prints "seen: a; b; c", or why there are no candidates. */
static void print_candidates(const struct session *s, char *out, size_t room)
{
	struct candidate all[CANDIDATES];
	size_t cnt = find_candidates(s, all), used;

	used = snprintf(out, room, "%s",
			cnt                ? "seen: "
			: s->options.steps ? "nor was any other recorded, since --steps waits for it: leave that out"
					   : "nor did any other");
	for (size_t i = 0; i < cnt && used < room; i++)
		used += snprintf(out + used, room - used, "%s%s", i ? "; " : "",
				 names__find(&s->names, all[i].name) ?: "(name lost)");
}

/* If the span was not seen, reports which ones were. */
static int finish(struct session *s)
{
	const struct step_at *own = session__state(s, SOURCE_STEP_AT);
	char seen[320];

	if (!s->options.step_at || own->seen)
		return 0;
	print_candidates(s, seen, sizeof(seen));
	session__note(s, "no step was found: no span named '%.64s' (--step-at) ended; %s; " FIX, s->options.step_at,
		      seen);
	log__error(FIX, "no step was found: no span named '%s' (--step-at) ended; %s", s->options.step_at, seen);
	return -ENOENT;
}

const struct source source_step_at = {
	.session_bytes = sizeof(struct step_at),
	.prepare = prepare,
	.configure = configure,
	.observe = observe,
	.on_ended_row = on_ended_row,
	.finish = finish,
};
