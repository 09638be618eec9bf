// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* One thread owns a packer. */
#include "user/recording/step_blocks.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define STEP_BLOCK_NS 1000000000ull /* a block spans no longer time, but for its last step */

/* ---- bits ---- */

/*
 * Codes bits by how likely each is, an adaptive binary range coder as in LZMA (7-Zip's
 * specification, "Range Encoder"). The same calls write and read: where a coder reads, a call
 * ignores the bit that it is given, and returns the one that it has read. So one function describes
 * both ways of a format, and they cannot differ.
 */
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

#define ODDS_BITS   12
#define ODDS_ONE    (1 << ODDS_BITS)
#define BIT_EVEN    (ODDS_ONE / 2)
#define LEAN_MAX    (BIT_EVEN - 32) /* nothing is certain */
#define SEEN_MAX    30              /* from then on a bit moves the odds by a 32nd */
#define RANGE_MIN   (1u << 24)
#define START_BYTES 5 /* the first is 0 */

static void bit_coder__write(struct bit_coder *coder, unsigned char *out, size_t room)
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

/* Does not change `in`. */
static void bit_coder__read(struct bit_coder *coder, const unsigned char *in, size_t bytes)
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

static void widen_range(struct bit_coder *coder)
{
	while (coder->range < RANGE_MIN) {
		coder->range <<= 8;
		if (coder->reads)
			coder->code = coder->code << 8 | next_byte(coder);
		else
			shift_low(coder);
	}
}

static void learn_bit(struct bit_odds *odds, unsigned int bit)
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

static unsigned int bit_coder__bit(struct bit_coder *coder, struct bit_odds *odds, unsigned int bit)
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
	widen_range(coder);
	learn_bit(odds, bit);
	return bit;
}

/* The low `cnt` bits of a value, each as likely 0 as 1. */
static uint64_t bit_coder__even_bits(struct bit_coder *coder, unsigned int cnt, uint64_t value)
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
		widen_range(coder);
	}
	return got;
}

/* Ends what was written. Returns its bytes. */
static size_t bit_coder__end(struct bit_coder *coder, const unsigned char *out)
{
	for (int i = 0; i < START_BYTES; i++)
		shift_low(coder);
	return coder->at - out;
}

#define SETTLED  7   /* from its 7th number on a median moves by 1/128 at most */
#define SLOWEST  256 /* ns by which it can always move */
#define PART_MAX ((1ull << STEP_PART_BITS) - 1)

/* ---- steps: how likely the numbers of a step are, given those of the steps before it ---- */

#define STEP_QUANTA 64

/* Quantum i: 0 is 1 ns, others (4 + i % 4) << i / 4 quarters of a ns; those below 8 do not exist. */
#define STEP_QUANTUM_FIRST 8

#define SIZE_BITS          6
#define ROW_MAX            12

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

static uint64_t step_quantum__ns(unsigned int quantum)
{
	return quantum ? (4 + (uint64_t)quantum % 4) << quantum / 4 >> 2 : 1;
}

/* So that outliers move it no more than others. */
static void follow_median(struct part_model *part, uint64_t ns, uint64_t unit_ns)
{
	int64_t limit = part->expected_ns >> (part->seen < SETTLED ? part->seen : SETTLED);
	int64_t move = (int64_t)(ns - part->expected_ns) / 4;

	if (!part->seen++) {
		part->expected_ns = ns;
		return;
	}
	if (limit < (int64_t)(unit_ns / 2))
		limit = unit_ns / 2;
	if (limit < SLOWEST)
		limit = SLOWEST;
	if (move > limit)
		move = limit;
	part->expected_ns += move < -limit ? -limit : move;
}

static unsigned int code_size(struct bit_coder *coder, struct bit_odds *tree, unsigned int size)
{
	unsigned int node = 1;

	for (int i = SIZE_BITS - 1; i >= 0; i--)
		node = node << 1 | bit_coder__bit(coder, &tree[node], size >> i & 1);
	return node - (1 << SIZE_BITS);
}

