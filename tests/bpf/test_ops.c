/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "native/ops.h"
static void test_nested(void **state)
{
	op__enter(0, FRAME(1));
	wait_ns(10);
	op__run(2, 5, FRAME(2));
	op__exit(FRAME(1));
	expect_op(SPAN_OP, OP_ID(0), 0, 1, 15, 10);
	expect_op(SPAN_OP, OP_ID(2), 0, 1, 5, 5);
}
int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, ops_setup, teardown)
	const struct CMUnitTest tests[] = {TEST(nested)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
