/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a thread did on the CPU when the timer sampled it. */
#ifndef STEPFLAME_USER_ANALYSIS_PLACE_CPU_CLASS_H
#define STEPFLAME_USER_ANALYSIS_PLACE_CPU_CLASS_H

#include "user/model/job.h"
#include "user/model/samples.h"

enum cpu_class {
	CPU_PYTHON, /* the interpreter */
	CPU_OP,     /* torch, and the libraries that it calls; in forward, backward and optimizer, all native code */
	CPU_NATIVE, /* other native code */
	CPU_KERNEL,
	CPU__COUNT,
};

/*
 * Whether a symbol (REC_NAME id, or 0) belongs to the interpreter: its time then counts as the
 * Python function's.
 */
bool cpu_class__is_interpreter(const struct job *job, uint64_t native);
enum cpu_class cpu_class__of(const struct job *job, const struct sample *sample, enum phase phase);

#endif
