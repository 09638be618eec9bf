/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Removes breakpoints that an earlier tracer left, wherever no tracer that runs uses them. */
#ifndef STEPFLAME_USER_SESSION_RESTORE_H
#define STEPFLAME_USER_SESSION_RESTORE_H

#include <stddef.h>
#include <stdint.h>

struct mapped_file;
struct restorer;

/*
 * Loads the programs and starts a guardian, since a removal must not be killed. 0, or -errno after a
 * message: -EPERM, -EOPNOTSUPP as session__new.
 */
int restorer__new(struct restorer **out);
/*
 * Removes the breakpoints at these offsets of a file from all processes, except where a tracer uses
 * them. 0, or the first -errno of attachment__clean: then some may have stayed, and the others are
 * removed.
 */
int restorer__remove(struct restorer *r, const struct mapped_file *file, const uint64_t *offsets, size_t cnt);
void restorer__free(struct restorer *r); /* accepts NULL */

#endif
