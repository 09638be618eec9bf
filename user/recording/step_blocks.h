/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packs step boundaries: many REC_STEP become a REC_STEPS, of some 2 bytes for each, and these become
 * REC_STEP again. A block is of one thread and one rule; serial and index count up by 1 in it, and
 * each boundary's time is that of the boundary before it and its phases.
 *
 * What is rounded is the sum of each part since the
 * block began, downwards, so that errors do not add up:
 *
 *   - A step of STEP_EXACT_NS or more is exact.
 *   - The duration of a shorter one, and its time, is off by at most 1/STEP_FINENESS of it; a phase
 *     by STEP_COARSER times as much, and one, the longest that most steps have, by what the others are.
 *   - The last step of a block, the last before one that is exact, and the last before one that has
 *     none of a part gets what is left, so that sums over blocks are exact, and a step has some of a
 *     part only if it had some.
 */
#ifndef STEPFLAME_USER_RECORDING_STEP_BLOCKS_H
#define STEPFLAME_USER_RECORDING_STEP_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"

#define STEP_BLOCK_MAX 4096u        /* steps */
#define STEP_EXACT_NS  (1ull << 22) /* 4.2 ms */
#define STEP_FINENESS  800

struct rec_steps {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 tid;
	__u32 rule;    /* enum step_rule */
	__u32 serial;  /* of the first boundary */
	__u64 index;   /* likewise */
	__u64 base_ns; /* its time less its phases */
	__u32 step_cnt;
	__u32 parts;    /* bits: parts of a step that are not always 0 */
	__u32 rest;     /* number of the part whose rounding makes the others add up to the step */
	__u32 bytes;    /* of payload, step_cnt or more, so that a file is not much smaller than what it fills */
	__u8 payload[]; /* padded to a multiple of 8 */
};

struct step_packer;

/*
 * The packer passes each finished record to sink, which may use it during the call only. NULL: no
 * memory.
 */
struct step_packer *step_packer__new(int (*sink)(const struct rec_hdr *record, void *ctx), void *ctx);
/* Takes a REC_STEP of at least sizeof(struct rec_step). 0, -ENOMEM, or what the sink returned. */
int step_packer__add(struct step_packer *packer, const struct rec_hdr *record);
/* Passes all added steps to the sink. Errors as above. */
int step_packer__flush(struct step_packer *packer);
void step_packer__free(struct step_packer *packer); /* accepts NULL; discards what was not flushed */

/*
 * Unpacks a hostile record into `out`, which has room for STEP_BLOCK_MAX. 0 with *cnt, -EBADMSG when
 * the record is not sound, or -ENOMEM.
 */
int steps__decode(const struct rec_hdr *record, struct rec_step *out, size_t *cnt);

/*
 * How the payload codes steps. A step is made of parts, times that add up to it: part 0 is
 * rec_step.forward_ns, part 1 + p is phase p (PHASE_OTHER without forward_ns).
 *
 * A step is coded as follows, each bit by how likely it is given the steps before it in the block (a range coder, as in
 * LZMA):
 *
 *   quantum  1 bit: another one than before. If so, 6 even bits: the new one (step_quantum__ns)
 *   parts    those of the block in their order, the rest last; each a whole number of its unit, minus the number
 *            that is expected of it: bits of the absolute difference (6 bits), sign, the bit behind the leading
 *            one, and even bits
 *
 * What is expected of a part follows its median.
 */

#define STEP_PARTS     (PHASE__COUNT + 1)
#define STEP_PART_BITS 40 /* a part of a step in a block is shorter than 2^40 ns, 18 minutes */
#define STEP_COARSER   8  /* quanta in the unit of a part; that of the rest is one */

#endif
