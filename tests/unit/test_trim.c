// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A recording with a limit: its bytes on the disk at any time, and what is left of it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/lib/percentile.h"
#include "user/recording/dropped_steps.h"
#include "user/recording/recording.h"
#include "user/recording/trim.c"

#define LIMIT   RECORDING_LIMIT_MIN
#define SAMPLES 100000u /* some 4 MB when deflated */

static char dir[] = "/tmp/stepflame-test-XXXXXX";
static char path[64];

static int set_up(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/a.rec", dir);
	return 0;
}

/* Bytes of the copy of the recording, which has no name yet. */
static uint64_t bytes_of_copy(void)
{
	DIR *files = opendir("/proc/self/fd");
	const struct dirent *entry;
	char target[PATH_MAX];
	uint64_t bytes = 0;
	struct stat st;

	while ((entry = readdir(files))) {
		ssize_t length = readlinkat(dirfd(files), entry->d_name, target, sizeof(target));

		if (length > (ssize_t)strlen(dir) && !strncmp(target, dir, strlen(dir)) &&
		    !fstatat(dirfd(files), entry->d_name, &st, 0) && S_ISREG(st.st_mode) && !st.st_nlink)
			bytes = st.st_size; /* open more than once */
	}
	closedir(files);
	return bytes;
}

