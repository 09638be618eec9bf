/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names: read from the target into the thread's buffer, hashed to an id, and sent to user space when first met. */
#ifndef STEPFLAME_NAME_H
#define STEPFLAME_NAME_H

#include <linux/errno.h>

#include "maps.h"
#include "name_hash.h"

/* The little-endian word that 8 characters make: how texts are compared here. */
#define WORD8(s)                                                                                  \
	((u64)(u8)(s)[0] | (u64)(u8)(s)[1] << 8 | (u64)(u8)(s)[2] << 16 | (u64)(u8)(s)[3] << 24 | \
	 (u64)(u8)(s)[4] << 32 | (u64)(u8)(s)[5] << 40 | (u64)(u8)(s)[6] << 48 | (u64)(u8)(s)[7] << 56)

/*
 * Reads `bytes` bytes of text at `address` into the thread's buffer and returns their id, 0 when the memory cannot be
 * read (counted). The text stays in t->name_text, padded with zeros to a word, until the next name.
 */
__noinline u64 name__read(struct thread *t, u64 address, u64 bytes, u32 encoding)
{
	struct rec_name *rec;
	u64 hash;
	u32 size;

	if (!t)
		return 0;
	rec = &t->name;
	rec->cut = bytes > REC_NAME_MAX;
	if (rec->cut) {
		count(CNT_NAME_CUT);
		bytes = REC_NAME_MAX;
	}
	size = bytes & 1023; /* at most REC_NAME_MAX already: for the verifier */
	if (size > REC_NAME_MAX)
		return 0;
	*(u64 *)(t->name_text + (size & ~7u)) = 0;
	if (bpf_probe_read_user(t->name_text, size, (const void *)address)) {
		count(CNT_NAME_LOST);
		return 0;
	}
	rec->encoding = encoding;
	rec->bytes = size;
	hash = name_hash__seed(encoding, size);
	for (u32 i = 0; i < REC_NAME_MAX / 8; i++) {
		if (i * 8 >= size)
			break;
		hash = name_hash__add(hash, *(u64 *)(t->name_text + i * 8));
	}
	return name_hash__end(hash);
}

/* Sends the text of the name just read, unless it was sent before. */
__noinline int name__send(struct thread *t, u64 id)
{
	u64 *sent;
	u32 size;
	u8 one = 1;
	int err;

	if (!t)
		return 0;
	sent = &t->sent[BOUND_INDEX(id, SENT_NAMES)];
	if (*sent == id)
		return 0;
	*sent = id;
	if (bpf_map_lookup_elem(&names, &id))
		return 0;
	err = bpf_map_update_elem(&names, &id, &one, BPF_NOEXIST);
	if (err) {
		if (err != -EEXIST) /* which is: another thread has just sent it */
			count(CNT_NAME_LOST);
		return 0;
	}
	size = sizeof(struct rec_name) + ((t->name.bytes + 7) & ~7u);
	if (size > sizeof(struct rec_name) + REC_NAME_MAX)
		return 0;
	t->name.hdr.type = REC_NAME;
	t->name.hdr.flags = 0;
	t->name.hdr.size = size;
	t->name.id = id;
	t->name.pad = 0;
	if (bpf_ringbuf_output(&ring, &t->name, size, BPF_RB_NO_WAKEUP)) {
		count(CNT_RING_FULL);
		bpf_map_delete_elem(&names, &id); /* the next call tries again */
		*sent = 0;
	}
	return 0;
}

static __always_inline u64 name__intern(struct thread *t, u64 address, u64 bytes, u32 encoding)
{
	u64 id = name__read(t, address, bytes, encoding);

	if (id)
		name__send(t, id);
	return id;
}

#endif
