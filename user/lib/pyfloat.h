/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_LIB_PYFLOAT_H
#define STEPFLAME_USER_LIB_PYFLOAT_H

#include <stddef.h>

#define PYFLOAT_MAX 40 /* bytes for any result with a precision up to 17, with its terminating 0 */

/*
 * Formats as CPython's format(value, '.N'), N = precision, 1 to 17. Unlike C's %.Ng, the result
 * keeps a digit after the point (100.0) and switches to an exponent one power of ten earlier.
 * Source: format_float_short() in CPython's Python/pystrtod.c with format code 'g' and
 * Py_DTSF_ADD_DOT_0, which is what a missing presentation type means. Returns buffer.
 */
char *pyfloat__format(double value, int precision, char buffer[PYFLOAT_MAX]);

#endif
