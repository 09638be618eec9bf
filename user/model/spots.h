/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Lines of source in which samples were, as a user would name them: the innermost line of the stack that is not in an
 * installed package or the standard library; where all are, the innermost. Refers to the job, which takes no record
 * meanwhile.
 */
#ifndef STEPFLAME_SPOTS_H
#define STEPFLAME_SPOTS_H

#include "samples.h"
#include "tallies.h"

struct job;

struct spot {
	uint32_t code; /* number for stacks__code; 0: none */
	uint32_t line; /* 0: not known */
	uint64_t ns;   /* of samples there; 0: no spot */
	uint64_t file; /* that most of it was for: REC_NAME id of its path; 0: none, or not known */
};

/* Empty: all 0 but the job. */
struct spots {
	const struct job *job;
	struct array by_stack; /* uint32_t: number in `lines` + 1; 0: not looked at */
	struct intern lines;   /* {code, line} */
	struct tallies tallies;
	struct intern file_ids;
	struct tallies files; /* by number in `tallies.keys` */
};

/* 0 or -ENOMEM. A sample without Python frames is at no spot. */
int spots__add(struct spots *spots, uint32_t slot, const struct sample *sample);
/* The `cnt` spots that took longest of each slot, into top[slot * cnt]. 0 or -ENOMEM. */
int spots__top(const struct spots *spots, size_t slot_cnt, size_t cnt, struct spot *top);
void spots__free(struct spots *spots);

/* "train.py:42 Rows.__getitem__" of a spot that is one; malloc'ed, NULL: no memory. */
char *spot__text(struct job *job, const struct spot *spot);

#endif
