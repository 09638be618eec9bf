/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads Python objects in a live process. */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_PYOBJECT_H
#define STEPFLAME_USER_RUNTIME_PYTHON_PYOBJECT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "include/python.h"

/* Is there an object at that address whose type has this name, of at most 15 characters ("bytes")? */
bool py_object__is(pid_t pid, const struct py_layout *layout, uint64_t address, const char *type);

/*
 * Reads a str as UTF-8, malloc'ed into *text: at most 4,096 characters, the rest is cut. What UTF-8
 * cannot hold becomes U+FFFD. 0; -EINVAL when there is no compact str at that address, or -errno.
 */
int py_object__str(pid_t pid, const struct py_layout *layout, uint64_t address, char **text);

#endif
