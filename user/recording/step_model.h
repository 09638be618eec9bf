/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How likely the numbers of a step are, given those of the steps before it in a block: what
 * step_blocks.c writes and reads with. A step is made of parts, times that add up to it: part 0 is
 * rec_step.forward_ns, part 1 + p is phase p (PHASE_OTHER without forward_ns).
 *
 * A step is coded as follows, by bit_coder.h:
 *
 *   quantum  1 bit: another one than before. If so, 6 even bits: the new one (step_quantum__ns)
 *   parts    those of the block in their order, the rest last; each a whole number of its unit, minus the number
 *            that is expected of it: bits of the absolute difference (6 bits), sign, the bit behind the leading
 *            one, and even bits
 *
 * What is expected of a part follows its median.
 */
#ifndef STEPFLAME_USER_RECORDING_STEP_MODEL_H
#define STEPFLAME_USER_RECORDING_STEP_MODEL_H

#include "include/records.h"
#include "user/recording/bit_coder.h"

#define STEP_PARTS     (PHASE__COUNT + 1)
#define STEP_PART_BITS 40 /* a part of a step in a block is shorter than 2^40 ns, 18 minutes */
#define STEP_QUANTA    64
#define STEP_COARSER   8 /* quanta in the unit of a part; that of the rest is one */

/* Quantum i: 0 is 1 ns, others (4 + i % 4) << i / 4 quarters of a ns; those below 8 do not exist. */
#define STEP_QUANTUM_FIRST 8
uint64_t step_quantum__ns(unsigned int quantum);

#define SIZE_BITS 6
#define ROW_MAX   12

/* Of one part. */
struct part_model {
	/* of the number of bits: exact or not, by that of the step's part before, as a tree */
	struct bit_odds size[2][ROW_MAX + 1][1 << SIZE_BITS];
	struct bit_odds sign[1 << SIZE_BITS];
	struct bit_odds next[1 << SIZE_BITS][2];
	uint64_t expected_ns;
	uint32_t seen;
};

/* Zeroed, but for parts and rest: at the start of a block. */
struct step_model {
	uint32_t parts; /* bits: those that are not always 0 */
	uint32_t rest;  /* number of the part that is coded last */
	struct bit_odds same;
	unsigned int quantum; /* the last one but 0 */
	struct part_model part[STEP_PARTS];
};

/*
 * Codes the step's quantum, and its parts in nanoseconds, multiples of their units. false: what was
 * read is not sound.
 */
bool step_model__code(struct step_model *model, struct bit_coder *coder, unsigned int *quantum,
		      uint64_t parts_ns[STEP_PARTS]);

#endif
