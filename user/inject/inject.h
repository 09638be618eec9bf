/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Internals of the injection library. It lives in a process that is not ours: it prints nothing and
 * never ends the process. While no window is wanted, its one thread sleeps, and it uses nothing of
 * CUPTI.
 */
#ifndef STEPFLAME_USER_INJECT_INJECT_H
#define STEPFLAME_USER_INJECT_INJECT_H

#include <cupti.h>
#if __has_include(<cupti_activity_deprecated.h>)
#include <cupti_activity_deprecated.h>
#endif
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "include/gpu.h"
#include "include/gpu_ring.h"

/*
 * CUpti_SubscriberParams of CUPTI 13.2 and later; the one of 13.0 and 13.1 ends before `several`, and
 * headers before that have none.
 */
struct cupti_params {
	size_t size; /* of what is set */
	const char *name;
	char *holder; /* out: who holds CUPTI */
	size_t holder_bytes;
	uint8_t several; /* 1: beside other subscribers */
	uint8_t pad[7];
};

#define CUPTI_HOLDER_BYTES    64 /* CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN */
#define CUPTI_PARAMS_ALONE    offsetof(struct cupti_params, several)

#define CUPTI_SEVERAL_VERSION 130300
#define CUPTI_ATTR_THREAD_IDS 21 /* CUPTI_ACTIVITY_ATTR_THREAD_ID_TYPE, since 13.3 */

/* What is needed to share CUPTI with others, since 13.3: X(name, arguments). */
#define INJECT_CUPTI_SHARED(X)                                                                                     \
	X(GetTimestamp_v2, (CUpti_SubscriberHandle, uint64_t *))                                                   \
	X(ActivityRegisterCallbacks_v2, (CUpti_SubscriberHandle, void (*)(uint8_t **, size_t *, size_t *, void *), \
					 void (*)(uint8_t *, size_t, size_t, void *)))                             \
	X(ActivityEnable_v2, (CUpti_SubscriberHandle, CUpti_ActivityKind, void *))                                 \
	X(ActivityDisable_v2, (CUpti_SubscriberHandle, CUpti_ActivityKind, void *))                                \
	X(ActivityGetNextRecord_v2, (CUpti_SubscriberHandle, uint8_t *, size_t, CUpti_Activity **))                \
	X(ActivityGetNumDroppedRecords_v2, (CUpti_SubscriberHandle, CUcontext, uint32_t, size_t *))                \
	X(ActivitySetAttribute_v2, (CUpti_SubscriberHandle, CUpti_ActivityAttribute, size_t *, void *))

/* The functions that the library uses of CUPTI: X(name without its prefix, needed). */
#define INJECT_CUPTI(X)                    \
	X(GetVersion, 1)                   \
	X(GetTimestamp, 1)                 \
	X(Subscribe, 1)                    \
	X(Unsubscribe, 1)                  \
	X(ActivityRegisterCallbacks, 1)    \
	X(ActivityEnable, 1)               \
	X(ActivityDisable, 1)              \
	X(ActivityFlushAll, 1)             \
	X(ActivityGetNextRecord, 1)        \
	X(ActivityGetNumDroppedRecords, 1) \
	X(GetCallbackName, 0)              \
	X(EnableDomain, 0)                 \
	X(Finalize, 0)                     \
	X(ActivityFlushPeriod, 0)          \
	X(GetThreadIdType, 0)              \
	X(SetThreadIdType, 0)

struct cupti {
	void *library; /* NULL: not opened. Never closed: CUPTI's threads may run in it */
	uint32_t version;
#define X(name, needed) __typeof__(&cupti##name) name;
	INJECT_CUPTI(X)
#undef X
#define X(name, arguments) CUptiResult(*name) arguments;
	X(Subscribe_v2, (CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *, struct cupti_params *))
	INJECT_CUPTI_SHARED(X)
#undef X
	bool may_share;                    /* it has all of these */
	CUpti_SubscriberHandle subscriber; /* while it is subscribed beside others; else NULL */
};

/*
 * cupti.c: opens the libcupti that is mapped, else the one that belongs to this program's CUDA. 0
 * or -errno.
 */
