/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NVML's readings of the GPUs of the machine, whoever used them, joined to steps. In: REC_GPU_USAGE,
 * once a second.
 */
#ifndef STEPFLAME_USER_ANALYSIS_GPU_GPU_READINGS_H
#define STEPFLAME_USER_ANALYSIS_GPU_GPU_READINGS_H

#include "include/gpu_records.h"
#include "user/model/job.h"

/* The readings of all GPUs; cnt 0: none, or the recording is of several machines. */
struct gpu_readings {
	const struct rec_gpu_usage *items; /* by device and time; owned by the job */
	size_t cnt;
};

/* Cuts off the readings of the first GPU, and returns them; without readings, cnt is 0. */
struct gpu_readings gpu_readings__next(struct gpu_readings *all);

/* gpu: of the job. */
struct gpu_readings gpu_readings__of(const struct job *job, const struct gpu *gpu);

/* A figure of struct rec_gpu_usage; below 0: not known. */
static inline double gpu_reading__value(uint32_t value, double scale)
{
	return value == GPU_UNKNOWN ? -1 : value * scale;
}

/* Of a GPU from start_ns to end_ns; below 0: not known. */
struct gpu_reading {
	double busy_percent; /* mean: a reading is about the time since the one before it */
	double memory_used_bytes, power_w, temperature_c; /* by the last reading before the end */
};

/* readings: of one GPU. false: none around it. */
bool gpu_readings__span(const struct gpu_readings *readings, uint64_t start_ns, uint64_t end_ns,
			struct gpu_reading *out);

#endif
