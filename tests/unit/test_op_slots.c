/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The places of processes whose operators are recorded: who ends, or calls exec, gives its place back with all that BPF knows by it,
 * and who finds none is recorded without operators.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "stepflame.skel.h"
#include "user/session/guardian.h"
#include "user/session/programs.h"

/* BPF's maps with keys that begin with a slot. */
enum { NODES, HANDLES, ALLOCATIONS, MAPS };
#define KEYS 4
static struct keys {
	size_t cnt;
	uint32_t keys[KEYS][4];
} maps[MAPS];

static int fd_of(const struct bpf_map *map)
{
	return (int)((const struct keys *)map - maps);
}

static size_t find_key(int fd, const void *key)
{
	size_t at = 0;

	while (at < maps[fd].cnt && memcmp(maps[fd].keys[at], key, sizeof(maps[fd].keys[at])) != 0)
		at++;
	return at;
}

static int next_key(int fd, const void *before, void *next)
{
	size_t at = before ? find_key(fd, before) + 1 : 0;

	if (before && at > maps[fd].cnt) /* it is gone: from the begin */
		at = 0;
	if (at >= maps[fd].cnt)
		return -1;
	memcpy(next, maps[fd].keys[at], sizeof(maps[fd].keys[at]));
	return 0;
}

static int delete_key(int fd, const void *key)
{
	size_t at = find_key(fd, key);

	if (at == maps[fd].cnt)
		return -1;
	memmove(maps[fd].keys[at], maps[fd].keys[at + 1], (maps[fd].cnt - at - 1) * sizeof(maps[fd].keys[at]));
	maps[fd].cnt--;
	return 0;
}

static void detach_nothing(struct guardian *g, struct detachment *d)
{
	(void)g;
	(void)d;
}

#define bpf_map__fd               fd_of
#define bpf_map__max_entries(map) KEYS
#define bpf_map_get_next_key      next_key
#define bpf_map_delete_elem       delete_key
#define guardian__detach          detach_nothing
#include "user/session/sources/ops.c"

static struct stepflame_bpf skel;
static struct session session;
static struct ops *ops;
static struct target target;
static struct ops_target target_ops;
static size_t note_cnt;
static struct rec_op_window window; /* the last */

static int tell(const struct rec_hdr *record, void *ctx)
{
	(void)ctx;
	note_cnt += record->type == REC_NOTE;
	if (record->type == REC_OP_WINDOW)
		memcpy(&window, record, sizeof(window));
	return 0;
}

static void add_key(int map, uint32_t slot)
{
	maps[map].keys[maps[map].cnt][0] = slot;
	maps[map].keys[maps[map].cnt][2] = (uint32_t)maps[map].cnt;
	maps[map].cnt++;
}

/* The target has the second place, and somebody the first. */
static int begin(void **state)
{
	(void)state;
	memset(maps, 0, sizeof(maps));
	ops = calloc(1, sizeof(*ops));
	ops->procs = calloc(OP_PROCS_MAX, sizeof(*ops->procs));
	skel.maps.node_classes = (struct bpf_map *)&maps[NODES];
	skel.maps.handles = (struct bpf_map *)&maps[HANDLES];
	skel.maps.allocations = (struct bpf_map *)&maps[ALLOCATIONS];
	session = (struct session){.skel = &skel, .sink = tell, .options.ops = true, .options.memory = true};
	session.state[SOURCE_OPS] = ops;
	target_ops = (struct ops_target){.slot = 2, .searched = true};
	target = (struct target){.process.pid = 70, .state[SOURCE_OPS] = &target_ops};
	ops->targets[0].target = ops->targets[1].target = &target;
	ops->procs[0].pid = 60;
	ops->procs[1] = (struct op_proc){.pid = 70, .hits = 5, .index = 3, .open = 1, .old_strings = 1};
	for (int map = 0; map < MAPS; map++)
		for (uint32_t i = 0; i < KEYS; i++)
			add_key(map, i % 2);
	note_cnt = 0;
	window = (struct rec_op_window){0};
	return 0;
}

static int finish(void **state)
{
	(void)state;
	free(session.note_kinds.items);
	free(ops->procs);
	free(ops);
	return 0;
}

static void expect_freed(void)
{
	static const struct op_proc none;

	assert_int_equal(find_free_slot(ops), 1);
	assert_memory_equal(&ops->procs[1], &none, sizeof(none));
	for (int map = 0; map < MAPS; map++) {
		assert_int_equal(maps[map].cnt, KEYS / 2);
		for (size_t i = 0; i < maps[map].cnt; i++)
			assert_int_equal(maps[map].keys[i][0], 0);
	}
	/* what it paid and its last window stay */
	assert_int_equal(source_ops.hits(&session, &target), 5);
	assert_int_equal(window.pid, 70);
	assert_int_equal(window.index, 2);
}

static void test_ended(void **state)
{
	(void)state;
	source_ops.on_exit(&session, &target);
	expect_freed();
	window = (struct rec_op_window){0};
	source_ops.forget(&session, &target);
	assert_int_equal(window.pid, 0);
}

static void test_exec(void **state)
{
	(void)state;
	source_ops.on_exec(&session, &target);
	expect_freed();
	assert_false(target_ops.searched); /* the next program has operators of its own */
}

static void test_no_place(void **state)
{
	static const struct mapped_file torch;

	(void)state;
	for (size_t i = 0; i < OP_PROCS_MAX; i++)
		ops->targets[i].target = &target;
	target_ops = (struct ops_target){0};
	target.role = ROLE_MAIN;
	target.torch_file = &torch;
	assert_int_equal(source_ops.looked_at(&session, &target), 0);
	assert_int_equal(note_cnt, 1);
	/* no window of it is waited for */
	assert_int_equal(source_ops.windows(&session, &target), WINDOWS_AHEAD);
	session.options.schedule[OP_REPEAT] = 1;
	assert_int_equal(source_ops.windows(&session, &target), WINDOWS_PASSED);
	assert_int_equal(source_ops.hits(&session, &target), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)
	const struct CMUnitTest tests[] = {TEST(test_ended), TEST(test_exec), TEST(test_no_place)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
