// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A recording with a limit: its bytes on the disk at any time, and what is left of it. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/recording/recording.h"

#define LIMIT   RECORDING_LIMIT_MIN
#define SAMPLES 100000u /* some 4 MB when deflated */

static char dir[] = "/tmp/stepflame-test-XXXXXX";
static char path[64], copy[64];

static int set_up(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/a.rec", dir);
	snprintf(copy, sizeof(copy), "%s/a.rec.trim", dir);
	return 0;
}

static int tear_down(void **state)
{
	unlink(path);
	unlink(copy);
	return rmdir(dir);
}

static uint64_t bytes_of(const char *file)
{
	struct stat st;

	return lstat(file, &st) ? 0 : st.st_size;
}

/* Numbers that no compression shortens. */
static uint64_t noise(void)
{
	static uint64_t at = 1;

	at ^= at << 13;
	at ^= at >> 7;
	return at ^= at << 17;
}

static struct recording_writer *limited(void)
{
	struct recording_writer *w;

	assert_int_equal(recording_writer__new(path, &w), 0);
	assert_int_equal(recording_writer__limit(w, path, LIMIT), 0);
	return w;
}

static void put_name(struct recording_writer *w, uint64_t id)
{
	uint64_t buffer[(sizeof(struct rec_name) + 64) / 8] = {0};
	struct rec_name *name = (void *)buffer;

	name->hdr = (struct rec_hdr){.type = REC_NAME, .size = sizeof(buffer)};
	name->id = id;
	name->bytes = name->whole_bytes = 64;
	for (int i = 0; i < 64; i++)
		name->text[i] = 'a' + noise() % 26;
	assert_int_equal(recording_writer__append(w, &name->hdr), 0);
}

static void put_sample(struct recording_writer *w, uint64_t number)
{
	struct rec_sample sample = {.hdr = {.type = REC_SAMPLE, .size = sizeof(sample)},
				    .time_ns = number,
				    .weight_ns = noise(),
				    .stack = noise(),
				    .native = noise(),
				    .file = noise()};

	assert_int_equal(recording_writer__append(w, &sample.hdr), 0);
}

static void put_state(struct recording_writer *w, uint64_t number)
{
	struct rec_window window = {.hdr = {.type = REC_WINDOW, .size = sizeof(window)}, .end_ns = number};
	struct rec_counter counter = {.hdr = {.type = REC_COUNTER, .size = sizeof(counter)}, .name = "moving"};

	counter.value = number;
	assert_int_equal(recording_writer__append(w, &window.hdr), 0);
	assert_int_equal(recording_writer__append(w, &counter.hdr), 0);
}

/* A target, a row that never changes again, and a name. */
static void put_first(struct recording_writer *w)
{
	struct rec_host host = {.hdr = {.type = REC_HOST, .size = sizeof(host)}};
	struct rec_target target = {.hdr = {.type = REC_TARGET, .size = sizeof(target)}, .pid = 7};
	struct rec_counter counter = {.hdr = {.type = REC_COUNTER, .size = sizeof(counter)}, .value = 5};

	strcpy(counter.name, "still");
	assert_int_equal(recording_writer__append(w, &host.hdr), 0);
	put_name(w, 1);
	assert_int_equal(recording_writer__append(w, &target.hdr), 0);
	put_state(w, 0);
	assert_int_equal(recording_writer__append(w, &counter.hdr), 0);
}

struct found {
	uint64_t first, last, samples, names, name_1, hosts, target, moving, still, window;
	struct rec_dropped dropped;
};

static int find(const struct rec_hdr *record, void *ctx)
{
	const struct rec_counter *counter = (const void *)record;
	const struct rec_sample *sample = (const void *)record;
	struct found *found = ctx;

	switch (record->type) {
	case REC_HOST:
		assert_false(found->hosts++ || found->names || found->samples); /* it is the first */
		break;
	case REC_TARGET:
		found->target = ((const struct rec_target *)record)->pid;
		break;
	case REC_NAME:
		found->names++;
		found->name_1 += ((const struct rec_name *)record)->id == 1;
		break;
	case REC_WINDOW:
		found->window = ((const struct rec_window *)record)->end_ns;
		break;
	case REC_COUNTER:
		*(!strcmp(counter->name, "still") ? &found->still : &found->moving) = counter->value;
		break;
	case REC_DROPPED:
		assert_false(found->dropped.hdr.type);
		found->dropped = *(const struct rec_dropped *)record;
		break;
	default:
		assert_int_equal(record->type, REC_SAMPLE);
		if (found->samples++)
			assert_int_equal(sample->time_ns, found->last + 1);
		else
			found->first = sample->time_ns;
		found->last = sample->time_ns;
	}
	return 0;
}

/* What a reader gets of the file as it is. */
static struct found read_found(void)
{
	struct found found = {0};

	assert_int_equal(recording__read(path, find, &found, NULL), 0);
	assert_int_equal(found.hosts, 1);
	assert_int_equal(found.name_1, 1);
	assert_int_equal(found.target, 7);
	assert_int_equal(found.still, 5);
	assert_int_equal(found.moving, found.window);
	return found;
}

