// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/export/proto.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum wire_type { VARINT = 0, I64 = 1, LEN = 2 };

#define VARINT_MAX 10

/* Returns where the caller can write `bytes` more bytes, which count as written; NULL: no memory. */
static unsigned char *extend_proto(struct proto *p, size_t bytes)
{
	if (p->failed)
		return NULL;
	if (p->room - p->cnt < bytes) {
		size_t room = 2 * p->room + bytes;
		void *grown = realloc(p->bytes, room);

		if (!grown) {
			p->failed = true;
			return NULL;
		}
		p->bytes = grown;
		p->room = room;
	}
	p->cnt += bytes;
	return p->bytes + p->cnt - bytes;
}

static size_t encode_varint(unsigned char *out, uint64_t value)
{
	size_t cnt = 0;

	for (; value >= 0x80; value >>= 7)
		out[cnt++] = value | 0x80;
	out[cnt++] = value;
	return cnt;
}

static void put_bytes(struct proto *p, const void *data, size_t bytes)
{
	unsigned char *at = extend_proto(p, bytes);

	if (at)
		memcpy(at, data, bytes);
}

static void put_varint(struct proto *p, uint64_t value)
{
	unsigned char bytes[VARINT_MAX];

	put_bytes(p, bytes, encode_varint(bytes, value));
}

static void put_key(struct proto *p, uint32_t field, enum wire_type type)
{
	put_varint(p, (uint64_t)field << 3 | type);
}

void proto__int(struct proto *p, uint32_t field, uint64_t value)
{
	put_key(p, field, VARINT);
	put_varint(p, value);
}

void proto__fixed64(struct proto *p, uint32_t field, uint64_t value)
{
	uint64_t little = htole64(value);

	put_key(p, field, I64);
	put_bytes(p, &little, sizeof(little));
}

void proto__text(struct proto *p, uint32_t field, const char *text)
{
	size_t bytes = strlen(text);

	put_key(p, field, LEN);
	put_varint(p, bytes);
	put_bytes(p, text, bytes);
}

size_t proto__begin(struct proto *p, uint32_t field)
{
	put_key(p, field, LEN);
	return p->cnt;
}

/* The length precedes the message, but is known only at its end. */
void proto__end(struct proto *p, size_t begun)
{
	unsigned char length[VARINT_MAX];
	size_t message = p->cnt - begun, bytes = encode_varint(length, message);

	if (!extend_proto(p, bytes))
		return;
	memmove(p->bytes + begun + bytes, p->bytes + begun, message);
	memcpy(p->bytes + begun, length, bytes);
}
