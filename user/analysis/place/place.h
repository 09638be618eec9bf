/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which code samples are in: its kind, its system call, its line, its function.
 *
 * Finds the function that holds the time by which one set of samples exceeds another: slow steps
 * against ordinary ones, a straggler against the other ranks. Takes samples, each in a slot, and
 * returns a function, as a user would name it. Refers to the job, which must not take records
 * meanwhile.
 */
#ifndef STEPFLAME_USER_ANALYSIS_PLACE_PLACE_H
#define STEPFLAME_USER_ANALYSIS_PLACE_PLACE_H

#include <stdint.h>

#include "user/lib/histograms.h"
#include "user/model/job.h"
#include "user/model/samples.h"

struct job;

/* A line of source. */
struct hotspot {
	uint32_t code; /* number for stacks__code; 0: no code */
	uint32_t line; /* 0: not known */
	uint64_t ns;   /* time of its samples; 0: no hotspot */
	uint64_t file; /* the file that took most of it: REC_NAME id of its path; 0: no file, or not known */
};

/* "train.py:42 Rows.__getitem__" for a valid hotspot; malloc'ed; NULL: no memory. */
char *hotspot__text(struct job *job, const struct hotspot *hotspot);

/* Whether a function (a number for stacks__code) is the user's own: user/model/stacks.h. Needs job__samples. */
bool place__is_users(const struct job *job, uint32_t code);

/* All zeros except the job: empty. */
struct places {
	const struct job *job;
	struct histograms ns; /* {slot, stack} */
	struct array samples; /* uint32_t by number of that pair: samples; a timed wait counts as PLACE_SAMPLES */
	struct intern lines;  /* {code, line} */
	struct array frames;  /* uint32_t: numbers in `lines`, for each stack the outermost frame first */
	struct array starts;  /* uint32_t by stack: 1 + index of its first in `frames`; 0: not looked at */
};

#define PLACE_SAMPLES 3 /* fewer do not give a place */

/* The slots whose samples count, and the divisor of their sum. */
struct place_set {
	const bool *slots;
	size_t slot_cnt;
	double steps;
};

/*
 * Where the time is. The .ns of its hotspots: time of the first set in the function and its
 * callees.
 */
struct place {
	struct hotspot outer; /* code 0: not known */
	struct hotspot inner; /* the innermost function of the same kind that has the excess; may equal `outer` */
	bool users;           /* both are the user's own functions */
	bool rare;            /* the other set hardly calls them */
};

/* A sample without Python frames counts in the totals, but has no place. 0 or -ENOMEM. */
int places__add(struct places *places, uint32_t slot, const struct sample *sample);

/*
 * Asks which function has the excess of `more` over `less`. `all`: everything that the steps of
 * `less` do, if `less` is only a part of it.
 */
struct place_question {
	struct place_set more, less, all;
};

/*
 * A function has the excess if it and its callees hold half of what a step of `more` takes beyond
 * one of `less`. Prefers functions that steps of `all` hardly call: the user's own, then installed
 * ones, of which the outer one is not private. Else takes the innermost of the user's functions
 * that `all` calls in part of its time, else such a line. 0 or -ENOMEM; place->outer.code is 0 if
 * nothing stands out, or if fewer than PLACE_SAMPLES samples of `more` are in it.
 */
int places__find(struct places *places, const struct place_question *ask, struct place *place);

/* Adds to ns[slot], for slot_cnt slots, the time in a function and its callees. */
void places__in(const struct places *places, uint32_t code, uint64_t *ns, size_t slot_cnt);

/*
 * Chooses the line that represents each stack: the innermost of the user's own lines, except lines
 * that hold nearly all of the set's time (the call of .train() says nothing); without one, the
 * innermost line. Returns numbers in `lines` by stack, 0: not known; malloc'ed; NULL: no memory.
 */
uint32_t *places__lines(const struct places *places, const struct place_set *set);

void places__free(struct places *places);

/*
 * The hotspot that a user knows best: the inner one of user functions, the outer one of installed
 * functions.
 */
const struct hotspot *place__main(const struct place *place);
/*
 * "train.py:215 estimate_loss"; with another function "train.py:40 eval_batch, in evaluate", or
 * "trainer.py:2543 Trainer.evaluate > Popen._launch". malloc'ed; NULL: no memory.
 */
char *place__text(struct job *job, const struct place *place);

/* ---- hotspots: the source lines that hold the samples, one line per stack, as chosen by places__lines ---- */

/* All zeros except the first two fields, which must outlive it: empty. */
struct hotspots {
	const struct places *places; /* contains all the stacks */
	const uint32_t *lines;       /* its places__lines */
	struct histograms by_line;
	struct intern file_ids;
	struct histograms files; /* by number in `by_line.keys` */
};

/* 0 or -ENOMEM. Ignores samples without Python frames. */
int hotspots__add(struct hotspots *hotspots, uint32_t slot, const struct sample *sample);
/* Fills top[slot * cnt] with the `cnt` longest hotspots of each slot. 0 or -ENOMEM. */
int hotspots__top(const struct hotspots *hotspots, size_t slot_cnt, size_t cnt, struct hotspot *top);
void hotspots__free(struct hotspots *hotspots);

/* "read"; NULL for a number that the build's headers did not define. */
const char *syscall__name(uint32_t number);

/* What a thread did on the CPU when the timer sampled it. */
enum cpu_class {
	CPU_PYTHON, /* the interpreter */
	CPU_OP, /* torch, and the libraries that it calls; in the model's phases also what others call, too: libc, BLAS */
	CPU_NATIVE, /* other native code, such as numpy's */
	CPU_KERNEL,
	CPU__COUNT,
};

/*
 * Whether a symbol (REC_NAME id, or 0) belongs to the interpreter: its time then counts as the
 * Python function's.
 */
bool cpu_class__is_interpreter(const struct job *job, uint64_t native);
enum cpu_class cpu_class__of(const struct job *job, const struct sample *sample, enum phase phase);

#endif
