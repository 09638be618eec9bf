// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/recording/trim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "include/name_hash.h"
#include "user/lib/array.h"
#include "user/lib/map.h"
#include "user/recording/descriptors.h"
#include "user/recording/dropped_steps.h"

#define HELD_MAX    (64u << 20)
#define THREADS_MAX 4096 /* whose steps are counted; a rule of a thread takes 4 KB */

struct step_thread {
	struct step_thread_key {
		uint32_t pid, tid;
	} key;
	struct rec_dropped_steps *by_rule[STEP__COUNT]; /* owned; NULL: the thread has not used the rule */
};

struct trim {
	struct stat was;
	struct recording_file source;
	struct read_chunk chunk;
	struct recording_writer *copy;
	uint64_t drop_bytes, state_max;
	struct intern keys;
	struct array last; /* struct rec_hdr *, owned, by number of the key; NULL: KEEP_FIRST, already in the copy */
	size_t last_bytes;
	struct map threads; /* struct step_thread */
	bool copies;        /* the copy has the state, and now takes whole chunks */
	struct rec_dropped dropped;
};

static int open_source(struct trim *trim, int fd)
{
	char self[64];
	uint32_t version;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	trim->source.file = fopen(self, "rbe");
	if (!trim->source.file || fstat(fd, &trim->was))
		return -errno;
	return recording_file__header(&trim->source, &version);
}

int trim__new(int fd, const char *path, uint64_t drop_bytes, uint64_t state_max, struct trim **out)
{
	struct trim *trim = calloc(1, sizeof(*trim));
	int err;

	*out = NULL;
	if (!trim)
		return -ENOMEM;
	trim->drop_bytes = drop_bytes;
	trim->state_max = state_max;
	trim->dropped.hdr = (struct rec_hdr){.type = REC_DROPPED, .size = sizeof(trim->dropped)};
	err = open_source(trim, fd) ?: recording_writer__new_unnamed(path, &trim->copy);
	if (err)
		trim__free(trim);
	else
		*out = trim;
	return err;
}

static void free_threads(struct trim *trim)
{
	struct step_thread *threads = trim->threads.items.items;

	for (size_t i = 0; i < trim->threads.items.cnt; i++)
		for (int rule = 0; rule < STEP__COUNT; rule++)
			free(threads[i].by_rule[rule]);
	map__free(&trim->threads);
}

void trim__free(struct trim *trim)
{
	struct rec_hdr **last;

	if (!trim)
		return;
	last = trim->last.items;
	for (size_t i = 0; i < trim->last.cnt; i++)
		free(last[i]);
	free(last);
	intern__free(&trim->keys);
	free_threads(trim);
	read_chunk__release(&trim->chunk);
	if (trim->source.file)
		fclose(trim->source.file);
	recording_writer__free(trim->copy);
	free(trim);
}

/* ---- what is kept of the dropped part ---- */

static uint64_t key_of(const struct rec_hdr *record, const struct record_descriptor *descriptor)
{
	const char *behind = (const char *)record + record->size;
	size_t bytes = record->size - sizeof(*record);
	uint64_t hash = name_hash__seed(record->type, 0);

	if (descriptor->key_bytes < 0)
		bytes = -descriptor->key_bytes;
	else if ((size_t)descriptor->key_bytes < bytes)
		bytes = descriptor->key_bytes;
	for (const char *at = descriptor->key_bytes < 0 ? behind - bytes : (const char *)(record + 1); bytes;) {
		uint64_t word = 0;
		size_t cnt = bytes < sizeof(word) ? bytes : sizeof(word);

		memcpy(&word, at, cnt);
		hash = name_hash__add(hash, word);
		at += cnt;
		bytes -= cnt;
	}
	return name_hash__end(hash + record->type);
}

