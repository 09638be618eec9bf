/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_LIB_PYFLOAT_H
#define STEPFLAME_USER_LIB_PYFLOAT_H

#include <stddef.h>

#define PYFLOAT_MAX 40 /* bytes that hold any result, 0 included, up to a precision of 17 */

/*
 * format(value, '.N') as CPython does it, N = precision, 1 to 17. Unlike C's %.Ng it keeps a digit behind the point
 * (100.0) and goes over to an exponent one power of ten earlier. Source: format_float_short() in CPython's
 * Python/pystrtod.c with format code 'g' and Py_DTSF_ADD_DOT_0, which is what a missing presentation type means.
 * Returns buffer.
 */
char *pyfloat__format(double value, int precision, char buffer[PYFLOAT_MAX]);

#endif
