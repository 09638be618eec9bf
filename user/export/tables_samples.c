// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The tables of samples, added up by minute, and of their stacks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/export/tables_private.h"
#include "user/lib/intern.h"
#include "user/lib/map.h"

/* Of a sample: the number of its stack, or without Python frames its native function, a REC_NAME id. */
struct stack_key {
	uint64_t stack, native;
};

/* ---- stacks ---- */

/* "train.py:42 main": malloc'ed; NULL: no memory. */
static char *frame_text(struct job *job, const struct frame *frame)
{
	struct code code = stacks__code(job__stacks(job), frame->code);
	struct hotspot line = {.code = frame->code, .line = code__line(&code, frame->offset), .ns = 1};

	return hotspot__text(job, &line);
}

/* What the frames of a stack are called: the same on all hosts, so that a hash of them tells stacks apart. */
struct frame_texts {
	char **texts; /* outermost first */
	size_t cnt;
};

static void release_texts(struct frame_texts *texts)
{
	for (size_t i = 0; i < texts->cnt; i++)
		free(texts->texts[i]);
	free(texts->texts);
}

static int make_texts(struct job *job, const struct stack_key *key, struct frame_texts *out)
{
	struct stack stack = stacks__stack(job__stacks(job), key->stack);
	const char *native = key->native ? job__name_or_lost(job, key->native) : NULL;

	*out = (struct frame_texts){.texts = calloc(stack.cnt + 1, sizeof(*out->texts))};
	if (!out->texts)
		return -ENOMEM;
	for (size_t i = stack.cnt; i-- > 0;) {
		char *text = frame_text(job, &stack.frames[i]);

		if (!text)
			return -ENOMEM;
		out->texts[out->cnt++] = text;
	}
	if (!stack.cnt) {
		out->texts[0] = strdup(native ?: "(no Python frames)");
		out->cnt = out->texts[0] != NULL;
	}
	return out->cnt ? 0 : -ENOMEM;
}

/* FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv/), of the texts with the 0 behind each. */
static int64_t hash_of(const struct frame_texts *texts)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < texts->cnt; i++)
		for (const char *c = texts->texts[i];; c++) {
			hash = (hash ^ (uint8_t)*c) * 0x100000001b3ull;
			if (!*c)
				break;
		}
	return hash;
}

/* The hash of a stack. */
struct stack_id {
	struct stack_key key;
	int64_t id;
};

/* `ids`: those that are known already, struct stack_id. 0 or -ENOMEM. */
static int find_id(struct tables *tables, const struct sample *sample, struct map *ids, const struct stack_id **out)
{
	struct stack stack = stacks__stack(job__stacks(tables->job), sample->stack);
	const struct stack_key key = {.stack = stack.known ? sample->stack : 0,
				      .native = stack.known && stack.cnt ? 0 : sample->native};
	struct frame_texts texts;
	struct stack_id *id;
	int err;

	*out = MAP_FIND(ids, struct stack_id, &key);
	if (*out)
		return 0;
	err = make_texts(tables->job, &key, &texts);
	*out = id = err ? NULL : MAP_ADD(ids, struct stack_id, &key);
	if (id)
		id->id = hash_of(&texts);
	release_texts(&texts);
	return id ? 0 : -ENOMEM;
}

/* Calls fn with each sample of the tables' processes, until it returns nonzero, and returns that. 0 or -ENOMEM. */
static int each_sample(struct tables *tables,
		       int (*fn)(struct tables *tables, const struct minutes_of *of, const struct sample *sample,
				 const struct stack_id *id, void *ctx),
		       void *ctx)
{
	const struct samples *samples = job__samples(tables->job);
	struct map ids = {0};
	int err = samples ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < samples__cnt(samples); i++) {
		struct sample sample = samples__get(samples, i);
		const struct minutes_of *of = tables__of(tables, sample.pid);
		const struct stack_id *id;

		if (!of)
			continue;
		err = find_id(tables, &sample, &ids, &id);
		if (!err)
			err = fn(tables, of, &sample, id, ctx);
	}
	map__free(&ids);
	return err;
}

