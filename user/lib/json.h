/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* JSON as stepflame writes it: ASCII, and no character of a text as itself that could steer a terminal. */
#ifndef STEPFLAME_USER_LIB_JSON_H
#define STEPFLAME_USER_LIB_JSON_H

#include <jansson.h>
#include <stdio.h>

/* flags: those of json_dumps. 0 or -ENOMEM, also for NULL; the caller checks out for errors. */
int json__print(const json_t *json, size_t flags, FILE *out);
/* The same as a text, malloc'ed; NULL: no memory. */
char *json__text(const json_t *json, size_t flags);
/* Returns any bytes as a string: what is not UTF-8 becomes U+FFFD. NULL: no memory. */
json_t *json__string(const char *bytes);

#endif
