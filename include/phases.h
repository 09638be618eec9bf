/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which spans have a phase of their own; any other span inherits the phase of the span around it.
 * BPF classifies spans as they begin; readers of a recording classify the spans around a sample.
 */
#ifndef STEPFLAME_INCLUDE_PHASES_H
#define STEPFLAME_INCLUDE_PHASES_H

#include "include/name_hash.h"
#include "include/records.h"

/*
 * Torch labels, by prefix (torch/utils/data/dataloader.py, torch/optim/optimizer.py,
 * torch/profiler/profiler.py).
 */
enum label { LABEL_USER, LABEL_DATA, LABEL_OPTIMIZER, LABEL_ZERO_GRAD, LABEL_PROFILER_STEP, LABEL_NVTX };

/* `head`: the first 16 bytes of a name, padded with zeros. */
static inline enum label label__classify(const __u64 head[2])
{
	if (head[0] == WORD8("enumerat") && head[1] == WORD8("e(DataLo"))
		return LABEL_DATA;
	if (head[0] == WORD8("Optimize") && head[1] << 40 == WORD8("\0\0\0\0\0r.s"))
		return LABEL_OPTIMIZER;
	if (head[0] == WORD8("Optimize") && head[1] << 40 == WORD8("\0\0\0\0\0r.z"))
		return LABEL_ZERO_GRAD;
	if (head[0] == WORD8("Profiler") && head[1] << 24 == WORD8("\0\0\0Step#"))
		return LABEL_PROFILER_STEP;
	return LABEL_USER;
}

static inline enum phase phase__of_label(enum label label)
{
	switch (label) {
	case LABEL_DATA:
		return PHASE_DATA;
	case LABEL_OPTIMIZER:
	case LABEL_ZERO_GRAD:
		return PHASE_OPTIMIZER;
	default:
		return PHASE_OTHER;
	}
}

/*
 * The last 16 characters of the names of Lightning's actions (lightning/pytorch/trainer/call.py and
 * loops/). A '\0' matches any character, or none.
 */
#define STEPFLAME_ACTION_PHASES(X)              \
	X("_dataloader_next", DATA)             \
	X("train_dataloader", DATA)             \
	X("\0batch_to_device", DATA)            \
	X("\0_batch_transfer", DATA)            \
	X("\0\0.training_step", FORWARD)        \
	X("\0\0\0\0\0\0\0.backward", BACKWARD)  \
	X("\0\0optimizer_step", OPTIMIZER)      \
	X("\0\0\0\0\0\0_zero_grad", OPTIMIZER)  \
	X("radient_clipping", OPTIMIZER)        \
	X("r_scheduler_step", OPTIMIZER)        \
	X("\0save_checkpoint", CHECKPOINT)      \
	X("validation_start", VALIDATION)       \
	X("\0\0\0on_test_start", VALIDATION)    \
	X("on_predict_start", VALIDATION)       \
	X("\0\0\0\0\0_model_eval", VALIDATION)  \
	X("\0\0\0\0\0\0].val_next", VALIDATION) \
	X("\0\0\0\0\0].test_next", VALIDATION)  \
	X("\0\0].predict_next", VALIDATION)     \
	X(".validation_step", VALIDATION)       \
	X("\0\0\0\0\0\0.test_step", VALIDATION) \
	X("\0\0\0.predict_step", VALIDATION)    \
	X("n_validation_end", VALIDATION)       \
	X("\0\0\0\0\0on_test_end", VALIDATION)  \
	X("\0\0on_predict_end", VALIDATION)

#define ANY8(s)                                                                                       \
	(((s)[0] ? 0xffULL : 0) | ((s)[1] ? 0xffULL << 8 : 0) | ((s)[2] ? 0xffULL << 16 : 0) |        \
	 ((s)[3] ? 0xffULL << 24 : 0) | ((s)[4] ? 0xffULL << 32 : 0) | ((s)[5] ? 0xffULL << 40 : 0) | \
	 ((s)[6] ? 0xffULL << 48 : 0) | ((s)[7] ? 0xffULL << 56 : 0))

/*
 * `head`, `tail`: the first and the last 16 bytes of a name; zeros pad `head` at its end and `tail`
 * at its front.
 */
static inline enum phase phase__of_action(const __u64 head[2], const __u64 tail[2])
{
	/*
	 * ModelCheckpoint saves, and removes older checkpoints, at the end of a batch, an epoch or
	 * a validation.
	 */
	if (head[0] == WORD8("[Callbac") && head[1] == WORD8("k]ModelC") && tail[1] >> 32 == WORD8("_end\0\0\0\0"))
		return PHASE_CHECKPOINT;
#define X(end, phase)                                                                                   \
	_Static_assert(sizeof(end) == 17, "16 characters");                                             \
	if (!((tail[1] ^ WORD8((end) + 8)) & ANY8((end) + 8)) && !((tail[0] ^ WORD8(end)) & ANY8(end))) \
		return PHASE_##phase;
	STEPFLAME_ACTION_PHASES(X)
#undef X
	return PHASE_OTHER;
}

/* Is this the last action of Lightning's evaluation loop? The loop itself is not an action. */
static inline int phase__ends_evaluation(const __u64 head[2], const __u64 tail[2])
{
	return head[0] == WORD8("[Strateg") && tail[1] >> 32 == WORD8("_end\0\0\0\0");
}

static inline enum phase phase__of_kind(enum span_kind kind)
{
	switch (kind) {
	case SPAN_FORWARD:
		return PHASE_FORWARD;
	case SPAN_BACKWARD:
		return PHASE_BACKWARD;
	case SPAN_COMM:
		return PHASE_COMM;
	case SPAN_SAVE:
		return PHASE_CHECKPOINT;
	case SPAN_VALIDATION:
		return PHASE_VALIDATION;
	case SPAN_JIT:
		return PHASE_JIT;
	case SPAN_COMPILE:
		return PHASE_COMPILE;
	case SPAN_AWAIT:
		return PHASE_AWAIT;
	case SPAN_TRANSFER:
		return PHASE_TRANSFER;
	default:
		return PHASE_OTHER;
	}
}

/*
 * The phase inside a span of phase `own` within `outer`; in validation only COMM and CHECKPOINT
 * stay apart.
 */
static inline enum phase phase__inside(enum phase outer, enum phase own)
{
	if (own == PHASE_OTHER || (outer == PHASE_VALIDATION && own != PHASE_COMM && own != PHASE_CHECKPOINT))
		return outer;
	return own;
}

#endif
