// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/recording/bit_coder.h"

#define ODDS_BITS   12
#define ODDS_ONE    (1 << ODDS_BITS)
#define BIT_EVEN    (ODDS_ONE / 2)
#define LEAN_MAX    (BIT_EVEN - 32) /* nothing is certain */
#define SEEN_MAX    30              /* from then on a bit moves the odds by a 32nd */
#define RANGE_MIN   (1u << 24)
#define START_BYTES 5 /* the first is 0 */

void bit_coder__write(struct bit_coder *coder, unsigned char *out, size_t room)
{
	*coder = (struct bit_coder){.at = out, .end = out + room, .range = UINT32_MAX, .behind = 1};
}

static unsigned char next_byte(struct bit_coder *coder)
{
	if (coder->at < coder->end)
		return *coder->at++;
	coder->bad = true;
	return 0;
}

void bit_coder__read(struct bit_coder *coder, const unsigned char *in, size_t bytes)
{
	*coder = (struct bit_coder){
		.reads = true, .at = (unsigned char *)in, .end = (unsigned char *)in + bytes, .range = UINT32_MAX};
	coder->bad = bytes && *in;
	for (int i = 0; i < START_BYTES; i++)
		coder->code = coder->code << 8 | next_byte(coder);
}

static void put_byte(struct bit_coder *coder, unsigned char byte)
{
	if (coder->at < coder->end)
		*coder->at++ = byte;
	else
		coder->bad = true;
}

/* Writes the top byte of low, or holds it back while a carry may still come into it. */
static void shift_low(struct bit_coder *coder)
{
	unsigned char carry = coder->low >> 32;

	if (carry || (uint32_t)coder->low < 0xff000000u) {
		for (; coder->behind; coder->behind--) {
			put_byte(coder, coder->held + carry);
			coder->held = 0xff;
		}
		coder->held = coder->low >> 24;
	}
	coder->behind++;
	coder->low = (coder->low & 0xffffffu) << 8;
}

static void widen(struct bit_coder *coder)
{
	while (coder->range < RANGE_MIN) {
		coder->range <<= 8;
		if (coder->reads)
			coder->code = coder->code << 8 | next_byte(coder);
		else
			shift_low(coder);
	}
}

static void learn(struct bit_odds *odds, unsigned int bit)
{
	int one = BIT_EVEN + odds->lean, rate = 2560 / (10 * odds->seen + 16);
	int lean;

	one = bit ? one + ((ODDS_ONE - one) * rate >> 8) : one - (one * rate >> 8);
	lean = one - BIT_EVEN;
	if (lean > LEAN_MAX)
		lean = LEAN_MAX;
	odds->lean = lean < -LEAN_MAX ? -LEAN_MAX : lean;
	odds->seen += odds->seen < SEEN_MAX;
}

unsigned int bit_coder__bit(struct bit_coder *coder, struct bit_odds *odds, unsigned int bit)
{
	uint32_t bound = (coder->range >> ODDS_BITS) * (BIT_EVEN + odds->lean);

	if (coder->reads)
		bit = coder->code < bound;
	if (bit) {
		coder->range = bound;
	} else {
		coder->low += coder->reads ? 0 : bound;
		coder->code -= coder->reads ? bound : 0;
		coder->range -= bound;
	}
	widen(coder);
	learn(odds, bit);
	return bit;
}

uint64_t bit_coder__even_bits(struct bit_coder *coder, unsigned int cnt, uint64_t value)
{
	uint64_t got = 0;

	while (cnt--) {
		unsigned int bit = value >> cnt & 1;

		coder->range >>= 1;
		if (coder->reads)
			bit = coder->code >= coder->range;
		if (bit && coder->reads)
			coder->code -= coder->range;
		else if (bit)
			coder->low += coder->range;
		got = got << 1 | bit;
		widen(coder);
	}
	return got;
}

size_t bit_coder__end(struct bit_coder *coder, const unsigned char *out)
{
	for (int i = 0; i < START_BYTES; i++)
		shift_low(coder);
	return coder->at - out;
}
