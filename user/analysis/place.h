/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which function has the time that one set of samples has more than another: slow steps against ordinary ones, a straggler
 * against the other ranks. In: samples, each in a slot. Out: a function, as a user would name it. Refers to the job, which
 * takes no record meanwhile.
 */
#ifndef STEPFLAME_USER_ANALYSIS_PLACE_H
#define STEPFLAME_USER_ANALYSIS_PLACE_H

#include "user/lib/tallies.h"
#include "user/model/samples.h"

struct job;

/* A line of source. */
struct spot {
	uint32_t code; /* number for stacks__code; 0: none */
	uint32_t line; /* 0: not known */
	uint64_t ns;   /* of samples there; 0: no spot */
	uint64_t file; /* that most of it was for: REC_NAME id of its path; 0: none, or not known */
};

/* "train.py:42 Rows.__getitem__" of a spot that is one; malloc'ed, NULL: no memory. */
char *spot__text(struct job *job, const struct spot *spot);

/* Is a function (a number for stacks__code) the user's own: of no installed package, and not of the standard library? */
bool place__is_users(const struct job *job, uint32_t code);

/* Empty: all 0 but the job. */
struct places {
	const struct job *job;
	struct tallies ns; /* {slot, stack} */
	struct array
		samples; /* uint32_t by number of such a pair: how many, where a wait that was timed counts for PLACE_SAMPLES */
	struct intern lines; /* {code, line} */
	struct array frames; /* uint32_t: numbers in `lines`, the outermost frame of a stack first */
	struct array starts; /* uint32_t by stack: its first in `frames`, + 1; 0: not looked at */
};

#define PLACE_SAMPLES 3 /* fewer tell no place */

/* Slots of which samples are taken, and what their sum is divided by. */
struct place_set {
	const bool *slots;
	size_t slot_cnt;
	double steps;
};

/* Where the time is; .ns of spots: of the first set, in the function and what it calls. */
struct place {
	struct spot outer; /* code 0: not known */
	struct spot inner; /* of the same kind, the innermost that has half of it; may be the same */
	bool users;        /* both are the user's own */
	bool rare;         /* the other set hardly calls them */
};

/* 0 or -ENOMEM. A sample without Python frames counts, but is nowhere. */
int places__add(struct places *places, uint32_t slot, const struct sample *sample);

/* Which function has what `more` has beyond `less`? `all` is all that the steps of `less` do, where that is only a part of it. */
struct place_question {
	struct place_set more, less, all;
};

/*
 * A function has the excess when half of what a step of `more` has beyond one of `less` is in it and in what it calls. First
 * such functions that steps of `all` hardly call: the user's own, or else installed ones, of which the outer one is not
 * private. Else the innermost of the user's functions that `all` calls in part of its time; else a line of that kind. 0 or
 * -ENOMEM; place->outer.code is 0 where nothing stands out, or fewer than PLACE_SAMPLES samples of `more` are in it.
 */
int places__find(struct places *places, const struct place_question *ask, struct place *place);

/* Adds to ns[slot], of slot_cnt slots, what of it is in a function and in what that calls. */
void places__in(const struct places *places, uint32_t code, uint64_t *ns, size_t slot_cnt);

/*
 * The line that stands for a stack in which something took its time: the innermost of the user's own in which not nearly all
 * of the set's time is (the call of .train() says nothing); where there is none, the innermost line. Numbers in `lines` by
 * stack, 0: not known; malloc'ed, NULL: no memory.
 */
uint32_t *places__lines(const struct places *places, const struct place_set *set);

void places__free(struct places *places);

/* The one of the two that a user knows best: of the own functions the inner one, of installed ones the outer one. */
const struct spot *place__main(const struct place *place);
/*
 * "train.py:215 estimate_loss"; with another function "train.py:40 eval_batch, in evaluate", or
 * "trainer.py:2543 Trainer.evaluate > Popen._launch". malloc'ed; NULL: no memory.
 */
char *place__text(struct job *job, const struct place *place);

#endif
