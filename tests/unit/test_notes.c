// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Notes of one form are bounded, as somebody may make up what is behind each; those left out are counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "user/session/state.h"

#define MOST 64

static struct session *session;
static size_t note_cnt;
static char last[256];

static int tell(const struct rec_hdr *record, void *ctx)
{
	(void)ctx;
	if (record->type == REC_NOTE) {
		note_cnt++;
		strncpy(last, ((const struct rec_note *)record)->text, sizeof(last) - 1);
	}
	return 0;
}

static int begin(void **state)
{
	(void)state;
	session = calloc(1, sizeof(*session));
	session->sink = tell;
	note_cnt = 0;
	return 0;
}

static int finish(void **state)
{
	(void)state;
	free(session->note_kinds.items);
	free(session);
	return 0;
}

static void note_files(int cnt)
{
	for (int i = 0; i < cnt; i++)
		session__note(session, "file %d is not a library", i);
}

static void all_of_few_are_there(void **state)
{
	(void)state;
	note_files(MOST);
	assert_int_equal(note_cnt, MOST);
	assert_string_equal(last, "file 63 is not a library");
	session__note_left_out(session);
	assert_int_equal(note_cnt, MOST);
}

static void more_are_counted(void **state)
{
	(void)state;
	note_files(MOST + 1000);
	assert_int_equal(note_cnt, MOST);
	session__note(session, "process %d is not readable", 1); /* another form */
	assert_int_equal(note_cnt, MOST + 1);
	for (int i = 0; i < MOST + 1; i++)
		session__note(session, "process %d has ended", i);
	session__note_left_out(session);
	assert_int_equal(note_cnt, 2 * MOST + 2);
	assert_string_equal(last, "1001 more notes, of which there were 64 of the same form before, are left out");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_of_few_are_there, begin, finish),
		cmocka_unit_test_setup_teardown(more_are_counted, begin, finish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