static const struct arrow_column stack_columns[] = {
	COLUMN("stack", INT64),
	COLUMN("frames", TEXTS),
};

struct put_stacks {
	struct arrow *arrow;
	struct intern done; /* ids; different instructions of one line are one stack */
};

static int put_stack(struct tables *tables, const struct minutes_of *of, const struct sample *sample,
		     const struct stack_id *id, void *ctx)
{
	struct put_stacks *put = ctx;
	struct frame_texts texts;
	uint32_t number;
	int err;

	if (intern__find(&put->done, id->id))
		return 0;
	err = intern__add(&put->done, id->id, &number) ?: make_texts(tables->job, &id->key, &texts);
	if (err)
		return err;
	arrow__int(put->arrow, id->id);
	for (size_t i = 0; i < texts.cnt; i++)
		arrow__item(put->arrow, texts.texts[i]);
	arrow__end_list(put->arrow);
	arrow__end_row(put->arrow);
	release_texts(&texts);
	return 0;
}

static int put_stacks(struct tables *tables, struct arrow *arrow)
{
	struct put_stacks put = {.arrow = arrow};
	int err = each_sample(tables, put_stack, &put);

	intern__free(&put.done);
	return err;
}

const struct table table_stacks = {COLUMNS(stack_columns), put_stacks};

/* ---- samples ---- */

static const struct arrow_column sample_columns[] = {
	KEY_COLUMNS,          COLUMN("minute", TIME),     NULLABLE("phase", TEXT),
	COLUMN("main", BOOL), NULLABLE("cause", TEXT),    COLUMN("stack", INT64),
	COLUMN("n", INT64),   COLUMN("weight_ns", INT64),
};

struct sample_row {
	struct {
		int64_t minute, stack;
		uint32_t pid;
		uint16_t cause;
		int16_t phase; /* -1: not the thread that makes the steps */
	} key;
	uint64_t cnt, weight_ns;
};

static int add_sample(struct tables *tables, const struct minutes_of *of, const struct sample *sample,
		      const struct stack_id *id, void *rows)
{
	bool main = of->track && sample->thread == of->track->thread;
	struct sample_row *row;
	const __typeof__(row->key) key = {
		.minute = job__minute(tables->job, sample->time_ns),
		.stack = id->id,
		.pid = sample->pid,
		.cause = sample->cause,
		.phase = main ? (int16_t)step_track__phase(of->track, tables->steps, sample) : -1,
	};

	row = MAP_ADD((struct map *)rows, struct sample_row, &key);
	if (!row)
		return -ENOMEM;
	row->cnt += sample->waits ?: 1;
	row->weight_ns += sample->weight_ns;
	return 0;
}

static int put_samples(struct tables *tables, struct arrow *arrow)
{
	struct map rows = {0};
	int err = each_sample(tables, add_sample, &rows);
	const struct sample_row *all = rows.items.items;

	for (size_t i = 0; i < rows.items.cnt && !err; i++) {
		const struct sample_row *row = &all[i];

		tables__put_key(tables, tables__of(tables, row->key.pid), arrow);
		tables__put_minute(arrow, row->key.minute);
		arrow__text(arrow, row->key.phase < 0 ? NULL : phase__name(row->key.phase));
		arrow__int(arrow, row->key.phase >= 0);
		arrow__text(arrow, row->key.cause ? sample_cause__name(row->key.cause) : NULL);
		arrow__int(arrow, row->key.stack);
		arrow__int(arrow, row->cnt);
		arrow__int(arrow, row->weight_ns);
		arrow__end_row(arrow);
	}
	map__free(&rows);
	return err;
}

const struct table table_samples = {COLUMNS(sample_columns), put_samples};
