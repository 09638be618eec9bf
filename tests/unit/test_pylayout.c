/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Layouts by _Py_DebugOffsets alone, where nobody knows the order of its fields: of 3.13, 3.14 and 3.15 they must be those of the built-in table,
 * which comes from headers. And tables that have other fields between, or lie.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "include/records.h"
#include "user/runtime/python/pylayout.h"

/* The tables of pyenv's 3.13.0, of Debian's 3.14.10 and 3.15.2, and of free-threaded 3.14.9 and 3.15.1, as they lie in their files. */

/* clang-format off */
static const uint64_t words_313[PY_OFFSETS_WORDS] = {
	0x7970677562656478, 0x30d00f0, 0, 283320, 608, 632, 194968, 7272, 7264, 7344, 7400, 7656, 7640, 7648, 16,
	7752, 0, 7768, 7760, 304, 0, 8, 16, 72, 152, 160, 232, 32, 80, 8, 0, 56, 72, 70, 208, 112, 120, 128, 136, 68,
	52, 96, 104, 200, 16, 8, 416, 24, 88, 168, 32, 24, 16, 40, 24, 16, 48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32,
	64, 32, 16, 40, 240, 200,
};

static const uint64_t words_314[PY_OFFSETS_WORDS] = {
	0x7970677562656478, 0x30e0af0, 0, 316616, 784, 808, 225864, 7280, 7272, 7344, 7360, 7408, 7688, 7672, 7680,
	16, 7784, 0, 7800, 7792, 7992, 0, 832, 0, 8, 16, 72, 152, 160, 232, 32, 88, 8, 0, 56, 80, 74, 64, 0, 216, 112,
	120, 128, 136, 68, 52, 96, 104, 208, 0, 16, 8, 416, 24, 88, 168, 40, 32, 16, 40, 24, 16, 200, 24, 40, 32, 48,
	32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40, 264, 192, 160, 24, 72, 67, 0, 8, 24, 304, 8076, 0, 4,
	512,
};

static const uint64_t words_315[PY_OFFSETS_WORDS] = {
	0x7970677562656478, 0x30f02f0, 0, 346568, 912, 936, 226240, 7272, 7264, 7336, 7352, 7400, 7592, 7576, 7584,
	16, 7736, 0, 7752, 7744, 7944, 0, 888, 0, 8, 16, 72, 80, 88, 96, 176, 184, 256, 32, 36, 40, 136, 288, 0, 88,
	8, 0, 56, 80, 74, 64, 0, 216, 112, 120, 128, 136, 68, 52, 96, 104, 208, 0, 16, 8, 424, 24, 88, 168, 32, 288,
	944, 888, 40, 32, 16, 40, 24, 16, 200, 24, 40, 32, 48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40,
	56, 176, 112, 120, 1120, 104, 160, 24, 72, 67, 0, 8, 24, 344, 8028, 0, 4, 512,
};
static const uint64_t words_314t[PY_OFFSETS_WORDS] = {
	0x7970677562656478, 0x30e09f0, 1, 362368, 784, 808, 246720, 7280, 7272, 7344, 7360, 7408, 7712, 7696, 7704,
	16, 7808, 0, 7832, 7824, 8024, 17628, 832, 0, 8, 16, 72, 152, 160, 232, 32, 88, 8, 0, 56, 80, 78, 64, 72,
	240, 128, 136, 144, 152, 84, 68, 112, 120, 232, 224, 32, 24, 432, 40, 104, 184, 56, 48, 32, 56, 40, 32, 216,
	40, 56, 48, 64, 48, 56, 40, 32, 48, 32, 40, 56, 32, 48, 80, 48, 32, 56, 288, 192, 176, 40, 88, 83, 0, 8, 24,
	304, 8108, 0, 4, 512,
};