/* *size: bits of the difference. */
static int64_t code_difference(struct part_model *part, struct bit_coder *coder, struct bit_odds *tree,
			       int64_t difference, unsigned int *size)
{
	uint64_t absolute = difference < 0 ? -difference : difference, lead = 1;
	unsigned int left;
	bool minus;

	*size = code_size(coder, tree, absolute ? 64 - __builtin_clzll(absolute) : 0);
	coder->bad |= *size > STEP_PART_BITS;
	if (!*size || coder->bad)
		return 0;
	minus = bit_coder__bit(coder, &part->sign[*size], difference < 0);
	left = *size - 1;
	if (left) {
		left--;
		lead = lead << 1 | bit_coder__bit(coder, &part->next[*size][minus], absolute >> left & 1);
	}
	absolute = lead << left | bit_coder__even_bits(coder, left, absolute);
	return minus ? -(int64_t)absolute : (int64_t)absolute;
}

static bool code_part(struct part_model *part, struct bit_coder *coder, uint64_t unit_ns, unsigned int *row,
		      uint64_t *ns)
{
	struct bit_odds *tree = part->size[unit_ns == 1][*row < ROW_MAX ? *row : ROW_MAX];
	int64_t expected = part->expected_ns / unit_ns;
	int64_t number = coder->reads ? 0 : (int64_t)(*ns / unit_ns) - expected;

	number = expected + code_difference(part, coder, tree, number, row);
	if (number < 0 || (uint64_t)number > PART_MAX / unit_ns)
		return false;
	*ns = number * unit_ns;
	follow_median(part, *ns, unit_ns);
	return true;
}

/*
 * Codes the step's quantum, and its parts in nanoseconds, multiples of their units. false: what was
 * read is not sound.
 */
static bool step_model__code(struct step_model *model, struct bit_coder *coder, unsigned int *quantum,
			     uint64_t parts_ns[STEP_PARTS])
{
	bool changes = !coder->reads && *quantum != model->quantum;
	unsigned int row = 0;
	uint64_t ns;

	if (bit_coder__bit(coder, &model->same, changes))
		*quantum = bit_coder__even_bits(coder, SIZE_BITS, *quantum);
	else
		*quantum = model->quantum;
	if (*quantum && *quantum < STEP_QUANTUM_FIRST)
		return false;
	if (*quantum)
		model->quantum = *quantum;
	ns = step_quantum__ns(*quantum);
	for (unsigned int i = 0; i < STEP_PARTS; i++) {
		if (!(model->parts >> i & 1) || i == model->rest)
			continue;
		if (!code_part(&model->part[i], coder, *quantum ? ns * STEP_COARSER : 1, &row, &parts_ns[i]))
			return false;
	}
	return code_part(&model->part[model->rest], coder, ns, &row, &parts_ns[model->rest]) && !coder->bad;
}

/* ---- blocks ---- */

#define THREADS_MAX  64  /* packed at the same time */
#define STEP_CNT_MIN 4   /* fewer take no less in a block */
#define STEP_BYTES   200 /* that one takes in the payload at most: 13 parts of 8 bits of odds, 7 bits each, and 38 */
#define END_BYTES    16
#define SUM_MAX      (1ull << (STEP_PART_BITS - 1)) /* a step of 9 minutes is no matter of size */

/* Times that add up to a step, as step_blocks.h numbers them. */
struct step_parts {
	uint64_t ns[STEP_PARTS];
	uint64_t sum_ns;
};

struct step_thread {
	uint32_t pid, tid;
	size_t cnt, room;
	struct rec_step *steps;
	/* By which a part in the blocks so far is shorter than it was; 0 but where a block's last step had no room for it. */
	uint64_t lag_ns[STEP_PARTS];
	uint32_t rest;
};

struct step_packer {
	int (*sink)(const struct rec_hdr *record, void *ctx);
	void *ctx;
	struct step_thread threads[THREADS_MAX];
	size_t thread_cnt;
	size_t last; /* the thread of the last step */
};

/* false: this step does not fit into a block. */
static bool split_step(const struct rec_step *step, struct step_parts *parts)
{
	*parts = (struct step_parts){0};
	if (step->hdr.size != sizeof(*step) || step->hdr.flags || step->forward_ns > step->phase_ns[PHASE_OTHER])
		return false;
	parts->ns[0] = step->forward_ns;
	for (int p = 0; p < PHASE__COUNT; p++) {
		if (step->phase_ns[p] >= SUM_MAX)
			return false;
		parts->ns[1 + p] = step->phase_ns[p] - (p == PHASE_OTHER ? step->forward_ns : 0);
		parts->sum_ns += step->phase_ns[p];
	}
	return parts->sum_ns < SUM_MAX && step->time_ns >= parts->sum_ns;
}

