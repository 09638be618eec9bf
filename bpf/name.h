/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Names: reads a name from the target into the buffer, hashes it to an id, and emits it the first
 * time.
 */
#ifndef STEPFLAME_BPF_NAME_H
#define STEPFLAME_BPF_NAME_H

#include <linux/errno.h>

#include "bpf/maps.h"
#include "include/name_hash.h"

/*
 * The id of the text in the buffer: the first `size` bytes of a name that has `whole`. Clears what
 * lies behind the text in its last word.
 */
__weak __noinline u64 name__hash(struct name_buffer *b, u32 size, u64 whole, u32 encoding)
{
	struct rec_name *rec;
	u64 hash, *last;

	if (!b || size > REC_NAME_MAX)
		return 0;
	rec = &b->name;
	rec->encoding = encoding;
	rec->cut = whole > size;
	rec->whole_bytes = whole;
	rec->bytes = size;
	last = (u64 *)(b->text + (size & ~7u));
	*last &= (1ULL << (size & 7) * 8) - 1;
	hash = name_hash__seed(encoding, whole);
	for (u32 i = 0; i < REC_NAME_MAX / 8; i++) {
		if (i * 8 >= size)
			break;
		hash = name_hash__add(hash, *(u64 *)(b->text + i * 8));
	}
	return name_hash__end(hash);
}

/*
 * Reads `bytes` bytes of text at `address` into the buffer and returns the text's id; 0: unreadable
 * (counted). The text stays in b->text, padded with zeros to a word, until the next name.
 */
__weak __noinline u64 name__read(struct name_buffer *b, u64 address, u64 bytes, u32 encoding)
{
	u64 whole = bytes;
	u32 size;

	if (!b)
		return 0;
	if (bytes > REC_NAME_MAX) {
		count(CNT_NAME_CUT);
		bytes = REC_NAME_MAX;
	}
	size = bytes & 1023; /* at most REC_NAME_MAX already: for the verifier */
	if (size > REC_NAME_MAX)
		return 0;
	if (bpf_probe_read_user(b->text, size, (const void *)address)) {
		count(CNT_NAME_LOST);
		return 0;
	}
	return name__hash(b, size, whole, encoding);
}

#define TEXT_READS 8 /* reads to find the length of a NUL-terminated text, which counts as no longer than these */

/* Like name__read, for a NUL-terminated text. */
__weak __noinline u64 name__read_text(struct name_buffer *b, u64 address)
{
	u64 whole = 0;
	long bytes;

	if (!b)
		return 0;
	for (u32 n = 0; n < TEXT_READS; n++) {
		bytes = bpf_probe_read_user_str(b->text, REC_NAME_MAX, (const void *)(address + whole));
		if (bytes <= 0) {
			count(CNT_NAME_LOST);
			return 0;
		}
		whole += bytes - 1;
		if (bytes < REC_NAME_MAX)
			break;
	}
	return name__read(b, address, whole, NAME_UTF8);
}

#define NAME_HALF 256

/*
 * Adds "." and a second text to the text in the buffer. Returns the id of both; 0 (counted):
 * unreadable, or one of them is longer than NAME_HALF.
 */
__weak __noinline u64 name__join(struct name_buffer *b, u64 address, u64 bytes)
{
	u64 at, end;

	if (!b)
		return 0;
	at = b->name.bytes;
	if (at >= NAME_HALF || bytes >= NAME_HALF) {
		count(CNT_NAME_CUT);
		return 0;
	}
	at = BOUND_INDEX(at, NAME_HALF);
	bytes = BOUND_INDEX(bytes, NAME_HALF);
	end = at + 1 + bytes;
	b->text[at] = '.';
	if (bpf_probe_read_user(b->text + at + 1, bytes, (const void *)address)) {
		count(CNT_NAME_LOST);
		return 0;
	}
	return name__hash(b, end, end, NAME_UTF8);
}

#define JIT_PREFIX 4 /* "jit " */

