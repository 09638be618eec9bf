/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The lines of a Python function: decodes the line table of its code object, and reads it from a
 * live process.
 */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_PYLINES_H
#define STEPFLAME_USER_RUNTIME_PYTHON_PYLINES_H

#include <stddef.h>
#include <stdint.h>

#include "include/python.h"
#include "include/records.h"

#define PY_LINES_MAX      4096
#define PY_LINE_TABLE_MAX (256u << 10) /* bytes; an unusual table of 3.10 takes 49 a line */

/*
 * Decodes the line table of a CPython 3.`minor` (8 to 15; CPython Objects/lnotab_notes.txt,
 * Objects/locations.md) into `lines` (room for `max`, at least 2): offsets in bytes of code,
 * ascending from 0; neighbours have different lines; line 0: no line. From 3.10 the last entry is
 * the end of the code. Whatever does not fit, or makes no sense, also gets line 0. The table may be
 * any bytes; nothing outside it is read. Returns the count.
 */
uint32_t py_lines__decode(int minor, const uint8_t *table, size_t size, uint32_t first_line, struct code_line *lines,
			  uint32_t max);

/* The line of the instruction at `offset` (-1: not begun, the function's first line), 0: none. */
int32_t py_lines__at(const struct code_line *lines, uint32_t line_cnt, uint32_t first_line, int64_t offset);

/*
 * Turns a record from BPF into the one that goes into files, malloc'ed into *out, with its lines:
 * from the line table that follows the record, or from the process while that lives. 0; -ENOENT
 * when the record has no line table; -EINVAL when the table does not fit, or its address holds no
 * bytes object (any more); or -errno.
 */
int py_lines__complete(const struct py_layout *layout, const struct rec_code *code, struct rec_code **out);

#endif
