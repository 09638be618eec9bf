/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The double of libcupti: what its two halves share, callbacks (cupti_callback.c) and records (cupti_activity.c). */
#ifndef STEPFLAME_TESTS_GPU_CUPTI_DOUBLE_H
#define STEPFLAME_TESTS_GPU_CUPTI_DOUBLE_H

#include <cupti.h>

#include "cupti_records.h" /* record_kernel and so on: the newest struct of each that the header has */
#include "tests/gpu/core.h"

/* How it behaves: GPU_DOUBLE_CUPTI, or gpu_double_cupti(), "late_ms=20,shuffle=1,fail_cuptiSubscribe=35". */
#define CUPTI_SETTINGS(X)                                                                                \
	X(late_ms, 0)        /* records are complete so long after what they tell of */                  \
	X(shuffle, 0)        /* 1: they come in any order */                                             \
	X(buffer_records, 0) /* a buffer is full with so many; 0: with what fits */                      \
	X(per_thread, 1)     /* 0: threads share buffers, as with CUPTI before 13.0 */                   \
	X(drop, 0)           /* every so manyth is dropped */                                            \
	X(no_time, 0)        /* every so manyth of the GPU has no times */                               \
	X(stale, 0)          /* every so manyth of the GPU has times of an hour before */                \
	X(unknown, 0)        /* before every so manyth comes one of a kind that no header knows */       \
	X(busy, 0)           /* 1: another tool is subscribed, alone; 2: one that lets others be, too */ \
	X(several, 0)        /* 1: the driver lets several subscribe */                                  \
	X(version, CUPTI_API_VERSION)                                                                    \
	X(offset_ns, 1000000000000000000)                                                                \
	X(drift_ppm, 20)

/* What headers before 13.2 do not declare. */
#if CUPTI_API_VERSION < 130200
typedef void CUpti_ActivityConfig;
typedef void CUpti_BufferCallbackRequestInfo;
typedef void CUpti_BufferCallbackCompleteInfo;
typedef void (*CUpti_BuffersCallbackRequestFunc_v2)(uint8_t **, size_t *, size_t *, CUpti_BufferCallbackRequestInfo *);
typedef void (*CUpti_BuffersCallbackCompleteFunc_v2)(uint8_t *, size_t, size_t, CUpti_BufferCallbackCompleteInfo *);
#endif

struct cupti_settings {
#define X(name, value) int64_t name;
	CUPTI_SETTINGS(X)
#undef X
};

struct cupti {
	const struct core *core;
	struct cupti_settings settings;
	uint64_t base_ns; /* CUPTI's clock and CLOCK_MONOTONIC are offset_ns apart here */
};

extern struct cupti cupti;

uint64_t cupti__time(uint64_t monotonic_ns);
CUptiResult cupti__failing(const char *function); /* what it shall fail with; CUPTI_SUCCESS: it shall not */
CUptiResult cupti__tell(const char *function, int64_t argument, uint64_t start_ns, CUptiResult result);

/* A function of CUPTI, that says in the log that it was called, with one argument. */
#define CUPTI(name_, arguments, argument, body)                         \
	CUptiResult name_ arguments                                     \
	{                                                               \
		uint64_t start_ns = cupti.core->now();                  \
		CUptiResult result = cupti__failing(#name_);            \
		if (!result)                                            \
			result = (body);                                \
		return cupti__tell(#name_, argument, start_ns, result); \
	}

/* cupti_callback.c */
/* Whether it is the subscriber, beside others; what is of one subscriber alone says an error in the log. */
bool callback__beside(CUpti_SubscriberHandle subscriber);
CUptiResult callback__alone(const char *function);
void callback__enter(struct core_call *call);
void callback__leave(struct core_call *call);
void callback__reset(void);

/* A record, which is complete when what it tells of is over. */
struct item {
	struct item *next;
	uint64_t ready_ns;
	uint32_t size;
	union {
		CUpti_Activity any;
		record_kernel kernel;
		record_memcpy copy;
		record_memcpy_peer peer;
		record_memset set;
		record_sync sync;
		record_overhead overhead;
		record_graph graph;
		record_device device;
		CUpti_ActivityAPI api;
		CUpti_ActivityExternalCorrelation external;
		uint8_t bytes[1];
	};
};

/* cupti_buffers.c */
struct item *item__new(CUpti_ActivityKind kind);
/* Takes it over; time_ns: the end of what it tells of. Whether it will come. */
bool item__add(struct item *item, uint32_t size, uint64_t time_ns);
CUptiResult buffers__register(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete);
CUptiResult buffers__register_beside(CUpti_BuffersCallbackRequestFunc_v2 request,
				     CUpti_BuffersCallbackCompleteFunc_v2 complete);
CUptiResult buffers__flush(uint32_t flag);
void buffers__set_period(uint32_t ms);
void buffers__start(void); /* the thread that gives back full ones */
uint64_t buffers__dropped(void);
uint32_t buffers__record_size(CUpti_ActivityKind kind); /* 0: it is not known */
void buffers__reset(bool forked);

/* cupti_activity.c */
bool activity__enabled(CUpti_ActivityKind kind);
void activity__call(struct core_call *call); /* that ends: makes its record */
bool activity__op(const struct core_op *op);
bool activity__sync(const struct core_sync *sync);
void activity__reset(bool forked);

/* What of it is exported for tests. */
void gpu_double_cupti(const char *settings);

#endif