static const uint64_t words_315t[PY_OFFSETS_WORDS] = {
	0x7970677562656478, 0x30f01f0, 1, 406016, 912, 936, 247040, 7272, 7264, 7336, 7352, 7400, 7592, 7576, 7584,
	16, 7736, 0, 7760, 7752, 7952, 17564, 888, 0, 8, 16, 72, 80, 88, 96, 176, 184, 256, 32, 36, 40, 136, 288, 0,
	88, 8, 0, 56, 80, 78, 64, 72, 240, 128, 136, 144, 152, 84, 68, 112, 120, 232, 224, 32, 24, 440, 40, 104,
	184, 48, 304, 968, 904, 56, 48, 32, 56, 40, 32, 216, 40, 56, 48, 64, 48, 56, 40, 32, 48, 32, 40, 56, 32, 48,
	80, 48, 32, 56, 72, 176, 112, 120, 224, 104, 176, 40, 88, 83, 0, 8, 24, 344, 8036, 0, 4, 512,
};
/* clang-format on */

static const struct table {
	int minor;
	bool free_threaded;
	const uint64_t *words;
	size_t cnt;
} tables[] = {{13, false, words_313, 73},
	      {14, false, words_314, 95},
	      {15, false, words_315, 111},
	      {14, true, words_314t, 95},
	      {15, true, words_315t, 111}};

#define TABLES (sizeof(tables) / sizeof(tables[0]))

/* By the row of the version of `like`. */
static int parse(const uint64_t *words, const struct table *like, struct py_internals *out,
		 uint32_t candidates[PY_OFFSETS_CANDIDATES])
{
	return py_offsets__parse(words, py_internals__find(like->minor, like->free_threaded), out, candidates);
}

#define ADDED 2408 /* a field that no version has */

/* What is of the version's table but may differ between its patch releases: the process's own counts (pythread.h). */
static void expect_known(const struct py_internals *found, const uint32_t *candidates, const struct table *like,
			 bool added)
{
	const struct py_internals *row = py_internals__find(like->minor, like->free_threaded);
	int minor = like->minor;
	bool among = false;

	assert_memory_equal(&found->layout, &row->layout, sizeof(row->layout));
	for (int i = 0; i < PY_WALK_CNT; i++)
		if (i != PY_WALK_TSTATE_THREAD && i != PY_WALK_TSTATE_NATIVE && minor > 13)
			assert_true(found->walk[i] == row->walk[i] ||
				    (added && (i == PY_WALK_GIL || i == PY_WALK_INTERP_MODULES) &&
				     found->walk[i] == ADDED));
	for (int i = 0; i < PY_OFFSETS_CANDIDATES && candidates[i]; i++)
		among = among || candidates[i] == row->walk[PY_WALK_TSTATE_THREAD];
	assert_true(among || added); /* else the threads tell that none is right */
	assert_int_equal(row->walk[PY_WALK_TSTATE_NATIVE], row->walk[PY_WALK_TSTATE_THREAD] + 8);
}

static void test_known(void **state)
{
	uint32_t candidates[PY_OFFSETS_CANDIDATES];
	struct py_internals found;

	(void)state;
	for (size_t i = 0; i < TABLES; i++) {
		assert_int_equal(parse(tables[i].words, &tables[i], &found, candidates), 0);
		expect_known(&found, candidates, &tables[i], false);
	}
}

/* A version that is not known, by the row of the one before it: as 3.15 was, and 3.14. All but generators' states is as in its own row. */
static void test_next(void **state)
{
	uint32_t candidates[PY_OFFSETS_CANDIDATES];
	struct py_internals found;

	(void)state;
	for (size_t i = 1; i < TABLES; i++) {
		const struct py_layout *row = &py_internals__find(tables[i].minor, tables[i].free_threaded)->layout,
				       *before = &py_internals__find(tables[i - 1].minor, tables[i].free_threaded)
							  ->layout;
		struct py_layout expected = *row;

		if (tables[i].free_threaded != tables[i - 1].free_threaded) {
			assert_int_equal(parse(tables[i].words, &tables[i - 1], &found, candidates), -ENOTSUP);
			continue;
		}
		assert_int_equal(parse(tables[i].words, &tables[i - 1], &found, candidates), 0);
		expected.minor = before->minor;
		expected.state_created = before->state_created;
		expected.frame_owner_c = before->frame_owner_c;
		expected.ref_mask = before->ref_mask;
		assert_memory_equal(&found.layout, &expected, sizeof(expected));
	}
}

