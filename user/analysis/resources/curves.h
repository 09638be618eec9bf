/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What processes, their machine and its GPUs used over time, as points of curves. In: REC_RESOURCES,
 * REC_MACHINE and REC_GPU_USAGE, looks that are a second apart. A rate is known between two looks: its
 * point stands at the first of them, and holds until the next point. What was read at a look (memory,
 * all of a GPU) has its point there.
 */
#ifndef STEPFLAME_USER_ANALYSIS_RESOURCES_CURVES_H
#define STEPFLAME_USER_ANALYSIS_RESOURCES_CURVES_H

#include "user/analysis/steps/steps.h"
#include "user/lib/array.h"
#include "user/model/job.h"

/* id, what its values are, their unit */
#define CURVES(X)                                                            \
	/* of a process */                                                   \
	X(CPU, "CPU, % of one processor", "%")                               \
	X(MEMORY, "resident memory, bytes", "bytes")                         \
	X(SWAP, "in swap, bytes", "bytes")                                   \
	X(READ, "read from disks, bytes/s", "bytes/s")                       \
	X(WRITTEN, "written to disks, bytes/s", "bytes/s")                   \
	X(RECEIVED, "received by its network namespace, bytes/s", "bytes/s") \
	X(SENT, "sent by its network namespace, bytes/s", "bytes/s")         \
	/* of the machine */                                                 \
	X(MACHINE_CPU, "machine: CPU, % of all processors", "%")             \
	X(MACHINE_MEMORY, "machine: memory, %", "%")                         \
	X(MACHINE_SWAP, "machine: swap, %", "%")                             \
	/* of a GPU of the machine, whoever uses it */                       \
	X(GPU_BUSY, "GPU %u: busy percent, by NVML", "%")                    \
	X(GPU_MEMORY, "GPU %u: bytes used, by NVML", "bytes")                \
	X(GPU_POWER, "GPU %u: power in watts, by NVML", "W")                 \
	X(GPU_TEMPERATURE, "GPU %u: temperature in degrees Celsius, by NVML", "degC")

enum curve_kind {
#define X(id, title, unit) CURVE_##id,
	CURVES(X)
#undef X
		CURVE__COUNT,
};

const char *curve__title(enum curve_kind kind); /* with %u for the number of a GPU */
const char *curve__unit(enum curve_kind kind);

struct curve_point {
	enum curve_kind kind;
	uint32_t pid;    /* 0: the machine, or a GPU */
	uint32_t device; /* number of a GPU; else 0 */
	uint64_t time_ns;
	double value; /* never below 0 */
};

typedef int (*curve_fn)(const struct curve_point *point, void *ctx);

/*
 * Calls fn with each point, curve by curve and by time, until it returns nonzero, and returns that.
 * Curves of swap, disks and networks that are 0 all the time are left out. The network is told of main
 * processes only: processes of one namespace have the same. A merged recording of several machines
 * tells the figures of each by a process on it, and no GPUs: their readings do not say of which machine
 * they are. 0 or -ENOMEM.
 */
int curves__each(struct job *job, curve_fn fn, void *ctx);

/*
 * What one or two recordings say for the page about memory, CPU and GPUs over time: of each process
 * that makes steps, of all processes together, and of each GPU. Jobs go in, a few curves come out, each
 * of at most USE_POINTS_MAX points. Owns all its data, so a job may be freed once it is added.
 */

#define USE_POINTS_MAX 4000

struct use_curves;

enum use_kind {
	USE_MEMORY, /* resident, in bytes */
	USE_CPU,    /* in thousandths of a percent of a processor */
	USE_GPU,    /* busy, in thousandths of a percent */
};

struct use_point {
	uint64_t time_ns; /* since the recording began */
	uint64_t value;   /* until the next point */
};

struct use_curve {
	uint32_t recording; /* 0 or 1 */
	enum use_kind kind;
	uint32_t pid;        /* 0: all processes, or a GPU */
	uint32_t device;     /* number of a GPU */
	struct array points; /* struct use_point, sorted by time; not all 0 */
};

struct use_curves *use_curves__new(void);       /* NULL: no memory */
void use_curves__free(struct use_curves *uses); /* accepts NULL */
/* Takes the next recording. origin_ns: when it began. 0 or -ENOMEM. */
int use_curves__add(struct use_curves *uses, struct job *job, const struct steps *steps, uint64_t origin_ns);
/* Valid until the next use_curves__add. */
const struct use_curve *use_curves__all(const struct use_curves *uses, size_t *cnt);

#endif
