/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Samples and exact calls: REC_SAMPLE, REC_INTERVAL, REC_AROUND and REC_CALLS in, samples by index out, in the order of the recording (of one
 * thread that is the order of time). Part of the job (job.h), which owns it.
 */
#ifndef STEPFLAME_USER_MODEL_SAMPLES_H
#define STEPFLAME_USER_MODEL_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"
#include "user/lib/names.h"
#include "user/model/stacks.h"

/*
 * What a wait was for: enum wait_cause, and what the Python stack and the spans around it tell beyond the kernel's
 * view of it.
 */
#define STEPFLAME_REFINED_CAUSES(X)                                                           \
	X(DATA_WAIT, "data_wait")   /* a DataLoader's iterator, for a batch of its workers */ \
	X(COLLECTIVE, "collective") /* in a span of SPAN_COMM */                              \
	X(GPU_SYNC, "gpu_sync")     /* in a span of SPAN_SYNC */                              \
	X(XLA_WAIT, "xla_wait")     /* in a span of SPAN_AWAIT */

enum sample_cause {
	CAUSE__BEFORE_REFINED = CAUSE__COUNT - 1,
#define X(id, name) CAUSE_##id,
	STEPFLAME_REFINED_CAUSES(X)
#undef X
		CAUSE__END,
};

/* "data_wait"; "" for CAUSE_NONE. */
const char *sample_cause__name(unsigned int cause);

struct sample {
	uint64_t time_ns; /* when the timer ran out; when the wait ended */
	uint64_t weight_ns;
	uint64_t native; /* REC_NAME id of "symbol (library)", 0 not known */
	uint64_t kernel; /* REC_NAME id of the symbol, 0 none */
	uint64_t file;   /* that it was reading, writing or syncing, or a mapped one: REC_NAME id of its path, 0 none */
	uint32_t pid, tid;
	uint32_t thread; /* number of pid and tid, from 1 */
	uint32_t stack;  /* number for stacks__stack; 0: no Python frames */
	uint32_t path;   /* number for stacks__path; 0: no spans */
	uint32_t step;   /* boundaries in the process before it */
	uint32_t waits;  /* in the weight: 1, or more that were short, of which this one was met by chance */
	uint32_t waker_pid, waker_tid; /* whose thread of the job ended the wait; 0: not known */
	int syscall;                   /* number, -1: in none */
	enum sample_kind kind;
	unsigned int cause; /* enum wait_cause or enum sample_cause; CAUSE_NONE of SAMPLE_CPU */
};

/* Calls of a function in exact windows, see struct rec_calls. */
struct calls {
	uint32_t pid;  /* these three are its key */
	uint32_t code; /* number for stacks__code */
	uint32_t path; /* number for stacks__path */
	uint64_t calls, primitive_calls, self_ns, total_ns;
};

/* Where a span was, as it ended: struct rec_around. */
struct around {
	uint64_t name;  /* REC_NAME id */
	uint32_t kind;  /* enum span_kind */
	uint32_t stack; /* number for stacks__stack */
	uint32_t nested;
};

/* A collection of garbage. */
struct gc_pause {
	uint64_t start_ns, duration_ns;
	uint64_t name; /* REC_NAME id: "gc generation 2" */
	uint32_t pid;
	uint32_t step; /* boundaries in the process before its end */
};

struct samples {
	struct array packed; /* see samples.c */
	struct intern threads;
	struct intern symbols;   /* and paths of files */
	struct intern wakers;    /* pid and tid */
	struct array enclosures; /* struct enclosure, see samples.c */
	bool has_rules;          /* some of them have one */
	struct array pauses;     /* struct gc_pause */
	struct array arounds;    /* struct around */
	struct map calls;        /* struct calls */
	struct array loaders;    /* bool by stack: it waits for a DataLoader */
	struct array causes;     /* uint8_t by path: enum sample_cause of what waits in it, or CAUSE_NONE */
};

/* Takes one of the four records, whose size holds its struct. 0, -ENOMEM, or -EINVAL when it makes no sense. */
int samples__add(struct samples *samples, struct stacks *stacks, const struct rec_hdr *record);
/*
 * Where samples__has_rules says that some forwards are ones only if their process makes steps by a rule (struct rec_interval),
 * before samples__refine: drops those of which is_by says that they are none.
 */
bool samples__has_rules(const struct samples *samples);
void samples__choose_rules(struct samples *samples, bool (*is_by)(uint32_t pid, uint32_t rule, void *ctx), void *ctx);
/*
 * After records came, and before samples__get: puts forwards and evaluations into the paths of the samples in them, and finds what stacks
 * and paths tell of causes. 0 or -ENOMEM.
 */
int samples__refine(struct samples *samples, struct stacks *stacks, const struct names *names);

size_t samples__cnt(const struct samples *samples);
/* What samples__get says of its thread, but quicker. */
uint32_t samples__thread_of(const struct samples *samples, size_t index);
struct sample samples__get(const struct samples *samples, size_t index);
/* Threads that have samples, by number, from 1 up to, not with, samples__thread_end. */
size_t samples__thread_end(const struct samples *samples);
void samples__thread(const struct samples *samples, uint32_t thread, uint32_t *pid, uint32_t *tid);
const struct calls *samples__calls(const struct samples *samples, size_t *cnt);
const struct around *samples__arounds(const struct samples *samples, size_t *cnt);
const struct gc_pause *samples__gc_pauses(const struct samples *samples, size_t *cnt);

/* Drops samples, pauses and the numbers of threads; exact calls stay. */
void samples__forget(struct samples *samples);
/* Leaves it empty. */
void samples__free(struct samples *samples);

#endif