static bool follows(const struct rec_step *step, const struct rec_step *before)
{
	struct step_parts parts;

	return split_step(step, &parts) && step->rule == before->rule && step->serial == before->serial + 1 &&
	       step->index == before->index + 1 && step->time_ns - before->time_ns == parts.sum_ns;
}

/* ---- one block ---- */

struct packing {
	struct step_thread *thread;
	struct step_model *model;
	struct bit_coder coder;
	uint64_t lag_ns; /* by which the last boundary's time is too early */
};

/*
 * The parts of the block, and which is the rest: the longest of those that nearly all steps have, so
 * that steps without it, which are exact, are few.
 */
static void measure_parts(struct packing *packing)
{
	const struct step_thread *thread = packing->thread;
	struct step_model *model = packing->model;
	uint64_t sums[STEP_PARTS] = {0};
	size_t cnts[STEP_PARTS] = {0}, nearly_all = thread->cnt - thread->cnt / 8;
	bool lags = false;

	for (size_t i = 0; i < thread->cnt; i++) {
		struct step_parts parts;

		split_step(&thread->steps[i], &parts);
		for (int p = 0; p < STEP_PARTS; p++)
			sums[p] += parts.ns[p], cnts[p] += parts.ns[p] > 0;
	}
	for (uint32_t p = 0; p < STEP_PARTS; p++) {
		bool often = cnts[p] >= nearly_all, rest_often = cnts[model->rest] >= nearly_all;

		lags |= thread->lag_ns[p] > 0;
		model->parts |= (sums[p] > 0) << p;
		if (often != rest_often ? often : sums[p] > sums[model->rest])
			model->rest = p;
	}
	if (lags)
		model->rest = thread->rest; /* which lags by less than 0 */
	model->parts |= 1u << model->rest;
}

/* The coarsest quantum for a step and the one behind it: the last one, if it is not half as fine. 0: exact. */
static unsigned int choose_quantum(const struct step_model *model, uint64_t ns, uint64_t next_ns)
{
	uint64_t most = (ns < next_ns ? ns : next_ns) / STEP_FINENESS, last = step_quantum__ns(model->quantum);
	unsigned int quantum = 0;

	if (ns >= STEP_EXACT_NS || next_ns >= STEP_EXACT_NS)
		return 0;
	if (model->quantum && last <= most && most < 2 * last)
		return model->quantum;
	for (unsigned int i = STEP_QUANTUM_FIRST; i < STEP_QUANTA && step_quantum__ns(i) <= most; i++)
		quantum = i;
	return quantum;
}

/* false: the step has no rest, or one too short to take what the others leave. */
static bool round_parts(struct packing *packing, const struct step_parts *parts, unsigned int quantum,
			struct step_parts *out)
{
	uint64_t quantum_ns = step_quantum__ns(quantum), unit_ns = quantum_ns * STEP_COARSER;
	uint64_t left_ns = (parts->sum_ns + packing->lag_ns) / quantum_ns * quantum_ns;
	uint32_t rest = packing->model->rest;

	if (!parts->ns[rest])
		return false;
	*out = (struct step_parts){.sum_ns = left_ns};
	for (uint32_t p = 0; p < STEP_PARTS; p++) {
		if (parts->ns[p])
			out->ns[p] = (parts->ns[p] + packing->thread->lag_ns[p]) / unit_ns * unit_ns;
		if (p == rest || !(packing->model->parts >> p & 1))
			continue;
		if (out->ns[p] > left_ns)
			return false;
		left_ns -= out->ns[p];
	}
	out->ns[rest] = left_ns;
	return true;
}

/* A step that has none of a part gets none of its lag: the last step that has some gets all of it. */
static bool is_last_of_a_part(const struct packing *packing, const struct step_parts *parts,
			      const struct rec_step *next)
{
	struct step_parts after;

	split_step(next, &after);
	for (uint32_t p = 0; p < STEP_PARTS; p++)
		if (parts->ns[p] && !after.ns[p])
			return true;
	return false;
}