/* Nothing is missing between what was dropped and the end, and the sums are right. */
static void check_tail(const struct found *found, uint64_t last)
{
	assert_int_equal(found->last, last);
	assert_int_equal(found->samples, last - found->first + 1);
	assert_int_equal(found->dropped.events, found->first - 1);
	assert_int_equal(found->dropped.time_ns, found->first - 1);
}

static void test_bound(void **state)
{
	struct recording_writer *w = limited();
	uint64_t most = 0, least = UINT64_MAX;
	struct found found;

	put_first(w);
	for (uint64_t i = 1; i <= SAMPLES; i++) {
		uint64_t bytes;

		put_sample(w, i);
		if (i % 1000)
			continue;
		put_state(w, i);
		assert_int_equal(recording_writer__mark(w), 0);
		bytes = bytes_of(path) + bytes_of(copy);
		most = bytes > most ? bytes : most;
		assert_int_equal(bytes_of(path), recording_writer__bytes(w));
		found = read_found();
		check_tail(&found, i);
		assert_int_equal(found.window, i);
		if (found.dropped.hdr.type && bytes_of(path) < least)
			least = bytes_of(path);
	}
	assert_true(most <= LIMIT);
	assert_true(least >= LIMIT / 6);
	assert_int_equal(recording_writer__dropped(w)->events, found.dropped.events);
	assert_int_equal(recording_writer__free(w), 0);
	assert_int_equal(bytes_of(copy), 0);
	found = read_found();
	check_tail(&found, SAMPLES);
	assert_int_equal(found.dropped.states, 0);
	assert_int_equal(found.names, 1);
}

/* Each name is new: the first ones stay, what has no room is counted, and the rows have room. */
static void test_name_flood(void **state)
{
	struct recording_writer *w = limited();
	uint64_t most = 0;
	struct found found;

	put_first(w);
	for (uint64_t i = 1; i <= SAMPLES; i++) {
		put_name(w, i + 1);
		put_sample(w, i);
		if (i % 1000)
			continue;
		put_state(w, i);
		assert_int_equal(recording_writer__mark(w), 0);
		if (bytes_of(path) + bytes_of(copy) > most)
			most = bytes_of(path) + bytes_of(copy);
	}
	assert_int_equal(recording_writer__free(w), 0);
	assert_true(most <= LIMIT);
	found = read_found();
	check_tail(&found, SAMPLES);
	assert_int_equal(found.names + found.dropped.states, SAMPLES + 1);
}

/* A writer that is killed while it copies leaves the file whole; the next one removes the copy, and writes through no link. */
static void test_killed(void **state)
{
	struct recording_writer *w;
	struct found found;
	int status;
	pid_t pid = fork();

	if (!pid) {
		w = limited();
		put_first(w);
		for (uint64_t i = 1;; i++) {
			put_sample(w, i);
			if (i % 100)
				continue;
			put_state(w, i);
			recording_writer__mark(w);
			if (bytes_of(copy))
				raise(SIGKILL);
		}
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_true(bytes_of(copy));
	found = read_found();
	assert_int_equal(found.first, 1);

	assert_int_equal(unlink(copy), 0);
	assert_int_equal(symlink("victim", copy), 0);
	w = limited();
	put_first(w);
	for (uint64_t i = 1; i <= SAMPLES / 4; i++)
		put_sample(w, i);
	assert_int_equal(recording_writer__free(w), 0);
	found = read_found();
	assert_true(found.dropped.events);
	assert_int_equal(bytes_of(copy), 0);
	snprintf(copy, sizeof(copy), "%s/victim", dir);
	assert_int_equal(bytes_of(copy), 0);
	snprintf(copy, sizeof(copy), "%s/a.rec.trim", dir);
}

/* Another file is at the path now: it is not replaced. */
static void test_stale(void **state)
{
	struct recording_writer *w = limited();
	struct rec_counter counter = {.hdr = {.type = REC_COUNTER, .size = sizeof(counter)}};
	int err = 0;

	unlink(path);
	fclose(fopen(path, "w"));
	for (uint64_t i = 1; i <= SAMPLES && !err; i++) {
		for (size_t at = 0; at < sizeof(counter.name); at++)
			counter.name[at] = noise();
		err = recording_writer__append(w, &counter.hdr);
	}
	assert_int_equal(err, -ESTALE);
	assert_int_equal(recording_writer__free(w), -ESTALE);
	assert_int_equal(bytes_of(path) + bytes_of(copy), 0);
}

static void test_not_a_file(void **state)
{
	struct recording_writer *w;

	assert_int_equal(recording_writer__new("/dev/null", &w), 0);
	assert_int_equal(recording_writer__limit(w, "/dev/null", LIMIT), -EINVAL);
	assert_int_equal(recording_writer__free(w), 0);
	assert_int_equal(recording_writer__new(path, &w), 0);
	assert_int_equal(recording_writer__limit(w, path, LIMIT - 1), -EINVAL);
	assert_int_equal(recording_writer__free(w), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bound),	      cmocka_unit_test(test_name_flood), cmocka_unit_test(test_killed),
		cmocka_unit_test(test_stale),	      cmocka_unit_test(test_not_a_file),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