int cupti__open(struct cupti *cupti, const char *path);
/*
 * Subscribes, beside others where this CUPTI and its driver let it, else alone. holder: who is in the
 * way, where CUPTI says it; else "".
 */
CUptiResult cupti__subscribe(struct cupti *cupti, CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc on_call,
			     void *ctx, char holder[CUPTI_HOLDER_BYTES]);

/* The writer's side of the shared memory; one thread at a time. */
struct ring {
	struct gpu_ring_control *control;
	char *bytes;
	uint32_t size; /* a power of two */
};

/* ring.c: creates the shared memory. 0 or -errno. */
int ring__make(struct ring *ring);
/*
 * Appends a record of `size` bytes, a multiple of 8, header first. Returns false, and counts the
 * record, when there is no room.
 */
bool ring__write(struct ring *ring, const void *record, size_t size);
/* Discards the unread records. */
void ring__restart(struct ring *ring);

/*
 * A thread that calls CUDA has one or two of them, and more while the GPU is behind. They are small, for
 * CUPTI keeps one in which anything is not complete, and a killed program takes it along.
 */
#define BUFFERS_MAX  2048
#define BUFFER_BYTES (64u << 10)

struct buffer {
	uint8_t *memory;   /* NULL: it has none yet. Aligned to a page */
	uint64_t asked_ns; /* when CUPTI asked for it; 0: CUPTI does not have it */
	uint32_t window;
	uint32_t taken;
};

/* buffers.c: any thread may call these at any time. */
void buffers__begin(void); /* of a window */
/* For CUPTI. NULL: all are taken, or there is no memory. */
struct buffer *buffers__take(uint64_t now_ns);
/* NULL: it is none of them. */
struct buffer *buffers__find(const uint8_t *memory);
/* Whether CUPTI asked for it in this window. */
bool buffer__is_of_window(const struct buffer *b);
void buffers__release(struct buffer *b);
/*
 * How many CUPTI has of those that it asked for in this window. Returns when it asked for the first of
 * them, UINT64_MAX: it has none.
 */
uint64_t buffers__held(uint32_t *cnt);
/* Of those that nobody has. */
void buffers__give_memory_back(void);

#define NAMES_MAX 16384 /* a power of two; a quarter stays empty */

/* The texts that were sent in this window. */
struct sent_names {
	uint32_t cnt;
	struct {
		uint64_t hash;
		uint32_t id; /* 0: empty */
	} slots[NAMES_MAX];
};

enum call_verdict { CALL_NEW, CALL_WANTED, CALL_UNWANTED };

#define CALLS_MAX 2048 /* functions of a CUPTI table to decode; higher ids are ignored */

struct decoder {
	struct ring *ring;
	const struct cupti *cupti;
	struct sent_names names;
	uint8_t calls[2][CALLS_MAX]; /* enum call_verdict of each function, of the runtime and of the driver */
	bool graphs;                 /* a graph was seen, in this window or before */
};

/* decode.c */
void decoder__restart(struct decoder *d);
/*
 * Writes one record of `bytes` bytes, or at most that many, to the ring, as far as the ring takes
 * its kind.
 */
void decoder__record(struct decoder *d, const CUpti_Activity *record, size_t bytes);

/* window.c: one thread at a time calls all of these. */
struct window {
	struct ring *ring;
	struct cupti cupti;
	const char *cupti_path; /* STEPFLAME_CUPTI */
	bool open;
	uint32_t kinds; /* 1 << enum gpu_activity */
	CUpti_SubscriberHandle subscriber;
	CUpti_ActivityThreadIdType thread_ids; /* the kind before the window */
};

/* Begins the window of `wanted`, which is odd. Sets the state of the ring. */
void window__begin(struct window *w, uint32_t wanted);
/* Call this periodically. */
void window__tick(struct window *w);
/*
 * Ends the window: when all records are in the ring, the ring shows that the even `wanted` was
 * seen. Then, if may_leave, takes CUPTI out of the process.
 */
void window__end(struct window *w, uint32_t wanted, bool may_leave);
/* Called by another thread: a window__end that waits for a call of the program stops waiting. */
void window__hurry(void);
/* Called in a forked child: from now on nothing happens there. */
void window__forked(void);

#endif