/* The step as it is, and with the lag of the steps before it, as far as there is room for that. */
static void catch_up(const struct packing *packing, const struct step_parts *parts, struct step_parts *out)
{
	const uint64_t *lag_ns = packing->thread->lag_ns;
	uint32_t rest = packing->model->rest;

	*out = *parts;
	out->sum_ns += packing->lag_ns;
	out->ns[rest] += packing->lag_ns;
	for (uint32_t p = 0; p < STEP_PARTS && parts->sum_ns < STEP_EXACT_NS; p++) {
		if (p == rest || !parts->ns[p] || lag_ns[p] > out->ns[rest])
			continue;
		out->ns[p] += lag_ns[p];
		out->ns[rest] -= lag_ns[p];
	}
}

/* next: NULL at the end of the block. */
static bool pack_step(struct packing *packing, const struct rec_step *step, const struct rec_step *next)
{
	uint64_t *lag_ns = packing->thread->lag_ns;
	struct step_model *model = packing->model;
	struct step_parts parts, out;
	unsigned int quantum = 0;

	split_step(step, &parts);
	if (next && !is_last_of_a_part(packing, &parts, next))
		quantum = choose_quantum(model, parts.sum_ns, next->time_ns - step->time_ns);
	if (!quantum || !round_parts(packing, &parts, quantum, &out)) {
		quantum = 0;
		catch_up(packing, &parts, &out);
	}
	packing->lag_ns += parts.sum_ns - out.sum_ns;
	for (uint32_t p = 0; p < STEP_PARTS; p++)
		if (p != model->rest && model->parts >> p & 1)
			lag_ns[p] += parts.ns[p] - out.ns[p];
	return step_model__code(model, &packing->coder, &quantum, out.ns);
}

/* Returns a block with the thread's steps, to be freed; NULL: no memory or room. */
static struct rec_steps *make_block(struct step_thread *thread)
{
	struct packing packing = {.thread = thread, .model = calloc(1, sizeof(*packing.model))};
	size_t cnt = thread->cnt, room = cnt * STEP_BYTES + END_BYTES, bytes;
	const struct rec_step *steps = thread->steps;
	struct rec_steps *block = malloc(sizeof(*block) + room + 8);
	struct step_parts first;

	if (!packing.model || !block)
		goto fail;
	split_step(&steps[0], &first);
	measure_parts(&packing);
	*block = (struct rec_steps){.pid = thread->pid,
				    .tid = thread->tid,
				    .rule = steps->rule,
				    .serial = steps->serial,
				    .index = steps->index,
				    .base_ns = steps->time_ns - first.sum_ns,
				    .step_cnt = cnt,
				    .parts = packing.model->parts,
				    .rest = packing.model->rest};
	bit_coder__write(&packing.coder, block->payload, room);
	for (size_t i = 0; i < cnt; i++)
		pack_step(&packing, &steps[i], i + 1 < cnt ? &steps[i + 1] : NULL);
	bytes = bit_coder__end(&packing.coder, block->payload);
	thread->rest = packing.model->rest;
	if (packing.coder.bad)
		goto fail;
	free(packing.model);
	block->bytes = bytes < cnt ? cnt : bytes;
	block->hdr.type = REC_STEPS;
	block->hdr.size = (sizeof(*block) + block->bytes + 7) / 8 * 8;
	memset(block->payload + bytes, 0, block->hdr.size - sizeof(*block) - bytes);
	return block;
fail:
	free(packing.model);
	free(block);
	return NULL;
}

/* ---- all threads ---- */

static int flush_thread(struct step_packer *packer, struct step_thread *thread)
{
	struct rec_steps *block = NULL;
	int err = 0;

	if (thread->cnt >= STEP_CNT_MIN)
		block = make_block(thread);
	if (block)
		err = packer->sink(&block->hdr, packer->ctx);
	for (size_t i = 0; i < thread->cnt && !block && !err; i++)
		err = packer->sink(&thread->steps[i].hdr, packer->ctx);
	free(block);
	thread->cnt = 0;
	return err;
}

/* The thread's slot, which may be that of the thread with most steps, flushed. */
static struct step_thread *thread_of(struct step_packer *packer, uint32_t pid, uint32_t tid, int *err)
{
	struct step_thread *thread = &packer->threads[packer->last], *most = packer->threads;

	if (packer->thread_cnt && thread->pid == pid && thread->tid == tid)
		return thread;
	for (size_t i = 0; i < packer->thread_cnt; i++) {
		thread = &packer->threads[i];
		packer->last = i;
		if (thread->pid == pid && thread->tid == tid)
			return thread;
		if (thread->cnt > most->cnt)
			most = thread;
	}
	if (packer->thread_cnt < THREADS_MAX) {
		thread = &packer->threads[packer->thread_cnt++];
	} else {
		thread = most;
		*err = flush_thread(packer, thread);
		memset(thread->lag_ns, 0, sizeof(thread->lag_ns));
	}
	thread->pid = pid;
	thread->tid = tid;
	packer->last = thread - packer->threads;
	return thread;
}

