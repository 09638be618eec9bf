// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The simple report's text against tests/data/simple_*.txt. That its table is Lightning's is what
 * tests/replay/test_simple_format.py shows; here is all that lies around it, and the rules for rows. UPDATE=1 writes the
 * expected files anew.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/build_job.h"
#include "user/lib/utf8.h"
#include "user/model/labels.h"
#include "user/report/print/text.h"
#include "user/report/report.h"
#include "user/report/rows.h"

#define DATA "tests/data/"

/* Lightning's layout; the other one, and JSON, are read by the tests in tests/e2e. */
static char *render(struct job *job, const struct report_options *given)
{
	struct report_options with_layout = *given, *options = &with_layout;
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	options->lightning = true;
	assert_int_equal(report_simple.text(job, options, out), 0);
	fclose(out);
	return text;
}

static void check_file(const char *name, struct job *job, struct report_options options)
{
	char path[128], expected[16384];
	char *text = render(job, &options);
	FILE *file;
	size_t bytes;

	snprintf(path, sizeof(path), DATA "simple_%s.txt", name);
	if (getenv("UPDATE")) {
		file = fopen(path, "w");
		fputs(text, file);
		fclose(file);
	}
	file = fopen(path, "r");
	assert_non_null(file);
	bytes = fread(expected, 1, sizeof(expected) - 1, file);
	fclose(file);
	expected[bytes] = 0;
	assert_string_equal(text, expected);
	free(text);
}

#define MS 1000000ull
#define S  (1000 * MS)

static void add_row(struct job *job, __u32 pid, enum span_kind kind, __u64 name, __u64 parent, __u64 calls,
		    __u64 total_ns)
{
	add_agg(job, (struct agg_key){pid, kind, name, parent},
		(struct agg_val){.calls = calls,
				 .total_ns = total_ns,
				 .self_ns = total_ns / 2,
				 .min_ns = total_ns / calls / 2,
				 .max_ns = total_ns / calls * 2,
				 .first_ns = 5 * S + name});
}

enum { EPOCH = 1, BATCH, NEXT, OPTIMIZER, TRAINING_STEP, TORCH_STEP, TORCH_NEXT, BACKWARD, MINE };

static void add_fit(struct job *job, __u32 pid)
{
	add_row(job, pid, SPAN_ACTION, EPOCH, 0, 1, 9 * S);
	add_row(job, pid, SPAN_ACTION, NEXT, EPOCH, 100, 1200 * MS);
	add_row(job, pid, SPAN_ACTION, BATCH, EPOCH, 100, 7 * S + 654321);
	add_row(job, pid, SPAN_ACTION, OPTIMIZER, BATCH, 100, 6 * S);
	add_row(job, pid, SPAN_ACTION, TRAINING_STEP, TORCH_STEP, 100, 2 * S + 123456);
	add_row(job, pid, SPAN_LABEL, TORCH_STEP, OPTIMIZER, 100, 5 * S);
	add_row(job, pid, SPAN_LABEL, TORCH_NEXT, NEXT, 100, 1 * S);
	add_row(job, pid, SPAN_BACKWARD, BACKWARD, TORCH_STEP, 100, 2 * S);
	add_row(job, pid, SPAN_LABEL, MINE, TRAINING_STEP, 200, 1 * S);
}

static struct job *fit_job(__u32 ranks)
{
	struct rec_cost cost = {.hdr = {.type = REC_COST, .size = sizeof(cost)},
				.hits = 6000,
				.busiest_hits = 4000,
				.hit_ns = 1875,
				.own_cpu_ns = 42 * MS,
				.own_rss_bytes = 23456789};
	struct job *job = job__new();

