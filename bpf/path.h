/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hashes the open spans of a thread to a path id, and emits each path the first time. */
#ifndef STEPFLAME_BPF_PATH_H
#define STEPFLAME_BPF_PATH_H

#include "bpf/name.h"

#define PATHS_MAX 32768

/* Paths already emitted. The value counts the requests for REC_AROUND (bpf/around.h), from 1. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PATHS_MAX);
	__type(key, u64);
	__type(value, u8);
} paths __weak SEC(".maps");

/* Scratch memory of a path. */
struct path_scratch {
	struct rec_path rec;
	struct path_span spans[SPAN_DEPTH];
	u64 by_group; /* set by its owner: operators of different groups make different paths */
	u64 until_ns; /* set by its owner: without spans that began later; 0: all */
};

struct path_walk {
	struct path_scratch *scratch;
	struct thread *t;
	u64 hash;
	u32 cnt;
	u32 pad;
};

static long path__step(u32 i, struct path_walk *walk)
{
	const struct span *s = span__at(walk->t, i);
	struct path_span *slot = &walk->scratch->spans[BOUND_INDEX(walk->cnt, SPAN_DEPTH)];

	if (walk->scratch->until_ns && s->start_ns > walk->scratch->until_ns)
		return 1;
	if (s->kind == SPAN_NONE || !s->name) /* a range without a name */
		return 0;
	slot->name = s->name;
	slot->kind = s->kind;
	slot->group = walk->scratch->by_group ? s->op.group : 0;
	walk->hash = name_hash__add(name_hash__add(walk->hash, s->name), (u64)slot->group << 32 | s->kind);
	walk->cnt++;
	return 0;
}

/*
 * The id of the spans that are open on a thread, which BPF emits the first time; 0: none, or the
 * ring buffer is full (counted).
 */
__weak __noinline u64 path__of(struct path_scratch *scratch, struct thread *t)
{
	struct path_walk walk = {.scratch = scratch, .t = t, .hash = name_hash__seed(0, 1)};
	struct rec_path *rec;
	u32 size;
	u8 one = 1;
	u64 id;

	if (!scratch || !t || !t->depth)
		return 0;
	bpf_loop(t->depth < SPAN_DEPTH ? t->depth : SPAN_DEPTH, path__step, &walk, 0);
	if (!walk.cnt || walk.cnt > SPAN_DEPTH)
		return 0;
	id = name_hash__end(walk.hash);
	if (bpf_map_lookup_elem(&paths, &id))
		return id;
	size = sizeof(*rec) + walk.cnt * sizeof(struct path_span);
	rec = &scratch->rec;
	rec->hdr.type = REC_PATH;
	rec->hdr.flags = 0;
	rec->hdr.size = size;
	rec->id = id;
	rec->span_cnt = walk.cnt;
	rec->pad = 0;
	if (size > sizeof(*rec) + sizeof(scratch->spans) || bpf_ringbuf_output(&ring, rec, size, BPF_RB_NO_WAKEUP)) {
		count(CNT_RING_FULL);
		return 0;
	}
	bpf_map_update_elem(&paths, &id, &one, BPF_ANY);
	return id;
}

#endif