static int grow_thread(struct step_thread *thread)
{
	size_t room = thread->room ? 2 * thread->room : 64;
	struct rec_step *steps;

	if (thread->cnt < thread->room)
		return 0;
	steps = realloc(thread->steps, room * sizeof(*steps));
	if (!steps)
		return -ENOMEM;
	thread->steps = steps;
	thread->room = room;
	return 0;
}

int step_packer__add(struct step_packer *packer, const struct rec_hdr *record)
{
	const struct rec_step *step = (const void *)record;
	struct step_parts parts;
	int err = 0;
	struct step_thread *thread = thread_of(packer, step->pid, step->tid, &err);
	bool fits = split_step(step, &parts);

	if (!err && thread->cnt && !follows(step, &thread->steps[thread->cnt - 1]))
		err = flush_thread(packer, thread);
	if (!err && !fits)
		return packer->sink(record, packer->ctx);
	err = err ?: grow_thread(thread);
	if (err)
		return err;
	thread->steps[thread->cnt++] = *step;
	if (thread->cnt == STEP_BLOCK_MAX || step->time_ns - thread->steps->time_ns >= STEP_BLOCK_NS)
		err = flush_thread(packer, thread);
	return err;
}

int step_packer__flush(struct step_packer *packer)
{
	int err = 0;

	for (size_t i = 0; i < packer->thread_cnt && !err; i++)
		err = flush_thread(packer, &packer->threads[i]);
	return err;
}

struct step_packer *step_packer__new(int (*sink)(const struct rec_hdr *record, void *ctx), void *ctx)
{
	struct step_packer *packer = calloc(1, sizeof(*packer));

	if (packer) {
		packer->sink = sink;
		packer->ctx = ctx;
	}
	return packer;
}

void step_packer__free(struct step_packer *packer)
{
	if (!packer)
		return;
	for (size_t i = 0; i < packer->thread_cnt; i++)
		free(packer->threads[i].steps);
	free(packer);
}

/* ---- unpacking ---- */

static bool is_sound(const struct rec_steps *block)
{
	return block->hdr.size >= sizeof(*block) && block->bytes <= block->hdr.size - sizeof(*block) &&
	       block->step_cnt <= STEP_BLOCK_MAX && block->step_cnt <= block->bytes && block->rest < STEP_PARTS &&
	       !(block->parts >> STEP_PARTS) && block->parts >> block->rest & 1;
}

int steps__decode(const struct rec_hdr *record, struct rec_step *out, size_t *cnt)
{
	const struct rec_steps *block = (const void *)record;
	struct step_model *model;
	struct bit_coder coder;
	uint64_t time_ns;
	bool sound = true;

	*cnt = 0;
	if (record->size < sizeof(*block) || !is_sound(block))
		return -EBADMSG;
	model = calloc(1, sizeof(*model));
	if (!model)
		return -ENOMEM;
	model->parts = block->parts;
	model->rest = block->rest;
	bit_coder__read(&coder, block->payload, block->bytes);
	time_ns = block->base_ns;
	for (uint32_t i = 0; i < block->step_cnt && sound; i++) {
		uint64_t parts[STEP_PARTS] = {0};
		struct rec_step *step = &out[i];
		unsigned int quantum = 0;

		sound = step_model__code(model, &coder, &quantum, parts);
		*step = (struct rec_step){.hdr = {.type = REC_STEP, .size = sizeof(*step)},
					  .index = block->index + i,
					  .pid = block->pid,
					  .rule = block->rule,
					  .tid = block->tid,
					  .serial = block->serial + i,
					  .forward_ns = parts[0]};
		parts[1 + PHASE_OTHER] += parts[0];
		memcpy(step->phase_ns, parts + 1, sizeof(step->phase_ns));
		for (int p = 0; p < PHASE__COUNT; p++)
			time_ns += step->phase_ns[p];
		step->time_ns = time_ns;
	}
	free(model);
	*cnt = sound ? block->step_cnt : 0;
	return sound ? 0 : -EBADMSG;
}
