/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Id of a name: a 64-bit hash of its bytes. BPF and user space compute the same hash, so they need
 * no shared table. Multiply-xorshift over 8-byte words (the finalizer of splitmix64 per word). The
 * hash need not resist an adversary, who could only mislabel rows of a process that he controls
 * already.
 */
#ifndef STEPFLAME_INCLUDE_NAME_HASH_H
#define STEPFLAME_INCLUDE_NAME_HASH_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/* Packs 8 characters into a little-endian word, so that BPF compares texts by words. */
#define WORD8(s)                                                                                                  \
	((__u64)(__u8)(s)[0] | (__u64)(__u8)(s)[1] << 8 | (__u64)(__u8)(s)[2] << 16 | (__u64)(__u8)(s)[3] << 24 | \
	 (__u64)(__u8)(s)[4] << 32 | (__u64)(__u8)(s)[5] << 40 | (__u64)(__u8)(s)[6] << 48 |                      \
	 (__u64)(__u8)(s)[7] << 56)

/*
 * `bytes` is the length of the whole name, also when the name is too long and only its beginning is
 * hashed.
 */
static inline __u64 name_hash__seed(__u32 encoding, __u32 bytes)
{
	/* An ASCII text is the same name in Latin-1 and in UTF-8. */
	return 0x9e3779b97f4a7c15ULL * (bytes + 1) ^ (encoding > 1 ? encoding : 0);
}

static inline __u64 name_hash__add(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0xbf58476d1ce4e5b9ULL;
	return hash ^ hash >> 29;
}

/* 0 means "no name". */
static inline __u64 name_hash__end(__u64 hash)
{
	return hash ? hash : 1;
}

#endif
