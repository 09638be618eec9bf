/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packs spans of the timeline: REC_SPAN from the kernel, of any threads in any order, become
 * REC_SPANS of one thread each.
 *
 * The payload of a REC_SPANS is a zlib stream. Inflated, it holds columns, one after the other,
 * with one value per span:
 *
 *   tag       kind << 2 | 2 when it has a sequence | 1 when it is around the span before it
 *   time      of a span after the one before it: start - end before; of one around it: end - end before. Signed;
 *             base_ns is the end before the first
 *   duration
 *   name      the number of names and their ids, 8 bytes each; then an index per span
 *   group     likewise; "none" is an id too, 0
 *   depth     minus that of the span before; signed
 *   sequence  minus the last one; signed. Only of spans that have one
 *
 * Numbers are LEB128; signed ones are folded first (0, -1, 1, -2, ... become 0, 1, 2, 3).
 * Arithmetic is modulo 2^64. Values that vary alike share a column, so that deflate shrinks all but
 * the jitter of the times: an operator takes some 5 bytes, exact to the nanosecond.
 */
#ifndef STEPFLAME_USER_RECORDING_SPANS_H
#define STEPFLAME_USER_RECORDING_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include "include/records.h"

#define SPANS_MAX 4096u /* in one record */

struct spans_encoder;

/*
 * The encoder passes each finished record to sink, which may use it during the call only. NULL: no
 * memory.
 */
struct spans_encoder *spans_encoder__new(int (*sink)(const struct rec_hdr *record, void *ctx), void *ctx);
/*
 * Takes one span, a whole struct rec_span. 0, -ENOMEM, or what the sink returned; the encoder
 * remains usable after an error.
 */
int spans_encoder__add(struct spans_encoder *encoder, const struct rec_span *span);
/* At the end of a window: passes all added spans to the sink and frees the memory. Errors as above. */
int spans_encoder__flush(struct spans_encoder *encoder);
void spans_encoder__free(struct spans_encoder *encoder); /* accepts NULL; discards spans that were not flushed */

/*
 * Unpacks a hostile record of at least sizeof(*record) bytes into `out`, which has room for
 * SPANS_MAX. 0 with *cnt, -EBADMSG when the record is not sound, or -ENOMEM.
 */
int spans__decode(const struct rec_spans *record, struct rec_span *out, size_t *cnt);

#endif
