/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The JSON Schema (draft 2020-12) of all reports, made of their shapes (shape.h). */
#ifndef STEPFLAME_USER_REPORT_SCHEMA_H
#define STEPFLAME_USER_REPORT_SCHEMA_H

#include <stdio.h>

/* 0 or -errno. */
int schema__print(FILE *out);

#endif