static void drop_event(struct trim *trim, const struct rec_hdr *record, const struct record_descriptor *descriptor)
{
	uint64_t time_ns = 0;

	for (size_t i = 0; i < descriptor->field_cnt && !time_ns; i++)
		if (descriptor->fields[i].kind == FIELD_TIME)
			memcpy(&time_ns, (const char *)record + descriptor->fields[i].offset, sizeof(time_ns));
	if (time_ns > trim->dropped.time_ns)
		trim->dropped.time_ns = time_ns;
	trim->dropped.events++;
}

/*
 * The steps of a thread by a rule, new ones too; NULL (counted): too many threads, no memory, or no
 * such rule.
 */
static struct rec_dropped_steps *steps_of(struct trim *trim, uint32_t pid, uint32_t tid, uint32_t rule)
{
	const struct step_thread_key key = {pid, tid};
	struct step_thread *thread = MAP_FIND(&trim->threads, struct step_thread, &key);
	struct rec_dropped_steps **steps;

	if (!thread && trim->threads.items.cnt < THREADS_MAX)
		thread = MAP_ADD(&trim->threads, struct step_thread, &key);
	steps = thread && rule < STEP__COUNT ? &thread->by_rule[rule] : NULL;
	if (steps && !*steps)
		*steps = calloc(1, sizeof(**steps));
	if (!steps || !*steps) {
		trim->dropped.states++;
		return NULL;
	}
	(*steps)->hdr = (struct rec_hdr){.type = REC_DROPPED_STEPS, .size = sizeof(**steps)};
	(*steps)->pid = pid;
	(*steps)->tid = tid;
	(*steps)->rule = rule;
	return *steps;
}

static void add_boundary(struct trim *trim, const struct rec_step *boundary)
{
	const struct step_thread_key key = {boundary->pid, boundary->tid};
	struct step_thread *thread;

	steps_of(trim, boundary->pid, boundary->tid, boundary->rule);
	thread = MAP_FIND(&trim->threads, struct step_thread, &key);
	for (int rule = 0; thread && rule < STEP__COUNT; rule++)
		if (thread->by_rule[rule])
			dropped_steps__add(thread->by_rule[rule], boundary);
}

/* Goes on with what an earlier trim has counted. */
static void add_dropped_steps(struct trim *trim, const struct rec_dropped_steps *earlier)
{
	struct rec_dropped_steps *steps = steps_of(trim, earlier->pid, earlier->tid, earlier->rule);

	if (steps)
		*steps = *earlier;
}

static void add_dropped(struct trim *trim, const struct rec_dropped *earlier)
{
	if (earlier->time_ns > trim->dropped.time_ns)
		trim->dropped.time_ns = earlier->time_ns;
	trim->dropped.events += earlier->events;
	trim->dropped.states += earlier->states;
}

/* Appends it unless the copy has more than max_bytes. 0 or -errno. */
static int append_state(struct trim *trim, const struct rec_hdr *record, uint64_t max_bytes)
{
	if (recording_writer__bytes(trim->copy) <= max_bytes)
		return recording_writer__append(trim->copy, record);
	trim->dropped.states++;
	return 0;
}

static int append_first(struct trim *trim, const struct rec_hdr *record, uint64_t key)
{
	uint64_t max_bytes = trim->state_max / 4 * 3; /* a flood of names must leave room for the rows */
	uint32_t number;

	if (intern__find(&trim->keys, key))
		return 0;
	if (recording_writer__bytes(trim->copy) <= max_bytes && intern__add(&trim->keys, key, &number))
		return -ENOMEM;
	return append_state(trim, record, max_bytes);
}

