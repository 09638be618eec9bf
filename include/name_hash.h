/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Id of a name: a 64-bit hash of its bytes, the same on both sides, so that a name needs no table to be known twice.
 * Multiply-xorshift over 8-byte words (the finalizer of splitmix64 per word); not meant to withstand an adversary, who
 * could only mislabel rows of the process that is his already.
 */
#ifndef STEPFLAME_INCLUDE_NAME_HASH_H
#define STEPFLAME_INCLUDE_NAME_HASH_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/* The little-endian word that 8 characters make: how texts are compared. */
#define WORD8(s)                                                                                                  \
	((__u64)(__u8)(s)[0] | (__u64)(__u8)(s)[1] << 8 | (__u64)(__u8)(s)[2] << 16 | (__u64)(__u8)(s)[3] << 24 | \
	 (__u64)(__u8)(s)[4] << 32 | (__u64)(__u8)(s)[5] << 40 | (__u64)(__u8)(s)[6] << 48 |                      \
	 (__u64)(__u8)(s)[7] << 56)

/* `bytes` is the length of the whole name: of one too long to be kept, only the beginning is hashed. */
static inline __u64 name_hash__seed(__u32 encoding, __u32 bytes)
{
	/* Latin-1 and UTF-8 of an ASCII text are the same name. */
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