static int tear_down(void **state)
{
	unlink(path);
	return rmdir(dir); /* fails if a copy stayed */
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

/* 10 to 19 us, and each hundredth 1 ms. */
static uint64_t step_ns(uint64_t step)
{
	return step % 100 ? 10000 + step * 7919 % 9000 : 1000000;
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

/* Steps as a thread makes them by two rules; each third by the better one. */
static void put_step(struct recording_writer *w, uint64_t number, uint64_t *now_ns)
{
	struct rec_step step = {.hdr = {.type = REC_STEP, .size = sizeof(step)}, .pid = 7, .tid = 8, .serial = number};
	bool is_step = number % 3 == 0;
	uint64_t ns = step_ns(number / 3);

	step.rule = is_step ? STEP_OPTIMIZER : STEP_BACKWARD;
	step.index = is_step ? number / 3 : number - number / 3;
	step.phase_ns[is_step ? PHASE_OPTIMIZER : PHASE_OTHER] = is_step ? ns : 1000;
	step.forward_ns = is_step ? 0 : 600;
	step.time_ns = *now_ns += is_step ? ns : 1000;
	assert_int_equal(recording_writer__append(w, &step.hdr), 0);
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
		bytes = bytes_of(path) + bytes_of_copy();
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
	assert_int_equal(bytes_of_copy(), 0);
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
		if (bytes_of(path) + bytes_of_copy() > most)
			most = bytes_of(path) + bytes_of_copy();
	}
	assert_int_equal(recording_writer__free(w), 0);
	assert_true(most <= LIMIT);
	found = read_found();
	check_tail(&found, SAMPLES);
	assert_int_equal(found.names + found.dropped.states, SAMPLES + 1);
}

#define LAST (16 * RECORDING_LAST_MIN_NS)
#define TICK (RECORDING_LAST_MIN_NS / 10)
#define MANY 30000u /* samples, one a tick: almost two hundred times LAST */

/* Each sample has the number of its tick. The file has the last ones, up to twice as many as at its end. */
static void test_last(void **state)
{
	uint64_t most_bytes = 0, oldest = LAST / TICK;
	struct recording_writer *w;
	struct found found;

	assert_int_equal(recording_writer__new(path, &w), 0);
	assert_int_equal(recording_writer__keep_last(w, path, LAST), 0);
	put_first(w);
	for (uint64_t i = 1; i <= MANY; i++) {
		put_sample(w, i);
		assert_int_equal(recording_writer__tick(w, i * TICK), 0);
		if (i % 100)
			continue;
		put_state(w, i);
		assert_int_equal(recording_writer__mark(w), 0);
		found = read_found();
		check_tail(&found, i);
		assert_true(found.samples >= (i < oldest ? i : oldest) && found.samples <= 2 * oldest + oldest / 8);
		if (i > 4 * oldest && !most_bytes)
			most_bytes = 3 * bytes_of(path);
		assert_true(!most_bytes || bytes_of(path) < most_bytes);
	}
	assert_int_equal(recording_writer__cut(w, MANY * TICK), 0);
	assert_int_equal(recording_writer__dropped(w)->events, read_found().dropped.events);
	assert_int_equal(recording_writer__free(w), 0);
	assert_int_equal(bytes_of_copy(), 0);
	found = read_found();
	check_tail(&found, MANY);
	assert_in_range(found.samples, oldest, oldest + oldest / 8);
	assert_int_equal(found.window, MANY);
}

/* The end comes while the writer copies; and again, where nothing is too old any more. */
static void test_cut(void **state)
{
	struct recording_writer *w;
	struct found found;

	assert_int_equal(recording_writer__new(path, &w), 0);
	assert_int_equal(recording_writer__keep_last(w, path, LAST), 0);
	put_first(w);
	for (uint64_t i = 1; i <= 10000; i++) {
		put_sample(w, i);
		if (i % 1000 == 0)
			assert_int_equal(recording_writer__tick(w, i / 1000 * LAST / 4), 0);
	}
	for (int again = 0; again < 2; again++) {
		put_state(w, 10000 + again);
		assert_int_equal(recording_writer__mark(w), 0);
		assert_int_equal(recording_writer__cut(w, 10 * LAST / 4), 0);
		found = read_found();
		check_tail(&found, 10000);
		assert_int_equal(found.samples, 4000);
	}
	assert_int_equal(recording_writer__free(w), 0);
}

/* With both limits, each holds. */
static void test_last_and_size(void **state)
{
	struct recording_writer *w = limited();
	uint64_t most = 0;
	struct found found;

	assert_int_equal(recording_writer__keep_last(w, path, LAST), 0);
	put_first(w);
	for (uint64_t i = 1; i <= SAMPLES; i++) {
		uint64_t bytes;

		put_sample(w, i);
		if (i % 100)
			continue;
		assert_int_equal(recording_writer__tick(w, i * (LAST / (SAMPLES / 2))), 0);
		put_state(w, i);
		assert_int_equal(recording_writer__mark(w), 0);
		bytes = bytes_of(path) + bytes_of_copy();
		most = bytes > most ? bytes : most;
	}
	assert_true(most <= LIMIT);
	assert_int_equal(recording_writer__cut(w, 2 * LAST), 0);
	assert_int_equal(recording_writer__free(w), 0);
	found = read_found();
	check_tail(&found, SAMPLES);
}

/* A job that is still makes no records: nothing is dropped, and nothing goes wrong. */
static void test_still(void **state)
{
	struct recording_writer *w;
	struct found found;

	assert_int_equal(recording_writer__new(path, &w), 0);
	assert_int_equal(recording_writer__keep_last(w, path, LAST), 0);
	put_first(w);
	for (uint64_t i = 1; i <= 100; i++)
		put_sample(w, i);
	for (uint64_t i = 1; i <= 100; i++)
		assert_int_equal(recording_writer__tick(w, i * LAST / 4), 0);
	assert_int_equal(recording_writer__cut(w, 1000 * LAST), 0);
	found = read_found();
	assert_int_equal(found.samples, 100);
	put_sample(w, 101);
	assert_int_equal(recording_writer__cut(w, 1000 * LAST), 0);
	found = read_found();
	check_tail(&found, 101);
	assert_int_equal(found.samples, 1);
	assert_int_equal(recording_writer__free(w), 0);
}

static void test_last_not_a_file(void **state)
{
	struct recording_writer *w;

	assert_int_equal(recording_writer__new("/dev/null", &w), 0);
	assert_int_equal(recording_writer__keep_last(w, "/dev/null", LAST), -EINVAL);
	assert_int_equal(recording_writer__free(w), 0);
	assert_int_equal(recording_writer__new(path, &w), 0);
	assert_int_equal(recording_writer__keep_last(w, path, RECORDING_LAST_MIN_NS - 1), -EINVAL);
	assert_int_equal(recording_writer__free(w), 0);
}

static int compare_ns(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

struct found_steps {
	uint64_t first_index, cnt; /* by STEP_OPTIMIZER */
	struct rec_dropped_steps dropped;
};

static int find_steps(const struct rec_hdr *record, void *ctx)
{
	const struct rec_step *step = (const void *)record;
	const struct rec_dropped_steps *dropped = (const void *)record;
	struct found_steps *found = ctx;

	if (record->type == REC_STEP && step->rule == STEP_OPTIMIZER && !found->cnt++)
		found->first_index = step->index;
	if (record->type == REC_DROPPED_STEPS && dropped->rule == STEP_OPTIMIZER)
		found->dropped = *dropped;
	return 0;
}

/* Steps that were dropped are counted, over many trims: sums exactly, percentiles within 1.1 %. */
static void test_steps(void **state)
{
	struct recording_writer *w = limited();
	struct found_steps found = {0};
	uint64_t now_ns = 1, total = 0, cnt, *ns = calloc(SAMPLES, sizeof(*ns));

	put_first(w);
	for (uint64_t i = 1; i <= 3 * SAMPLES; i++)
		put_step(w, i, &now_ns);
	assert_int_equal(recording_writer__free(w), 0);
	assert_int_equal(recording__read(path, find_steps, &found, NULL), 0);
	assert_true(found.first_index > SAMPLES / 2);
	assert_int_equal(found.cnt, SAMPLES - found.first_index + 1);
	/* The first boundary ends no step; the last dropped one begins the first step that is kept, or the one before. */
	cnt = found.dropped.steps;
	assert_int_equal(cnt, found.first_index - 2);
	assert_int_equal(found.dropped.index, found.first_index - 1);
	for (uint64_t i = 0; i < cnt; i++)
		total += ns[i] = step_ns(i + 2) + 2000;
	qsort(ns, cnt, sizeof(*ns), compare_ns);
	assert_int_equal(found.dropped.total_ns, total);
	assert_int_equal(found.dropped.min_ns, ns[0]);
	assert_int_equal(found.dropped.max_ns, ns[cnt - 1]);
	/* BACKWARD's forward_ns is not that of a rule that did not win. */
	assert_int_equal(found.dropped.phase_ns[PHASE_OTHER], cnt * 2000);
	assert_int_equal(found.dropped.phase_ns[PHASE_OPTIMIZER], total - cnt * 2000);
	for (unsigned int percent = 1; percent < 100; percent++) {
		double right = ns[percentile__index(cnt, percent)];
		double said = dropped_steps__percentile_ns(&found.dropped, percent);

		assert_true(fabs(said - right) <= 0.011 * right);
	}
	free(ns);
}

/* A boundary that is missing makes no step of two; what was recorded twice counts once. */
static void test_steps_cut(void **state)
{
	struct rec_dropped_steps steps = {.rule = STEP_OPTIMIZER};
	struct rec_step step = {.rule = STEP_OPTIMIZER};
	static const unsigned int serials[] = {1, 2, 2, 3, 5, 6, 7};

	assert_int_equal(dropped_steps__percentile_ns(&steps, 50), 0);
	for (size_t i = 0; i < sizeof(serials) / sizeof(*serials); i++) {
		step.serial = step.index = serials[i];
		step.time_ns = 5000 * serials[i];
		dropped_steps__add(&steps, &step);
	}
	step.serial = step.index = 8; /* hours later, and then at once */
	step.time_ns = UINT64_MAX - 1;
	dropped_steps__add(&steps, &step);
	step.serial = step.index = 9;
	step.time_ns = UINT64_MAX;
	dropped_steps__add(&steps, &step);
	assert_int_equal(steps.steps, 6);
	assert_int_equal(steps.min_ns, 1);
	assert_int_equal(dropped_steps__percentile_ns(&steps, 1), 1024 * 1.0108894); /* the first bucket's middle */
	assert_int_equal(dropped_steps__percentile_ns(&steps, 100), (uint64_t)exp2(40 - 0.5 / DROPPED_STEP_PARTS));
}

/* A writer that is killed while it copies leaves the file whole. */
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
			if (bytes_of_copy())
				raise(SIGKILL);
		}
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	found = read_found();
	assert_int_equal(found.first, 1);
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
	assert_int_equal(bytes_of(path) + bytes_of_copy(), 0);
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

/* Rows are held by their last state alone: that they change more often than there is memory for drops none. */
static void test_rows_change_often(void **state)
{
	const size_t cnt = 8, bytes = 1 << 20, rounds = 2 * HELD_MAX / (cnt * bytes);
	struct trim *trim = calloc(1, sizeof(*trim));
	struct rec_hdr *record = calloc(1, bytes);

	*record = (struct rec_hdr){.type = REC_AGG, .size = bytes};
	for (size_t round = 0; round < rounds; round++)
		for (size_t row = 0; row < cnt; row++) {
			memset(record + 1, (int)round, 8);
			assert_int_equal(hold_last(trim, record, 1 + row), 0);
		}
	assert_int_equal(trim->dropped.states, 0);
	assert_int_equal(trim->last.cnt, cnt);
	for (size_t row = 0; row < cnt; row++)
		assert_memory_equal(((struct rec_hdr **)trim->last.items)[row], record, bytes);
	trim__free(trim);
	free(record);
}

static int add_up(const struct rec_hdr *record, void *ctx)
{
	uint64_t *calls = ctx;

	if (record->type == REC_AGG)
		*calls = *calls * 10 + ((const struct rec_agg *)record)->val.calls;
	return 0;
}

/* A pid comes again, with the same rows: those of the process that had it before stay, each in its last state. */
static void test_pid_again(void **state)
{
	struct trim *trim = calloc(1, sizeof(*trim));
	struct rec_agg row = {.hdr = {.type = REC_AGG, .size = sizeof(row)}, .key.pid = 7};
	uint64_t calls = 0;

	assert_int_equal(recording_writer__new(path, &trim->copy), 0);
	trim->state_max = LIMIT;
	trim->dropped.hdr = (struct rec_hdr){.type = REC_DROPPED, .size = sizeof(trim->dropped)};
	for (uint64_t i = 1; i <= 7; i++) {
		row.hdr.flags = i == 3 || i == 5 ? REC_ENDED : 0;
		row.val.calls = i;
		assert_int_equal(keep_state(&row.hdr, trim), 0);
	}
	assert_int_equal(end_state(trim), 0);
	trim__free(trim);
	assert_int_equal(recording__read(path, add_up, &calls, NULL), 0);
	assert_int_equal(calls, 357);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bound),      cmocka_unit_test(test_name_flood),
		cmocka_unit_test(test_killed),     cmocka_unit_test(test_steps),
		cmocka_unit_test(test_steps_cut),  cmocka_unit_test(test_stale),
		cmocka_unit_test(test_not_a_file), cmocka_unit_test(test_rows_change_often),
		cmocka_unit_test(test_pid_again),  cmocka_unit_test(test_last),
		cmocka_unit_test(test_cut),        cmocka_unit_test(test_last_and_size),
		cmocka_unit_test(test_still),      cmocka_unit_test(test_last_not_a_file),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