	for (__u32 rank = 0; rank < ranks; rank++)
		add_target(job, 100 + rank, ROLE_MAIN, ranks > 1 ? (int)rank : -1);
	add_target(job, 200, ROLE_WORKER, -1);
	add_window(job, 5 * S, 15 * S + 250 * MS, 100, STEP_LIGHTNING);
	add_copy(job, &cost);
	add_text(job, EPOCH, "run_training_epoch");
	add_text(job, BATCH, "run_training_batch");
	add_text(job, NEXT, "[_TrainingEpochLoop].train_dataloader_next");
	add_text(job, OPTIMIZER, "[LightningModule]Net.optimizer_step");
	add_text(job, TRAINING_STEP, "[Strategy]SingleDeviceStrategy.training_step");
	add_text(job, TORCH_STEP, "Optimizer.step#SGD.step");
	add_text(job, TORCH_NEXT, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
	add_text(job, BACKWARD, "backward");
	add_text(job, MINE, "encode \xe8\xa8\x93\xe7\xb7\xb4 \x1b[31m");
	for (__u32 rank = 0; rank < ranks; rank++)
		add_fit(job, 100 + rank);
	add_row(job, 200, SPAN_LABEL, MINE, 0, 3, 3 * MS);
	return job;
}

static void test_fit(void **state)
{
	struct job *job = fit_job(1);

	check_file("fit", job, (struct report_options){0});
	check_file("fit_all", job, (struct report_options){.all = true});
	check_file("fit_leaf", job, (struct report_options){.leaf = true});
	check_file("fit_limit", job, (struct report_options){.limit = 2, .sort = "mean"});
	check_file("fit_action", job, (struct report_options){.action = "Optimizer.step#SGD.step"});
	check_file("fit_no_action", job, (struct report_options){.action = "nothing"});
	job__free(job);
}

static void test_ranks(void **state)
{
	struct job *job = fit_job(2);
	struct rec_note *note = calloc(1, sizeof(*note) + 128);

	note->hdr = (struct rec_hdr){.type = REC_NOTE, .size = sizeof(*note) + 128};
	note->bytes = snprintf(note->text, 128,
			       "rank 1 was attached 20 ms after rank 0; its first step is counted from "
			       "there and is the shorter for it");
	add_copy(job, note);
	free(note);
	add_counter(job, "open_at_start", 2);
	add_counter(job, "unwound", 1);
	check_file("ranks_added", job, (struct report_options){0});
	check_file("ranks_apart", job, (struct report_options){.per_rank = true});
	job__free(job);
}

static void test_nothing(void **state)
{
	struct job *job = job__new();

	check_file("nothing_recorded", job, (struct report_options){0});
	add_target(job, 100, ROLE_MAIN, -1);
	add_window(job, 0, 30 * S, 0, STEP_NONE);
	check_file("nothing_seen", job, (struct report_options){0});
	job__free(job);
}

/* Without a window there is no share, but the rest of the table stands. */
static void test_cut_before_window(void **state)
{
	struct job *job = job__new();

	add_text(job, 1, "step");
	add_row(job, 7, SPAN_LABEL, 1, 0, 4, 2 * S);
	check_file("no_window", job, (struct report_options){0});
	job__free(job);
}

static const char *const *order_of(struct job *job, const char *sort)
{
	static const char *names[32];
	const struct report_options options = {.sort = sort, .all = true};
	struct rows rows;

	assert_int_equal(rows__collect(job, &options, PROCESSES_ALL_MAIN, "percent", &rows), 0);
	for (size_t i = 0; i < rows.cnt; i++)
		names[i] = rows.items[i].name;
	rows__release(&rows);
	return names;
}

static void test_sort_keys(void **state)
{
	/* calls, total_ns, self_ns, min_ns, max_ns, first_ns */
	static const struct {
		const char *name;
		struct agg_val val;
	} rows[] = {
		{"a", {2, 20, 1, 9, 11, 3, {0}}},
		{"b", {1, 15, 9, 2, 90, 2, {0}}},
		{"c", {9, 18, 5, 1, 12, 1, {0}}},
	};
	static const char *const expected[][2] = {
		{"percent", "acb"}, {"name", "abc"}, {"calls", "cab"}, {"mean", "bac"}, {"total", "acb"},
		{"min", "abc"},     {"max", "bca"},  {"first", "cba"}, {"self", "bca"},
	};
	struct job *job = job__new();

	add_window(job, 0, 100, 0, STEP_NONE);
	for (__u64 i = 0; i < 3; i++) {
		add_text(job, i + 1, rows[i].name);
		add_agg(job, (struct agg_key){1, SPAN_LABEL, i + 1, 0}, rows[i].val);
	}
	for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
		const char *const *names = order_of(job, expected[i][0]);

		assert_string_equal(rows__sort_keys[i], expected[i][0]);
		for (int k = 0; k < 3; k++)
			assert_int_equal(names[k][0], expected[i][1][k]);
	}
	assert_null(rows__sort_keys[sizeof(expected) / sizeof(*expected)]);
	job__free(job);
}

/* Parents that go round in circles, and parents that are not there. */
static void test_leaf_of_circles(void **state)
{
	const struct report_options options = {.leaf = true};
	struct job *job = job__new();
	struct rows rows;

	for (__u64 name = 1; name <= 4; name++)
		add_text(job, name, (const char[]){'a' + name - 1, 0});
	add_row(job, 1, SPAN_LABEL, 1, 2, 1, 10);
	add_row(job, 1, SPAN_LABEL, 2, 1, 1, 10);
	add_row(job, 1, SPAN_LABEL, 3, 3, 1, 10);
	add_row(job, 1, SPAN_LABEL, 4, 99, 1, 10);
	add_row(job, 2, SPAN_LABEL, 2, 4, 1, 10); /* another process: says nothing of process 1 */
	assert_int_equal(rows__collect(job, &options, 1, "first", &rows), 0);
	assert_int_equal(rows.cnt, 2);
	assert_string_equal(rows.items[0].name, "c");
	assert_string_equal(rows.items[1].name, "d");
	rows__release(&rows);
	job__free(job);
}

