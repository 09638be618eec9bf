/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Spans of the timeline, packed: REC_SPAN as they come from the kernel, of any threads in any order, become REC_SPANS
 * of one thread each.
 *
 * The payload of a REC_SPANS is a zlib stream. Inflated, it holds columns, one after the other, of one value per span:
 *
 *   tag       kind << 2 | 2 when it has a sequence | 1 when it is around the span before it
 *   time      of a span after the one before it: start - end before; of one around it: end - end before. Signed;
 *             base_ns is the end before the first
 *   duration
 *   name      the number of names and their ids, 8 bytes each; then an index per span
 *   group     likewise; "none" is an id too, 0
 *   depth     less that of the span before; signed
 *   sequence  less the last one; signed. Only of spans that have one
 *
 * Numbers are LEB128; signed ones are folded first (0, -1, 1, -2, ... become 0, 1, 2, 3). Arithmetic is modulo 2^64. A
 * column holds what varies alike, and what deflate cannot shrink in it is the jitter of the times: some 5 bytes per
 * operator, exact to the nanosecond.
 */
#ifndef STEPFLAME_USER_RECORDING_SPANS_H
#define STEPFLAME_USER_RECORDING_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include "include/records.h"

#define SPANS_MAX 4096u /* in one record */

struct spans_encoder;

/* sink takes each finished record, which is the encoder's after the call. NULL: no memory. */
struct spans_encoder *spans_encoder__new(int (*sink)(const struct rec_hdr *record, void *ctx), void *ctx);
/*
 * Takes one span, a whole struct rec_span. 0, -ENOMEM, or what the sink returned; after an error the encoder may be
 * used on.
 */
int spans_encoder__add(struct spans_encoder *encoder, const struct rec_span *span);
/* Hands all that was added to the sink and gives the memory back: at the end of a window. Errors as above. */
int spans_encoder__flush(struct spans_encoder *encoder);
void spans_encoder__free(struct spans_encoder *encoder); /* accepts NULL; what was not flushed is lost */

/*
 * Unpacks a record of at least sizeof(*record) bytes, which is hostile, into `out`, with room for SPANS_MAX. 0 with
 * *cnt, -EBADMSG when it is not sound, -ENOMEM.
 */
int spans__decode(const struct rec_spans *record, struct rec_span *out, size_t *cnt);

#endif