/* Like name__read, for UTF-8 with "jit " in front. Cuts texts of more than NAME_HALF bytes. */
__weak __noinline u64 name__read_jit(struct name_buffer *b, u64 address, u64 bytes)
{
	u64 whole = bytes + JIT_PREFIX;

	if (!b)
		return 0;
	if (bytes >= NAME_HALF) {
		count(CNT_NAME_CUT);
		bytes = NAME_HALF - 1;
	}
	bytes = BOUND_INDEX(bytes, NAME_HALF);
	__builtin_memcpy(b->text, "jit ", JIT_PREFIX);
	if (bpf_probe_read_user(b->text + JIT_PREFIX, bytes, (const void *)address)) {
		count(CNT_NAME_LOST);
		return 0;
	}
	return name__hash(b, bytes + JIT_PREFIX, whole, NAME_UTF8);
}

#define NAMES_SHARED (NAMES_MAX - 4096) /* the rest is for NAMES_LANDMARKS */
#define NAMES_OWN    1024               /* of a process and kind */

__weak __u64 name_cnt = 0; /* elements of `names` */

/*
 * Has BPF emitted this name before, or is another thread about to? `names_close` keeps emitted ones
 * alone: if the ring is full, the other thread takes its name back.
 */
__weak __noinline int name__is_known(u64 id)
{
	u32 slot = BOUND_INDEX(id, NAMES_CLOSE);
	u64 *close = bpf_map_lookup_elem(&names_close, &slot);
	u8 *emitted;

	if (close && *close == id)
		return true;
	emitted = bpf_map_lookup_elem(&names, &id);
	if (!emitted)
		return false;
	if (close && *emitted)
		*close = id;
	return true;
}

/* Emits the name just read, which was unknown. */
__weak __noinline int name__emit(struct name_buffer *b, u64 id)
{
	u8 emitted = false;
	u32 size;
	int err;

	if (!b)
		return 0;
	err = bpf_map_update_elem(&names, &id, &emitted, BPF_NOEXIST);
	if (err) {
		if (err != -EEXIST) /* -EEXIST: another thread has just emitted it */
			count(CNT_NAME_LOST);
		return 0;
	}
	__sync_fetch_and_add(&name_cnt, 1);
	size = sizeof(struct rec_name) + ((b->name.bytes + 7) & ~7u);
	if (size > sizeof(struct rec_name) + REC_NAME_MAX)
		return 0;
	b->name.hdr.type = REC_NAME;
	b->name.hdr.flags = 0;
	b->name.hdr.size = size;
	b->name.id = id;
	if (bpf_ringbuf_output(&ring, &b->name, size, BPF_RB_NO_WAKEUP)) {
		count(CNT_RING_FULL);
		bpf_map_delete_elem(&names, &id); /* the next call tries again */
		__sync_fetch_and_add(&name_cnt, -1);
		return 0;
	}
	emitted = true;
	bpf_map_update_elem(&names, &id, &emitted, BPF_EXIST);
	return 0;
}

/* Emits the name just read, unless BPF has emitted it before. */
__weak __noinline int name__send(struct name_buffer *b, u64 id)
{
	if (!b || name__is_known(id))
		return 0;
	if (name_cnt >= NAMES_SHARED)
		count(CNT_NAME_LOST);
	else
		name__emit(b, id);
	return 0;
}

/*
 * Emits the name of a span, just read, and returns the id under which the span counts: its own, or
 * (counted) that of NAME_OTHER if the process has had too many different names of this kind.
 */
static __always_inline u64 name__admit(struct name_buffer *b, struct proc *proc, u64 id, u32 kind)
{
	u32 *names_of_kind;

	if (!b || !proc || !id || name__is_known(id))
		return id;
	names_of_kind = &proc->room.names[BOUND_INDEX(kind, NAMES_ROOM)];
	if (id != step_at[0] && id != step_at[1] &&
	    (*names_of_kind >= NAMES_OWN || (kind != NAMES_LANDMARKS && name_cnt >= NAMES_SHARED))) {
		count(CNT_NAMES_FOLDED);
		return fixed_names[NAME_OTHER];
	}
	__sync_fetch_and_add(names_of_kind, 1);
	name__emit(b, id);
	return id;
}

static __always_inline u64 name__intern(struct name_buffer *b, u64 address, u64 bytes, u32 encoding)
{
	u64 id = name__read(b, address, bytes, encoding);

	if (id)
		name__send(b, id);
	return id;
}

#endif
