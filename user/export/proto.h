/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Writes protobuf (https://protobuf.dev/programming-guides/encoding/) into memory, field by field,
 * with nested messages.
 */
#ifndef STEPFLAME_USER_EXPORT_PROTO_H
#define STEPFLAME_USER_EXPORT_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proto {
	unsigned char *bytes; /* malloc'ed; the owner frees it */
	size_t cnt, room;
	bool failed; /* out of memory: everything written since is lost */
};

void proto__int(struct proto *p, uint32_t field, uint64_t value); /* int32, int64, uint32, uint64, bool, enum */
void proto__fixed64(struct proto *p, uint32_t field, uint64_t value);
void proto__text(struct proto *p, uint32_t field, const char *text);
/* Begins a message in `field`; proto__end(p, the returned value) ends it. */
size_t proto__begin(struct proto *p, uint32_t field);
void proto__end(struct proto *p, size_t begun);

#endif
