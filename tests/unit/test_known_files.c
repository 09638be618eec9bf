/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a session knows of files is bounded, and what a target still uses of them stays. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "stepflame.skel.h"
#include "user/session/sources/ops.h"
#include "user/session/state.h"

#define DEV  7
#define MOST (128 + 256) /* files that the session knows although nobody maps them */

static struct nvtx_site told_site[NVTX_SITES_MAX];

static int tell_site(int fd, const void *key, const void *site, uint64_t flags)
{
	(void)fd;
	(void)flags;
	told_site[*(const uint32_t *)key] = *(const struct nvtx_site *)site;
	return 0;
}

#define bpf_map__fd(map)    1
#define bpf_map_update_elem tell_site
#include "user/session/sources/nvtx.c"
#undef bpf_map_update_elem
#undef bpf_map__fd

static struct session *session;
static struct target *target;
static size_t note_cnt;

static int tell(const struct rec_hdr *record, void *ctx)
{
	(void)ctx;
	note_cnt += record->type == REC_NOTE;
	return 0;
}

/* A session with one target. */
static int begin(void **state)
{
	static struct stepflame_bpf skel;

	(void)state;
	session = calloc(1, sizeof(*session));
	session->sink = tell;
	session->skel = &skel;
	target = calloc(1, sizeof(*target));
	session->targets = calloc(1, sizeof(*session->targets));
	session->targets[session->target_cnt++] = target;
	for (int id = 0; id < SOURCE__COUNT; id++) {
		session->state[id] = sources[id]->session_bytes ? calloc(1, sources[id]->session_bytes) : NULL;
		target->state[id] = sources[id]->target_bytes ? calloc(1, sources[id]->target_bytes) : NULL;
	}
	note_cnt = 0;
	return 0;
}

static int finish(void **state)
{
	(void)state;
	target__free(target);
	session__free_files(session);
	for (int id = 0; id < SOURCE__COUNT; id++)
		free(session->state[id]);
	free(session->note_kinds.items);
	free(session->targets);
	free(session);
	return 0;
}

/* The target maps that file alone; NULL: none. */
static void map_file(const struct mapped_file *file)
{
	process__release(&target->process);
	if (!file)
		return;
	target->process.files = malloc(sizeof(*file));
	target->process.files[0] = *file;
	target->process.file_cnt = 1;
}

/* A state of a source that is not zero. */
static struct nvtx_file *know(uint64_t inode)
{
	struct nvtx_file *state = file__state(session, DEV, inode, SOURCE_NVTX);

	assert_non_null(state);
	state->searched = true;
	return state;
}

static const struct known_file *known(uint64_t inode)
{
	const struct file_id id = {DEV, inode};

	return MAP_FIND(&session->files, struct known_file, &id);
}

/* Each file is mapped by a process that ends; FIRST to LAST, and the session forgets meanwhile. */
static void come_and_go(uint64_t first, uint64_t last)
{
	for (uint64_t inode = first; inode <= last; inode++) {
		know(inode);
		session__forget_files(session);
	}
}

static void test_bounded(void **state)
{
	const struct mapped_file file = {.dev = DEV, .inode = 1};
	const struct nvtx_file *mapped = know(1);

	(void)state;
	map_file(&file);
	come_and_go(2, 5000);
	assert_in_range(session->files.items.cnt, 128 + 1, MOST + 1);
	assert_ptr_equal(file__state(session, DEV, 1, SOURCE_NVTX), mapped);
	/* the last ones may come again: what is known of them is there at once */
	for (uint64_t inode = 5000; inode > 5000 - 128; inode--)
		assert_true(know(inode)->searched && known(inode));
	assert_null(known(2));

	map_file(NULL);
	come_and_go(5001, 6000);
	assert_null(known(1));
}

/* Nobody maps them, and they are used all the same. */
static void test_needed(void **state)
{
	struct file_probes probes = {};
	struct attached_file attached = {.dev = DEV, .inode = 1, .probes = &probes};
	struct op_target *ops = &ops__of(session)->targets[3];
	struct op_file *op_file;

	(void)state;
	for (uint64_t inode = 1; inode <= 4; inode++)
		know(inode);
	target->files = malloc(sizeof(attached));
	target->files[0] = attached;
	target->file_cnt = 1;
	op_file = file__state(session, DEV, 2, SOURCE_OPS);
	op_file->found = calloc(1, sizeof(*op_file->found));
	ops->library_cnt = 2;
	for (int link = 0; link < LINK__COUNT; link++)
		probe_list__set_file(&ops->libraries[1].lists[link], &(struct mapped_file){.dev = DEV, .inode = 3}, -1);
	/* the first member of the target's state: const struct exact_file * */
	*(void **)target->state[SOURCE_EXACT] = file__state(session, DEV, 4, SOURCE_EXACT);
	come_and_go(5, 1000);
	for (uint64_t inode = 1; inode <= 4; inode++)
		assert_non_null(known(inode));

	target->file_cnt = ops->library_cnt = 0;
	target->gone = true;
	come_and_go(1001, 2000);
	assert_null(known(1));
	assert_non_null(known(2)); /* its names are those of rows */
	assert_null(known(3));
	assert_null(known(4));
}

/* What a target has unmapped is no longer attached. */
static void test_unmapped(void **state)
{
	const struct mapped_file file = {.dev = DEV, .inode = 2};

	(void)state;
	target->files = calloc(3, sizeof(*target->files));
	for (; target->file_cnt < 3; target->file_cnt++)
		target->files[target->file_cnt] = (struct attached_file){DEV, target->file_cnt + 1, NULL, {}};
	map_file(&file);
	target__detach_unmapped(session, target);
	assert_int_equal(target->file_cnt, 1);
	assert_int_equal(target->files[0].inode, 2);
}

