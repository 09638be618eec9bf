/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether a thread waited for reads or for writes of a disk, where its system call alone does not
 * say that: a copy of files, a mapped file, libaio, a close. In: the waits, and what their processes
 * read from and wrote to disks meanwhile (/proc/PID/io, in REC_RESOURCES).
 */
#ifndef STEPFLAME_USER_MODEL_DISK_DIRECTION_H
#define STEPFLAME_USER_MODEL_DISK_DIRECTION_H

#include "user/model/resources.h"
#include "user/model/samples.h"

/*
 * Corrects the causes of such waits: to the only direction in which bytes went, to unknown if none
 * went as the call says; else they stay. Call after samples__refine.
 */
void disk_direction__correct(struct samples *samples, struct resources *resources);

#endif