/*
 * One more field, behind each of the fields: it changes nothing, or the table is refused; or it passes for sys.modules or the GIL, of which the
 * process then says that it is none.
 */
static void test_added_field(void **state)
{
	uint32_t candidates[PY_OFFSETS_CANDIDATES];
	struct py_internals found;
	size_t taken = 0;

	(void)state;
	for (size_t i = 1; i < TABLES; i++) {
		for (size_t at = 10; at <= tables[i].cnt; at++) {
			uint64_t words[PY_OFFSETS_WORDS] = {0};

			memcpy(words, tables[i].words, at * sizeof(*words));
			words[at] = ADDED;
			memcpy(words + at + 1, tables[i].words + at, (tables[i].cnt - at) * sizeof(*words));
			if (parse(words, &tables[i], &found, candidates))
				continue;
			expect_known(&found, candidates, &tables[i], true);
			taken++;
		}
	}
	assert_true(taken > 220); /* of 378 places */
}

static void expect_bounded(const struct py_internals *found)
{
	const struct py_layout *py = &found->layout;

	assert_true(py->frame_code < 128 && py->frame_previous < 128 && py->frame_instr < 128 &&
		    py->frame_locals < 128 && py->frame_owner < 128);
	assert_true(py->code_filename < 256 && py->code_name < 256 && py->code_qualname < 256 &&
		    py->code_linetable < 256 && py->code_firstlineno < 256 && py->code_instructions < 256);
	assert_true(py->gen_frame + py->frame_locals + 16 < REC_NAME_MAX && py->state_off < REC_NAME_MAX);
	for (int i = 0; i < PY_WALK_CNT; i++)
		assert_true(found->walk[i] < 16u << 20);
}

/* Each word in turn is another: the table is refused, or what it gives stays in bounds. */
static void test_lies(void **state)
{
	static const uint64_t lies[] = {0,   1,   7,   8,    16,    24,       40,         80,        88,
					127, 128, 256, 4096, 65535, 1u << 20, UINT32_MAX, 1ul << 40, UINT64_MAX};
	uint32_t candidates[PY_OFFSETS_CANDIDATES];
	struct py_internals found;
	size_t refused = 0;

	(void)state;
	for (size_t i = 0; i < TABLES; i++) {
		for (size_t at = 0; at < tables[i].cnt; at++) {
			for (size_t k = 0; k < sizeof(lies) / sizeof(*lies); k++) {
				uint64_t words[PY_OFFSETS_WORDS];

				memcpy(words, tables[i].words, sizeof(words));
				words[at] = lies[k];
				if (parse(words, &tables[i], &found, candidates))
					refused++;
				else
					expect_bounded(&found);
			}
		}
	}
	assert_true(refused > 500);
}

/* Words at random, most of them small, as the offsets are; and a table that ends too early. */
static void test_garbage(void **state)
{
	uint32_t candidates[PY_OFFSETS_CANDIDATES];
	struct py_internals found;
	uint64_t seed = 1;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		uint64_t words[PY_OFFSETS_WORDS];

		for (size_t i = 0; i < PY_OFFSETS_WORDS; i++) {
			seed = seed * 6364136223846793005ul + 1442695040888963407ul;
			words[i] = (seed >> 33) % (round % 2 ? 32 : 6) * 8;
		}
		if (!parse(words, &tables[round % TABLES], &found, candidates))
			expect_bounded(&found);
	}
	for (size_t i = 0; i < TABLES; i++) {
		for (size_t cnt = 0; cnt < 60; cnt++) {
			uint64_t words[PY_OFFSETS_WORDS] = {0};

			memcpy(words, tables[i].words, cnt * sizeof(*words));
			assert_int_equal(parse(words, &tables[i], &found, candidates), -ENOTSUP);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known), cmocka_unit_test(test_next),    cmocka_unit_test(test_added_field),
		cmocka_unit_test(test_lies),  cmocka_unit_test(test_garbage),
	};

	return cmocka_run_group_tests_name("pylayout", tests, NULL, NULL);
}
