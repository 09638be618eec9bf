/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Codes bits by how likely each is, an adaptive binary range coder as in LZMA (7-Zip's
 * specification, "Range Encoder"). The same calls write and read: where a coder reads, a call
 * ignores the bit that it is given, and returns the one that it has read. So one function describes
 * both ways of a format, and they cannot differ.
 */
#ifndef STEPFLAME_USER_RECORDING_BIT_CODER_H
#define STEPFLAME_USER_RECORDING_BIT_CODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bit_coder {
	bool reads;
	bool bad; /* no room to write, or the input ended early: what was read since is not sound */
	unsigned char *at, *end;
	uint64_t low;
	uint32_t range;
	uint32_t code;   /* read: where in the range the input is */
	uint32_t behind; /* write: bytes that a carry may still change, `held` and 0xff after it */
	unsigned char held;
};

/* How likely a bit is 1, as learned so far. Zeroed: knows nothing. */
struct bit_odds {
	int16_t lean; /* from BIT_EVEN, in 4096ths */
	uint16_t seen;
};

void bit_coder__write(struct bit_coder *coder, unsigned char *out, size_t room);
/* Does not change `in`. */
void bit_coder__read(struct bit_coder *coder, const unsigned char *in, size_t bytes);

unsigned int bit_coder__bit(struct bit_coder *coder, struct bit_odds *odds, unsigned int bit);
/* The low `cnt` bits of a value, each as likely 0 as 1. */
uint64_t bit_coder__even_bits(struct bit_coder *coder, unsigned int cnt, uint64_t value);

/* Ends what was written. Returns its bytes. */
size_t bit_coder__end(struct bit_coder *coder, const unsigned char *out);

#endif
