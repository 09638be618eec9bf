/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which numbers lists of probes get where a kernel has tracefs events, and that those of lists that are forgotten come again. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "include/probes.h"

/* The map probe_cookies: by list, which offsets. */
#define OFFSETS_MAX 4
static bool cookies[PROBE_LISTS][OFFSETS_MAX];

static int add_cookie(int fd, const void *key, const void *cookie, uint64_t flags)
{
	const struct probe_place *place = key;
	bool *at = &cookies[place->list][place->offset];

	(void)fd;
	(void)cookie;
	(void)flags;
	errno = EEXIST;
	if (*at)
		return -1;
	*at = true;
	return 0;
}

static int delete_cookie(int fd, const void *key)
{
	const struct probe_place *place = key;

	(void)fd;
	cookies[place->list][place->offset] = false;
	return 0;
}

#define bpf_map_update_elem add_cookie
#define bpf_map_delete_elem delete_cookie
#include "user/session/attach.c"

static struct attacher attacher;

/* Two probes at the first offset: two layers. */
static struct probe_list list_of(unsigned long offsets[3], uint64_t values[3])
{
	offsets[0] = offsets[1] = 1;
	offsets[2] = 2;
	return (struct probe_list){.cnt = 3, .offsets = offsets, .cookies = values};
}

static int number(struct probe_list *list)
{
	struct probe_location locations[3] = {};

	list->number = 0;
	assert_int_equal(find_layers(list, locations), 0);
	return number_list(&attacher, list, locations);
}

static void test_numbers(void **state)
{
	unsigned long offsets[3], *offset = offsets;
	uint64_t values[3] = {5, 6, 7};
	struct probe_list list = list_of(offset, values), first, last;

	(void)state;
	for (uint32_t at = 1; at + 1 < PROBE_LISTS; at += 2) {
		assert_int_equal(number(&list), 0);
		assert_int_equal(list.number, at);
		if (at == 1)
			first = list;
		last = list;
	}
	assert_int_equal(number(&list), -ENOSPC);
	assert_int_equal(list.number, 0);

	attacher__forget(&attacher, &first);
	assert_int_equal(first.number, 0);
	assert_int_equal(number(&list), 0);
	assert_int_equal(list.number, 1);
	assert_int_equal(number(&list), -ENOSPC);

	attacher__forget(&attacher, &last);
	assert_int_equal(number(&list), 0);
	assert_int_equal(list.number, PROBE_LISTS - 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
