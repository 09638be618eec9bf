/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Images of interpreters: those words of a process's memory that walks over its threads' stacks read, and what the process says that
 * these are. A file of them is gzipped text: "version minor tss_offset code_type words", for each word, in the order of addresses, a line of its
 * value in hexadecimal, with its distance from the end of the one before it where that is not 0, and what told.h reads.
 */
#ifndef STEPFLAME_TESTS_BPF_NATIVE_IMAGE_H
#define STEPFLAME_TESTS_BPF_NATIVE_IMAGE_H

#include <zlib.h>

#include "tests/bpf/native/told.h"

#define IMAGE_WORDS_MAX (1u << 20)
#define IMAGE_BYTES_MAX (64u << 20)

struct image_word {
	u64 address, value;
	u32 thread;   /* of told.threads: the last that read it */
	bool missing; /* its page is not there */
};

static struct {
	struct image_word *words;
	u32 cnt, thread;
} image;

static int image__compare(const void *a, const void *b)
{
	u64 x = ((const struct image_word *)a)->address, y = ((const struct image_word *)b)->address;

	return x < y ? -1 : x > y;
}

/* ---- making one ---- */

/* Reads a process's memory, and keeps what it reads. */
static inline bool image__keep(void *to, u32 bytes, u64 from)
{
	if (!native__read(to, bytes, from))
		return false;
	for (u64 at = from & ~7ULL; at < from + bytes; at += 8) {
		assert_true(image.cnt < IMAGE_WORDS_MAX);
		image.words[image.cnt].address = at;
		assert_true(native__read(&image.words[image.cnt++].value, 8, at));
	}
	return true;
}

static inline void image__begin(void)
{
	image.words = calloc(IMAGE_WORDS_MAX, sizeof(*image.words));
	assert_non_null(image.words);
	image.cnt = 0;
	native.memory = image__keep;
}

/* Writes all that was read since image__begin, and told, into a new file DIRECTORY/VERSION.gz. */
static inline void image__end(const char *directory, const char *version)
{
	const struct py_process *py = &job.proc->py;
	char path[1024];
	u32 cnt = 0;
	gzFile file;

	qsort(image.words, image.cnt, sizeof(*image.words), image__compare);
	for (u32 i = 0; i < image.cnt; i++)
		if (!i || image.words[i].address != image.words[i - 1].address)
			image.words[cnt++] = image.words[i];
	snprintf(path, sizeof(path), "%s/%s.gz", directory, version);
	file = gzopen(path, "wb9");
	assert_non_null(file);
	gzprintf(file, "%s %d %d %lx %u\n", version, py->layout.minor, py->tss_offset, (long)py->code_type, cnt);
	for (u32 i = 0; i < cnt; i++) {
		u64 gap = image.words[i].address - (i ? image.words[i - 1].address + 8 : 0);

		gzprintf(file, gap ? "%lx %lx\n" : "%lx\n", (long)image.words[i].value, (long)gap);
	}
	for (u32 i = 0; i < TOLD_THREADS; i++) {
		const struct told_thread *t = &told.threads[i];

		gzprintf(file, "%lu\t%u\n", (long)t->thread_pointer, t->cnt);
		for (const struct told_frame *f = t->frames; f < t->frames + t->cnt; f++)
			gzprintf(file, "%s\t%s\t%u\t%d\t%ld\n", f->file, f->name, f->first_line, f->line,
				 (long)f->offset);
	}
	gzprintf(file, "end\n");
	assert_int_equal(gzclose(file), Z_OK);
	free(image.words);
	native.memory = NULL;
}

/* ---- reading one ---- */

static inline struct image_word *image__word(u64 address)
{
	struct image_word key = {.address = address & ~7ULL};

	return bsearch(&key, image.words, image.cnt, sizeof(key), image__compare);
}

static inline bool image__read(void *to, u32 bytes, u64 from)
{
	struct image_word *word = image__word(from);

	memset(to, 0, bytes);
	for (u32 done = 0, part; done < bytes; done += part, word++) {
		u32 at = (from + done) & 7;

		if (!word || word == image.words + image.cnt || word->address != (from + done - at) || word->missing)
			return false;
		part = 8 - at < bytes - done ? 8 - at : bytes - done;
		memcpy((u8 *)to + done, (u8 *)&word->value + at, part);
		word->thread = image.thread;
	}
	return true;
}

/* Takes an image's process for the job, and its threads for those of told. */
static inline void image__load(const char *path)
{
	char *text = malloc(IMAGE_BYTES_MAX);
	gzFile file = gzopen(path, "rb");
	unsigned long code_type, value, gap, address = 0;
	char line[64], version[16];
	s32 tss_offset;
	FILE *from;
	int bytes, minor;

	assert_true(text && file);
	bytes = gzread(file, text, IMAGE_BYTES_MAX);
	assert_true(bytes > 0 && gzclose(file) == Z_OK);
	from = fmemopen(text, (size_t)bytes, "r");
	assert_non_null(from);
	assert_int_equal(fscanf(from, "%15s %d %d %lx %u\n", version, &minor, &tss_offset, &code_type, &image.cnt), 5);
	image.words = calloc(image.cnt, sizeof(*image.words));
	assert_non_null(image.words);
	for (u32 i = 0; i < image.cnt; i++) {
		gap = 0;
		assert_non_null(fgets(line, sizeof(line), from));
		assert_true(sscanf(line, "%lx %lx", &value, &gap) >= 1);
		image.words[i] = (struct image_word){.address = address + gap, .value = value};
		address += gap + 8;
	}
	told__read(from);
	fclose(from);
	free(text);
	job__start(minor);
	job.proc->py.layout = py_internals__find(minor, version[strlen(version) - 1] == 't')->layout;
	job.proc->py.tss_offset = tss_offset;
	job.proc->py.code_type = code_type;
	native.memory = image__read;
}

static inline void image__free(void)
{
	job__stop();
	told__free();
	free(image.words);
}

#endif
