/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The insides of the injection library. It lives in a process that is not ours: it prints nothing, ends nothing, and
 * while no window is wanted its one thread sleeps and nothing of CUPTI is in use.
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

/* X(function without its prefix, needed): what is asked of CUPTI. */
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
	void *library; /* NULL: not opened. Never closed: its threads may run in it */
	uint32_t version;
#define X(name, needed) __typeof__(&cupti##name) name;
	INJECT_CUPTI(X)
#undef X
};

/* cupti.c: opens the one that is mapped, or else the one that goes with this program's CUDA. 0 or -errno. */
int cupti__open(struct cupti *cupti, const char *path);
/* Is the layout of this version's records known? */
bool cupti__known(uint32_t version);

/* Writer's side of the memory that is shared; one thread at a time. */
struct ring {
	struct gpu_ring_control *control;
	char *bytes;
	uint32_t size; /* a power of two */
};

/* ring.c: makes the memory. 0 or -errno. */
int ring__make(struct ring *ring);
/* Appends a record of `size` bytes, a multiple of 8, header first. false: no room, which is counted. */
bool ring__write(struct ring *ring, const void *record, size_t size);
/* What is unread is nobody's any more. */
void ring__restart(struct ring *ring);

#define NAMES_MAX 16384 /* a power of two; a quarter stays empty */

/* Texts that were sent in this window. */
struct sent_names {
	uint32_t cnt;
	struct {
		uint64_t hash;
		uint32_t id; /* 0: empty */
	} slots[NAMES_MAX];
};

enum call_verdict { CALL_NEW, CALL_WANTED, CALL_UNWANTED };

#define CALLS_MAX 2048 /* functions of a table of CUPTI's: those above are not told of */

struct decoder {
	struct ring *ring;
	const struct cupti *cupti;
	struct sent_names names;
	uint8_t calls[2][CALLS_MAX]; /* enum call_verdict, of the runtime's and the driver's functions */
	bool graphs;                 /* one was seen, in this window or before */
};

/* decode.c */
void decoder__restart(struct decoder *d);
/* Writes what the ring is to be told of one record that has so many bytes, or up to so many. */
void decoder__record(struct decoder *d, const CUpti_Activity *record, size_t bytes);

/* window.c: all by one thread at a time. */
struct window {
	struct ring *ring;
	struct cupti cupti;
	const char *cupti_path; /* STEPFLAME_CUPTI */
	bool open;
	uint32_t kinds; /* 1 << enum gpu_activity */
	CUpti_SubscriberHandle subscriber;
	CUpti_ActivityThreadIdType thread_ids; /* as they were */
};

/* What was `wanted`, which is odd. Sets the state of the ring. */
void window__begin(struct window *w, uint32_t wanted);
/* From time to time. */
void window__tick(struct window *w);
/* When all is in the ring, an even `wanted` is seen; then, if it may leave, CUPTI is taken out of the process. */
void window__end(struct window *w, uint32_t wanted, bool may_leave);
/* By another thread: an end that waits for a call of the program's shall wait no longer. */
void window__hurry(void);
/* In a forked child: nothing happens from now on. */
void window__forked(void);

#endif
