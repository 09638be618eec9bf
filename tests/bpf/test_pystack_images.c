/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks over Python stacks (bpf/pystack.h) in images of real interpreters, tests/data/pystack: as they were, with each word in turn not
 * there (its page is swapped out, say), and with each word wrong. test_pystack_live.c makes them.
 */
#include "tests/bpf/native/image.h"

#include <glob.h>

#define IMAGES_MAX 32
#define DEEP_SHARE 16 /* of the words of the deepest stack one in so many is tried: its frames are all alike */
#define WRONG      0x5a5a5a5a5a5a5a5aULL

static int setup_image(void **state)
{
	seed = environment("STEPFLAME_SEED", 1);
	image__load(*state);
	return 0;
}

static int teardown_image(void **state)
{
	(void)state;
	image__free();
	return 0;
}

static void test_as_it_was(void **state)
{
	(void)state;
	told__expect_all();
}

/* Calls try(word, its thread) for the words, of a walk that has met none of the functions. */
static void each_word(void (*try)(struct image_word *word, const struct told_thread *t))
{
	for (image.thread = 0; image.thread < TOLD_THREADS; image.thread++) {
		told__forget();
		told__expect(&told.threads[image.thread]);
	}
	for (u32 i = 0; i < image.cnt; i++) {
		const struct told_thread *t = &told.threads[image.words[i].thread];

		image.thread = image.words[i].thread;
		if (t->cnt > STACK_FRAMES_MAX && random_below(DEEP_SHARE))
			continue;
		told__forget();
		try(&image.words[i], t);
	}
}

static bool is_same_function(const struct told_frame *a, const struct told_frame *b)
{
	return a->first_line == b->first_line && !strcmp(a->name, b->name) && !strcmp(a->file, b->file);
}

/* A word is not there: all frames that are shown are true, and an end before the outermost is counted. */
static void try_missing(struct image_word *word, const struct told_thread *t)
{
	u64 id;
	struct seen seen;
	struct stack stack = {0};

	word->missing = true;
	id = told__walk(t);
	word->missing = false;
	seen = seen__read();
	assert_true(id != 0);
	if (told.room.stack.frame_cnt)
		stack = seen__stack(&seen, id);
	for (u32 i = 0; i < stack.cnt; i++)
		assert_true(told__is(&t->frames[i], &seen, &stack.frames[i]));
	if (stack.cnt < t->cnt)
		assert_int_equal(counter(CNT_STACK_LOST) + counter(CNT_STACK_CUT), 1);
	seen__free(&seen);
}

static void test_missing(void **state)
{
	(void)state;
	each_word(try_missing);
}

/*
 * A word is wrong: as a pointer it leads nowhere, and the end is counted; as part of a text, a line, an instruction it makes one function,
 * or one file, another. The byte that says whose a frame is may make it the interpreter's own, which no report shows.
 */
static void try_wrong(struct image_word *word, const struct told_thread *t)
{
	const struct told_frame *f = t->frames, *odd = NULL;
	u32 shown = t->cnt < STACK_FRAMES_MAX ? t->cnt : STACK_FRAMES_MAX;
	struct stack stack = {0};
	struct seen seen;
	bool skipped;
	u64 id;

	word->value ^= WRONG;
	id = told__walk(t);
	word->value ^= WRONG;
	seen = seen__read();
	assert_true(id != 0);
	if (told.room.stack.frame_cnt)
		stack = seen__stack(&seen, id);
	skipped = !counter(CNT_STACK_LOST) && stack.cnt < shown;
	assert_in_range(stack.cnt, counter(CNT_STACK_LOST) ? 0 : shown - skipped, shown);
	for (u32 i = 0; i < stack.cnt; i++, f++) {
		if (skipped && !told__is(f, &seen, &stack.frames[i])) {
			f++;
			skipped = false;
		}
		if (told__is(f, &seen, &stack.frames[i]))
			continue;
		assert_true(!odd || is_same_function(odd, f) || !strcmp(odd->file, f->file));
		odd = f;
	}
	seen__free(&seen);
}

static void test_wrong(void **state)
{
	(void)state;
	each_word(try_wrong);
}

/* A word is none, or that of another place, where there is an object of another kind, the same thing again, or a ring of frames. */
static void try_other(struct image_word *word, const struct told_thread *t)
{
	u64 value = word->value;

	for (int i = 0; i < 3; i++) {
		const struct image_word *other = &image.words[random_below(image.cnt)];

		word->value = i == 0 ? 0 : i == 1 ? other->address : other->value;
		told__forget();
		told__expect_sense(t);
	}
	word->value = value;
}

static void test_other(void **state)
{
	(void)state;
	each_word(try_other);
}

int main(void)
{
	static const struct {
		const char *name;
		CMUnitTestFunction function;
	} all[] = {
		{"as_it_was", test_as_it_was},
		{"missing", test_missing},
		{"wrong", test_wrong},
		{"other", test_other},
	};
	enum { CNT = sizeof(all) / sizeof(all[0]) };
	struct CMUnitTest tests[CNT * IMAGES_MAX];
	char names_[CNT * IMAGES_MAX][64];
	size_t cnt;
	int failed;
	glob_t found;

	if (glob("tests/data/pystack/*.gz", 0, NULL, &found)) {
		print_message("no images: run this where tests/data/pystack is\n");
		return 1;
	}
	cnt = CNT * (found.gl_pathc < IMAGES_MAX ? found.gl_pathc : IMAGES_MAX);
	for (size_t i = 0; i < cnt; i++) {
		char *path = found.gl_pathv[i / CNT];

		snprintf(names_[i], sizeof(names_[i]), "%s %s", strrchr(path, '/') + 1, all[i % CNT].name);
		tests[i] = (struct CMUnitTest){names_[i], all[i % CNT].function, setup_image, teardown_image, path};
	}
	failed = _cmocka_run_group_tests("pystack_images", tests, cnt, NULL, NULL);
	globfree(&found);
	return failed;
}
