/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Samples and exact calls: takes REC_SAMPLE, REC_INTERVAL, REC_AROUND and REC_CALLS, and returns
 * samples by index, in recording order (for one thread, this is time order). Part of the job
 * (job.h), which owns it.
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
 * What a thread waited for. Extends enum wait_cause by causes that the kernel cannot see, and that
 * the Python stack and the enclosing spans show.
 */
#define STEPFLAME_REFINED_CAUSES(X)                                                                  \
	X(DATA_WAIT, "data_wait")     /* a DataLoader's iterator waits for a batch of its workers */ \
	X(COLLECTIVE, "collective")   /* in a span of SPAN_COMM */                                   \
	X(GPU_SYNC, "gpu_sync")       /* in a span of SPAN_SYNC */                                   \
	X(XLA_WAIT, "xla_wait")       /* in a span of SPAN_AWAIT */                                  \
	X(THREAD_WAIT, "thread_wait") /* for what another thread does: waits.h */                    \
	X(FILE_SYSTEM, "file_system") /* for a server of FUSE or the network that opens, looks up or lists files */

enum sample_cause {
	CAUSE__BEFORE_REFINED = CAUSE__COUNT - 1,
#define X(id, name) CAUSE_##id,
	STEPFLAME_REFINED_CAUSES(X)
#undef X
		CAUSE__END,
};

/* Does it meet a thread wherever that just is? Then no phase and no line is to blame. */
static inline bool sample_cause__is_anywhere(unsigned int cause)
{
	return cause == CAUSE_RUN_QUEUE || cause == CAUSE_PAUSED;
}

/* "data_wait"; "" for CAUSE_NONE. */
const char *sample_cause__name(unsigned int cause);

struct sample {
	uint64_t time_ns; /* expiry of the timer, or end of the wait */
	uint64_t weight_ns;
	uint64_t native; /* REC_NAME id of "symbol (library)"; 0: not known */
	uint64_t kernel; /* REC_NAME id of the symbol; 0: not in the kernel */
	uint64_t file; /* file that the thread read, wrote, synced or had mapped: REC_NAME id of its path; 0: no file */
	uint32_t pid, tid;
	uint32_t thread; /* number of {pid, tid}, from 1 */
	uint32_t stack;  /* number for stacks__stack; 0: no Python frames */
	uint32_t path;   /* number for stacks__path; 0: no spans */
	uint32_t step;   /* number of boundaries in the process before the sample */
	uint32_t waits;  /* 1: the weight is this one wait; more: others, of which this one was sampled */
	/* The thread of the job that ended the wait, or that the cause is of; 0: not known. */
	uint32_t waker_pid, waker_tid;
	uint32_t ran_pid; /* as in struct rec_sample: the process that had the CPU for which the thread waited */
	int syscall;      /* number; -1: not in a system call */
	enum sample_kind kind;
	bool resolved;      /* waits.h has looked at it */
	bool passed;        /* the cause is that of the waker's own waits */
	unsigned int cause; /* enum wait_cause or enum sample_cause; CAUSE_NONE for SAMPLE_CPU */
};

/* Calls of a function in exact windows; see struct rec_calls. */
struct calls {
	uint32_t pid;  /* the key: pid, code, path */
	uint32_t code; /* number for stacks__code */
	uint32_t path; /* number for stacks__path */
	uint64_t calls, primitive_calls, self_ns, total_ns;
};

/* The stack at the end of a span: struct rec_around. */
struct around {
	uint64_t name;  /* REC_NAME id */
	uint32_t kind;  /* enum span_kind */
	uint32_t stack; /* number for stacks__stack */
	uint32_t nested;
};

/* A garbage collection. */
struct gc_pause {
	uint64_t start_ns, duration_ns;
	uint64_t name; /* REC_NAME id: "gc generation 2" */
	uint32_t pid;
	uint32_t step; /* number of boundaries in the process before its end */
};

struct samples {
	struct array packed; /* see samples.c */
	struct intern threads;
	struct intern symbols;   /* also the paths of files */
	struct intern wakers;    /* {pid, tid} */
	struct array enclosures; /* struct enclosure, see samples.c */
	bool has_rules;          /* some enclosures have a rule */
	struct array pauses;     /* struct gc_pause */
	struct array arounds;    /* struct around */
	struct map calls;        /* struct calls */
	struct map awaited;      /* struct awaited_place, see samples.c */
	struct array loaders;    /* bool by stack: whether the stack waits for a DataLoader */
	struct array handovers;  /* uint8_t by stack: see samples__hands_over */
	struct array engines;    /* bool by stack: whether it calls autograd's engine */
	struct array far_files;  /* uint64_t by stack: see samples__far_files; FAR_MANY: more than one */
	struct array causes;     /* uint8_t by path: the enum sample_cause of waits in the path, or CAUSE_NONE */
};