/* Added over processes, a row is a leaf only where it is one in each of them. */
static void test_leaf_over_processes(void **state)
{
	const struct report_options options = {.leaf = true};
	struct job *job = job__new();
	struct rows rows;

	add_text(job, 1, "a");
	add_text(job, 2, "b");
	for (__u32 pid = 1; pid <= 2; pid++) {
		add_row(job, pid, SPAN_LABEL, 1, 0, 1, 10);
		add_row(job, pid, SPAN_LABEL, 2, pid == 2 ? 1 : 0, 1, 10);
	}
	assert_int_equal(rows__collect(job, &options, PROCESSES_ALL_MAIN, "first", &rows), 0);
	assert_int_equal(rows.cnt, 1);
	assert_string_equal(rows.items[0].name, "b");
	assert_int_equal(rows.items[0].val.calls, 2);
	rows__release(&rows);
	job__free(job);
}

static void test_labels(void **state)
{
	static const struct {
		const char *name, *stage;
	} stages[] = {
		{"run_training_epoch", "FIT"},
		{"[_TrainingEpochLoop].train_dataloader_next", "FIT"},
		{"[Callback]TQDMProgressBar.on_fit_start", "FIT"},
		{"[LightningModule]Net.on_train_start", "FIT"},
		{"[_EvaluationLoop].val_next", "VALIDATE"},
		{"[Callback]TQDMProgressBar.on_validation_start", "VALIDATE"},
		{"[_EvaluationLoop].test_next", "TEST"},
		{"[Strategy]S.test_step", "TEST"},
		{"[_PredictionLoop].predict_next", "PREDICT"},
		{"save_checkpoint", NULL},
	};
	struct job_action both[2] = {{.name = "[_EvaluationLoop].val_next", .kind = SPAN_ACTION},
				     {.name = "run_training_batch", .kind = SPAN_ACTION}};

	for (size_t i = 0; i < sizeof(stages) / sizeof(*stages); i++) {
		struct job_action row = {.name = stages[i].name, .kind = SPAN_ACTION};
		const char *stage = labels__stage(&row, 1);

		assert_int_equal(!stage, !stages[i].stage);
		if (stage)
			assert_string_equal(stage, stages[i].stage);
		row.kind = SPAN_LABEL;
		assert_null(labels__stage(&row, 1));
	}
	assert_string_equal(labels__stage(both, 2), "FIT");
	assert_true(labels__is_torch("[pl][module]torch.nn.modules.linear.Linear: layer"));
	assert_true(labels__is_torch("ProfilerStep#7"));
	assert_false(labels__is_torch("my Optimizer.step#"));
}

static void test_text(void **state)
{
	char *escaped = utf8__escape("a\x1b\xc2\x9b\xe2\x80\xae\xff\xc3\xa4");

	assert_string_equal(escaped, "a\\x1b\\x9b\\u202e\xef\xbf\xbd\xc3\xa4");
	free(escaped);
	assert_int_equal(text__width("\xf0\x9f\x94\xa5\xc3\xa4x"), 3);
	assert_int_equal(text__expanded_width("\n|  a\t|"), 10);
	assert_int_equal(text__expanded_width("1234567\t"), 8);
	assert_int_equal(text__expanded_width("12345678\t"), 16);
}

static void test_reports(void **state)
{
	assert_ptr_equal(report__find("simple"), &report_simple);
	assert_null(report__find("none"));
	assert_string_equal(report_simple.sort_keys[0], "percent");
}

static void test_full_device(void **state)
{
	const struct report_options options[] = {{.json = true}, {.json = false}};
	struct job *job = fit_job(1);

	for (int i = 0; i < 2; i++) {
		FILE *full = fopen("/dev/full", "w");

		assert_true((options[i].json ? report_simple.json : report_simple.text)(job, &options[i], full) < 0);
		fclose(full);
	}
	job__free(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fit),
		cmocka_unit_test(test_ranks),
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_cut_before_window),
		cmocka_unit_test(test_sort_keys),
		cmocka_unit_test(test_leaf_of_circles),
		cmocka_unit_test(test_leaf_over_processes),
		cmocka_unit_test(test_labels),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_reports),
		cmocka_unit_test(test_full_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
