// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* user/lib/map.c and what is made of it: each key is there once, in the order of its arrival, and no choice of keys makes it slow. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "user/lib/compare.h"
#include "user/lib/map.h"
#include "user/lib/search.h"

#define MANY 500000 /* were the table a list, they would take minutes */

struct key {
	uint64_t a;
	uint32_t b, c;
};

struct item {
	struct key key;
	uint64_t value;
};

/* The key that the hash, MurmurHash3's finalizer, makes `bits` of where the seed is 0. */
static uint64_t unmixed(uint64_t bits)
{
	bits ^= bits >> 33;
	bits *= 0x9cb4b2f8129337dbull; /* times the constants of map.c: 1 */
	bits ^= bits >> 33;
	bits *= 0x4f74430c22a54005ull;
	return bits ^ bits >> 33;
}

static uint64_t collide(uint64_t i)
{
	return unmixed((i + 1) << 32);
}

static uint64_t count_up(uint64_t i)
{
	return i + 1;
}

static uint64_t high_bits(uint64_t i)
{
	return (i + 1) << 40;
}

static uint64_t (*const choices[])(uint64_t i) = {collide, count_up, high_bits};

static void test_many_numbers(void **state)
{
	for (size_t c = 0; c < sizeof(choices) / sizeof(*choices); c++) {
		struct intern intern = {0};
		uint32_t number;

		for (int round = 0; round < 2; round++)
			for (uint64_t i = 0; i < MANY; i++) {
				assert_int_equal(intern__add(&intern, choices[c](i), &number), 0);
				assert_true(number == i + 1);
			}
		assert_true(intern__end(&intern) == MANY + 1);
		assert_true(intern__find(&intern, choices[c](MANY - 1)) && !intern__find(&intern, choices[c](MANY)));
		intern__free(&intern);
	}
}

static void test_many_keys(void **state)
{
	for (size_t c = 0; c < sizeof(choices) / sizeof(*choices); c++) {
		struct map map = {0};

		for (uint64_t i = 0; i < MANY; i++) {
			const struct key key = {choices[c](i / 2), i % 2, 7};
			struct item *item;

			assert_null(MAP_FIND(&map, struct item, &key));
			item = MAP_ADD(&map, struct item, &key);
			assert_true(item && !item->value && !memcmp(&item->key, &key, sizeof(key)));
			item->value = i;
		}
		for (uint64_t i = 0; i < MANY; i++) {
			const struct key key = {choices[c](i / 2), i % 2, 7};

			assert_true(MAP_FIND(&map, struct item, &key)->value == i);
			assert_true(MAP_INDEX(&map, MAP_ADD(&map, struct item, &key)) == i);
		}
		assert_true(map.items.cnt == MANY);
		map__free(&map);
	}
}

static int compare_values_down(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	return COMPARE(y->value, x->value);
}

static void test_sorted(void **state)
{
	struct map map = {0};
	struct item *sorted = map__sorted(&map, sizeof(*sorted), compare_values_down);

	assert_non_null(sorted); /* of none, too: NULL is no memory */
	free(sorted);
	for (uint32_t i = 0; i < 1000; i++)
		MAP_ADD(&map, struct item, &((const struct key){i, i, i}))->value = i;
	sorted = map__sorted(&map, sizeof(*sorted), compare_values_down);
	for (uint32_t i = 0; i < 1000; i++) {
		assert_true(sorted[i].value == 999 - i);
		assert_true(((struct item *)map.items.items)[i].value == i);
	}
	free(sorted);
	map__free(&map);
}

static void test_texts(void **state)
{
	struct map texts = {0};
	char text[32];
	uint32_t index;

	for (int round = 0; round < 2; round++)
		for (uint32_t i = 0; i < 10000; i++) {
			snprintf(text, sizeof(text), "%.*s%u", i % 20, "a text of any length ", i);
			assert_int_equal(map__add_text(&texts, text, &index), 0);
			assert_int_equal(index, i);
			assert_string_equal(((char **)texts.items.items)[i], text);
		}
	assert_int_equal(map__add_text(&texts, "", &index), 0);
	assert_int_equal(index, 10000);
	map__free_texts(&texts);
	assert_null(texts.items.items);
}

static void test_search(void **state)
{
	const int sorted[] = {1, 3, 3, 3, 8};

	assert_int_equal(SEARCH(i, 0, 5, sorted[i] < 3), 1);
	assert_int_equal(SEARCH(i, 0, 5, sorted[i] <= 3), 4);
	assert_int_equal(SEARCH(i, 0, 5, sorted[i] < 1), 0);
	assert_int_equal(SEARCH(i, 0, 5, sorted[i] <= 8), 5);
	assert_int_equal(SEARCH(i, 2, 3, sorted[i] <= 8), 3);
	assert_int_equal(SEARCH(i, 0, 0, sorted[i] <= 8), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_numbers), cmocka_unit_test(test_many_keys), cmocka_unit_test(test_sorted),
		cmocka_unit_test(test_texts),        cmocka_unit_test(test_search),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