/* How many files of a target have probes is bounded, and said once. */
static void test_too_many(void **state)
{
	const struct mapped_file file = {.dev = DEV, .inode = 1000};
	size_t most = 256;

	(void)state;
	target->files = calloc(most, sizeof(*target->files));
	for (; target->file_cnt < most; target->file_cnt++)
		target->files[target->file_cnt] = (struct attached_file){DEV, target->file_cnt + 1, NULL, {}};
	for (int i = 0; i < 2; i++)
		assert_int_equal(target__attach(session, target, &file, NULL), -E2BIG);
	assert_int_equal(note_cnt, 1);
	assert_null(known(1000));
}

static size_t descriptor_cnt(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t cnt = 0;

	while (readdir(dir))
		cnt++;
	closedir(dir);
	return cnt;
}

/* A file of so many bytes, as the target would map it. */
static struct mapped_file make_file(const char *name, size_t bytes)
{
	struct mapped_file file = {.pid = getpid()};
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct stat st;

	assert_int_equal(ftruncate(fd, bytes), 0);
	fstat(fd, &st);
	close(fd);
	snprintf(file.open_path, sizeof(file.open_path), "%s", name);
	file.dev = st.st_dev;
	file.inode = st.st_ino;
	file.content = file_content__of(&st);
	return file;
}

static void test_descriptors(void **state)
{
	size_t before = descriptor_cnt();
	char folder[] = "/tmp/known_files.XXXXXX", name[64];

	(void)state;
	assert_non_null(mkdtemp(folder));
	for (int i = 0; i < 600; i++) {
		struct mapped_file file;

		snprintf(name, sizeof(name), "%s/%d", folder, i);
		file = make_file(name, 1);
		assert_true(file__open(session, &file, true) >= 0);
		session__forget_files(session);
	}
	assert_in_range(descriptor_cnt() - before, 128, MOST);
	for (int i = 0; i < 600; i++) {
		snprintf(name, sizeof(name), "%s/%d", folder, i);
		unlink(name);
	}
	rmdir(folder);
}

/* A file with other content, or another file with the same inode, is no longer the one that the session knows. */
static void test_renewed(void **state)
{
	char folder[] = "/tmp/known_files.XXXXXX", name[64];
	struct mapped_file before, after;
	struct process next = {.file_cnt = 1, .files = &after};
	struct nvtx_file *own;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(name, sizeof(name), "%s/library", folder);
	before = make_file(name, 1);
	own = file__state(session, before.dev, before.inode, SOURCE_NVTX);
	own->searched = true;
	own->missed = 1;
	assert_true(file__open(session, &before, true) >= 0);
	map_file(&before);
	after = make_file(name, 2);
	assert_int_equal(after.inode, before.inode);

	/* as long as a target maps it, the session does not take it for the same */
	session__renew_files(session, &next);
	assert_int_equal(file__open(session, &after, true), -ESTALE);
	map_file(NULL);
	next.files = &before; /* as the session knows it */
	session__renew_files(session, &next);
	assert_int_equal(file__open(session, &after, true), -ESTALE);
	assert_int_equal(note_cnt, 0);

	next.files = &after;
	session__renew_files(session, &next);
	assert_int_equal(note_cnt, 1);
	own = file__state(session, before.dev, before.inode, SOURCE_NVTX);
	assert_false(own->searched);
	assert_true(file__open(session, &after, true) >= 0);
	unlink(name);
	rmdir(folder);
}

/* Adds a file with so many places, every `more`th of which begins those that follow it. Returns the first site. */
static uint32_t add_places(uint64_t inode, size_t cnt, size_t more)
{
	struct mapped_file file = {.dev = DEV, .inode = inode};
	struct nvtx_file *own = know(inode);
	struct probe_list sets[SOURCE_SETS] = {};
	uint32_t first;

	array__grow(&own->places, cnt, sizeof(struct nvtx_place));
	for (size_t i = 0; i < cnt; i++)
		((struct nvtx_place *)own->places.items)[i] = (struct nvtx_place){
			.offset = i,
			.site = {.call = (uint8_t)inode, .more = (i + 1) % more && i + 1 < cnt},
		};
	source_nvtx.find(session, target, &file, NULL, sets);
	first = sets[0].cnt ? COOKIE_FN(sets[0].cookies[0]) : NVTX_SITES_MAX;
	for (size_t i = 0; i < sets[0].cnt; i++)
		assert_int_equal(told_site[COOKIE_FN(sets[0].cookies[i])].call, inode);
	probe_list__release(&sets[0]);
	return first;
}

/* The sites of files that are forgotten are there for others. */
static void test_nvtx_sites(void **state)
{
	(void)state;
	assert_int_equal(add_places(1, 4, 4), 0);
	assert_int_equal(add_places(2, 1000, 2), 4);
	assert_int_equal(add_places(3, 20, 1), 1004);
	assert_int_equal(add_places(4, 1, 1), NVTX_SITES_MAX);
	assert_int_equal(know(4)->missed, 1);
	come_and_go(1000, 2000);
	assert_null(known(3));
	assert_int_equal(note_cnt, 1);
	assert_int_equal(add_places(5, NVTX_SITES_MAX, 4), 0);
	assert_int_equal(know(5)->missed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_bounded, begin, finish),
		cmocka_unit_test_setup_teardown(test_needed, begin, finish),
		cmocka_unit_test_setup_teardown(test_unmapped, begin, finish),
		cmocka_unit_test_setup_teardown(test_too_many, begin, finish),
		cmocka_unit_test_setup_teardown(test_descriptors, begin, finish),
		cmocka_unit_test_setup_teardown(test_renewed, begin, finish),
		cmocka_unit_test_setup_teardown(test_nvtx_sites, begin, finish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