/*
 * Takes one of the five records; the caller has checked its size. 0, -ENOMEM, or -EINVAL for an
 * invalid record.
 */
int samples__add(struct samples *samples, struct stacks *stacks, const struct rec_hdr *record);
/*
 * Call samples__choose_rules before samples__refine if samples__has_rules returns true: some
 * candidate forwards are real only if their process makes steps by a certain rule (struct
 * rec_interval). Drops the candidates that is_by rejects.
 */
bool samples__has_rules(const struct samples *samples);
void samples__choose_rules(struct samples *samples, bool (*is_by)(uint32_t pid, uint32_t rule, void *ctx), void *ctx);
/*
 * Call after the records and before samples__get. Inserts forwards and evaluations into the paths
 * of the samples that they enclose, and derives causes from stacks and paths. 0 or -ENOMEM.
 */
int samples__refine(struct samples *samples, struct stacks *stacks, const struct names *names);

size_t samples__cnt(const struct samples *samples);
/* The thread of a sample; faster than samples__get. */
uint32_t samples__thread_of(const struct samples *samples, size_t index);
struct sample samples__get(const struct samples *samples, size_t index);
/*
 * Whether the innermost function of a stack waits for what another thread hands over. Perhaps: it calls a lock's acquire(),
 * which may be for a lock, too.
 */
enum handover { HANDOVER_NONE, HANDOVER_PERHAPS, HANDOVER_CERTAIN };
enum handover samples__hands_over(const struct samples *samples, uint32_t stack);
/*
 * Whether a wait is for autograd's engine, whose call the innermost function is. The engine runs nodes for a GPU on a thread of its
 * own (one for each device), and parts of operators on threads of OpenMP: what these do on a CPU is the backward.
 */
bool samples__runs_backward(const struct samples *samples, const struct sample *sample);
/* Whether a thread in a path waits for a GPU. CUDA lets it spin, unless it is told otherwise: then its samples are on the CPU. */
bool samples__awaits_gpu(const struct samples *samples, uint32_t path);
/* The file system that the innermost function of a stack asks: REC_NAME id; 0: none, or more than one. */
uint64_t samples__far_files(const struct samples *samples, uint32_t stack);
/* The number of the thread that ended a wait; 0: not known, or without samples. */
uint32_t samples__waker_of(const struct samples *samples, size_t index);
/* Sets the cause of a wait, and whom it is for: the number of a thread, 0: as it is. For waits.h. */
void samples__resolve(struct samples *samples, size_t index, unsigned int cause, uint32_t waker, bool passed);
/* The cause that its process's counters show; it may still be resolved. For waits.h. */
void samples__set_cause(struct samples *samples, size_t index, unsigned int cause);
/* Threads that have samples are numbered from 1 to samples__thread_end - 1. */
size_t samples__thread_end(const struct samples *samples);
void samples__thread(const struct samples *samples, uint32_t thread, uint32_t *pid, uint32_t *tid);
const struct calls *samples__calls(const struct samples *samples, size_t *cnt);
const struct around *samples__arounds(const struct samples *samples, size_t *cnt);
const struct gc_pause *samples__gc_pauses(const struct samples *samples, size_t *cnt);

/* Drops samples, pauses and thread numbers; keeps exact calls. */
void samples__forget(struct samples *samples);
/* Frees all contents and leaves the struct empty. */
void samples__free(struct samples *samples);

/*
 * ---- the samples by thread ----
 *
 * In time order within each thread. Refers to the samples, which
 * must not change meanwhile.
 */

struct by_thread {
	const struct samples *samples;
	uint32_t *indexes; /* of all samples */
	size_t *first;     /* by thread: start of its range in indexes */
};

/* 0 or -ENOMEM. Free with by_thread__release, also after an error. */
int by_thread__new(const struct samples *samples, struct by_thread *by);
void by_thread__release(struct by_thread *by);

/* The number of a thread; 0: the thread has no samples. */
uint32_t by_thread__find(const struct by_thread *by, uint32_t pid, uint32_t tid);
/* The number of samples of a thread; the n-th sample, from 0, and its index. */
size_t by_thread__cnt(const struct by_thread *by, uint32_t thread);
size_t by_thread__index(const struct by_thread *by, uint32_t thread, size_t n);
struct sample by_thread__get(const struct by_thread *by, uint32_t thread, size_t n);
/* How many samples of a thread ended at or before time_ns. O(log). */
size_t by_thread__ended(const struct by_thread *by, uint32_t thread, uint64_t time_ns);

#endif