static int hold_last(struct trim *trim, const struct rec_hdr *record, uint64_t key)
{
	uint32_t number = intern__find(&trim->keys, key);
	struct rec_hdr **slot, *held;
	int err = 0;

	if (trim->last_bytes + record->size > HELD_MAX) {
		trim->dropped.states++;
		return 0;
	}
	if ((!number && intern__add(&trim->keys, key, &number)) || array__grow(&trim->last, number, sizeof(*slot)))
		return -ENOMEM;
	slot = &((struct rec_hdr **)trim->last.items)[number - 1];
	if (*slot && (*slot)->flags & REC_ENDED) /* of a process that had this one's pid: readers add both up */
		err = append_state(trim, *slot, trim->state_max);
	if (err)
		return err;
	trim->last_bytes -= *slot ? (*slot)->size : 0;
	held = realloc(*slot, record->size);
	if (!held)
		return -ENOMEM;
	memcpy(held, record, record->size);
	*slot = held;
	trim->last_bytes += record->size;
	return 0;
}

static int keep_state(const struct rec_hdr *record, void *ctx)
{
	struct trim *trim = ctx;
	const struct record_descriptor *descriptor = record_descriptor__of(record->type);

	if (!descriptor || record->size < descriptor->bytes)
		return 0;
	if (record->type == REC_DROPPED) {
		add_dropped(trim, (const void *)record);
		return 0;
	}
	if (record->type == REC_DROPPED_STEPS) {
		add_dropped_steps(trim, (const void *)record);
		return 0;
	}
	if (record->type == REC_STEP)
		add_boundary(trim, (const void *)record);
	if (descriptor->keep == KEEP_NONE) {
		drop_event(trim, record, descriptor);
		return 0;
	}
	if (descriptor->keep == KEEP_LAST)
		return hold_last(trim, record, key_of(record, descriptor));
	return append_first(trim, record, key_of(record, descriptor));
}

static int keep_states(struct trim *trim, const struct recording_chunk_header *header)
{
	int err = read_chunk__unpack(&trim->chunk, header);

	if (err <= 0)
		return err ?: -EIO;
	return read_chunk__each(&trim->chunk, keep_state, trim);
}

static int end_state(struct trim *trim)
{
	struct rec_hdr *const *last = trim->last.items;
	const struct step_thread *threads = trim->threads.items.items;
	int err = 0;

	if (trim->copies)
		return 0;
	trim->copies = true;
	for (size_t i = 0; i < trim->last.cnt && !err; i++)
		if (last[i])
			err = append_state(trim, last[i], trim->state_max);
	for (size_t i = 0; i < trim->threads.items.cnt; i++)
		for (int rule = 0; rule < STEP__COUNT && !err; rule++)
			if (threads[i].by_rule[rule])
				err = append_state(trim, &threads[i].by_rule[rule]->hdr, trim->state_max);
	return err ?: recording_writer__append(trim->copy, &trim->dropped.hdr);
}

int trim__go(struct trim *trim, uint64_t end, uint64_t bytes)
{
	uint64_t until = end - trim->source.bytes > bytes ? trim->source.bytes + bytes : end;
	int err = 0;

	while (!err && trim->source.bytes < until) {
		struct recording_chunk_header header;
		enum recording_end how;

		err = read_chunk__next(&trim->source, &trim->chunk, &header, &how);
		if (err <= 0)
			return err ?: -EIO; /* another program has written to the file */
		if (trim->source.bytes <= trim->drop_bytes)
			err = keep_states(trim, &header);
		else
			err = end_state(trim) ?: recording_writer__copy(trim->copy, &header, trim->chunk.stored.data);
	}
	return err ?: trim->source.bytes == end;
}

uint64_t trim__drop_bytes(const struct trim *trim)
{
	return trim->drop_bytes;
}

const struct rec_dropped *trim__dropped(const struct trim *trim)
{
	return &trim->dropped;
}

int trim__finish(struct trim *trim, const char *path, struct recording_writer **out)
{
	struct stat is;
	int err;

	*out = NULL;
	if (lstat(path, &is) || is.st_dev != trim->was.st_dev || is.st_ino != trim->was.st_ino)
		return -ESTALE;
	err = recording_writer__keep(trim->copy);
	if (err)
		return err;
	*out = trim->copy;
	trim->copy = NULL;
	return 0;
}
