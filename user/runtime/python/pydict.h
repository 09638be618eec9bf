/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads dicts and modules of a live process, which may change them meanwhile. */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_PYDICT_H
#define STEPFLAME_USER_RUNTIME_PYTHON_PYDICT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "user/runtime/python/interpreter.h"

/* Addresses of objects. */
struct py_dict_entry {
	uint64_t key, value;
};

/*
 * Reads the entries of a dict, in the order in which they were inserted, at most `most` of them.
 * Returns how many; -EINVAL: there is no dict, or one that shares its keys with others (that of an
 * instance), or -errno.
 */
int py_dict__entries(pid_t pid, const struct py_layout *layout, uint64_t dict, struct py_dict_entry *out, size_t most);

/* How many entries it has; or -errno. */
int64_t py_dict__len(pid_t pid, const struct py_layout *layout, uint64_t dict);

/* The value of a key that is an ASCII str of at most PY_KEY_MAX characters. 0, -ENOENT, or -errno. */
#define PY_KEY_MAX 63
int py_dict__find(pid_t pid, const struct py_layout *layout, uint64_t dict, const char *key, uint64_t *value);

/*
 * The dict with the variables of a module that the main interpreter has imported, by its full name
 * (sys.modules). 0; -ENOENT: it is not imported; or -errno.
 */
int py_module__variables(pid_t pid, const struct python *python, const char *name, uint64_t *dict);

/*
 * Has the main interpreter imported a module whose full name, ASCII and of at most PY_KEY_MAX
 * characters, is one that `is` accepts? *cnt: how many modules there were at the last look, at
 * first 0; while there are as many, there is no new one. 1, 0, or -errno: that is not known.
 */
int py_modules__any(pid_t pid, const struct python *python, bool (*is)(const char *name), int64_t *cnt);

#endif
