/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What every report prints besides its own table: what was observed, what the observation cost, and
 * what was lost.
 */
#ifndef STEPFLAME_USER_REPORT_COMMON_H
#define STEPFLAME_USER_REPORT_COMMON_H

#include <jansson.h>

#include "user/report/report.h"

/* "optimizer", as in JSON: a word for enum step_rule; NULL: no steps were found. */
const char *common__step_rule_name(uint32_t rule);
/* Says how steps were found (enum step_rule), such as "Optimizer.step". Returns a static text. */
const char *common__step_rule(uint32_t rule);

/*
 * Returns the target record of a process; where the recording has none, a record with what else is
 * known of the process.
 */
struct rec_target common__target(const struct job *job, uint32_t pid);

/* Prints the line above the table of one process, "pid 42 (main, rank 0)". */
void common__process(const struct rec_target *target, FILE *out);

/* Prints the paragraphs below a table: window, target, cost, losses, note. */
void common__text(struct job *job, FILE *out);

/*
 * Return what the recording cost the target that paid most, and stepflame's own CPU time, both in %
 * of the window; below 0: not known.
 */
double common__target_percent(const struct job *job);
double common__own_percent(const struct job *job);
/* What a counter of include/counters.h counts; NULL: another counter. Returns a static text. */
const char *common__counter_meaning(const char *name);

/* Returns a new object with the keys that all reports share, for report `name`; NULL: no memory. */
json_t *common__json(struct job *job, const char *name);
/* Returns an object that describes the process `target`. NULL: no memory. */
json_t *common__json_target(const struct rec_target *target);
/*
 * Prints an object and drops the reference to it. The output is ASCII only, so that no name can
 * steer a terminal. 0 or -errno; -ENOMEM where object is NULL.
 */
int common__print_json(json_t *object, FILE *out);
/*
 * Prints the rows of an object at the end of path (see csv.h) as CSV. If there are none, the heads
 * are the keys of blank, a row; NULL: no memory. Takes object and blank over. Returns as above.
 */
int common__print_csv(json_t *object, const char *const *path, json_t *blank, FILE *out);
/*
 * Prints an object as JSON; with --csv, its rows as above; path begins with "processes", also where
 * the object has no such list.
 */
int common__print_object(json_t *object, const struct report_options *options, const char *const *path, json_t *blank,
			 FILE *out);
/*
 * Returns an item of `processes`: it describes the process and holds the rows under `key`. Takes
 * rows over. NULL: no memory, for this object or (rows is NULL) for the rows. NULL key: no rows.
 */
json_t *common__json_process(const struct rec_target *target, const char *key, json_t *rows);

/* A report that has a table for each process. */
struct common_tables {
	/* Lists the processes that have a table of their own; malloc'ed. 0 or -ENOMEM. */
	int (*processes)(struct job *job, struct rec_target **out, size_t *cnt);
	/*
	 * Print the table, or return the rows, of pid or of PROCESSES_ALL_MAIN. 0 or -ENOMEM; NULL:
	 * no memory.
	 */
	int (*print)(struct job *job, const struct report_options *options, uint32_t pid, FILE *out);
	json_t *(*rows)(struct job *job, const struct report_options *options, uint32_t pid);
	const char *key; /* of the rows in JSON */
	/* Returns why it has no row, malloc'ed; NULL: it has some, or no memory. */
	char *(*why_empty)(struct job *job, const struct report_options *options, uint32_t pid);
	/* What JSON has after the rows, under more_key; a NULL function: nothing. */
	json_t *(*more)(struct job *job, uint32_t pid);
	const char *more_key;
};

/* Prints the table of all main processes, or with --per-rank one for each process. 0 or -errno. */
int common__print_tables(const struct common_tables *tables, struct job *job, const struct report_options *options,
			 FILE *out);
/* Returns why none of these tables has a row, as tables->why_empty does. */
char *common__why_empty(const struct common_tables *tables, struct job *job, const struct report_options *options);
/*
 * Returns the object of a report with the rows of all main processes, and with --per-rank
 * `processes`. NULL: no memory.
 */
json_t *common__json_tables(const char *name, const struct common_tables *tables, struct job *job,
			    const struct report_options *options);

/*
 * Lists the processes that have a table of their own with --per-rank: those that occur in `items`,
 * each of which has a uint32_t pid at offset pid_at. Targets come first, in their order, then
 * unknown pids. *out is malloc'ed. 0 or -ENOMEM.
 */
int common__processes(const struct job *job, const void *items, size_t cnt, size_t item_bytes, size_t pid_at,
		      struct rec_target **out, size_t *out_cnt);

/* Counts the processes that occur in such items. 0 or -ENOMEM. */
int common__count_processes(const void *items, size_t cnt, size_t item_bytes, size_t pid_at, size_t *out);

/*
 * Add an item, which they take over, to a list or object. Where there is no memory, or item is NULL
 * for that reason, the list or object is freed and becomes NULL.
 */
void common__json_append(json_t **list, json_t *item);
void common__json_set(json_t **object, const char *key, json_t *item);
/* Returns the first item of a list, which it drops; NULL after a failure. */
json_t *common__json_first(json_t *list, int failed);
/* Returns value; after a failure drops value and returns NULL. */
json_t *common__json_unless_failed(json_t *value, int failed);
/*
 * Return new references: null for a number that is not known; INT64_MAX for an integer that exceeds
 * it.
 */
json_t *common__json_real(bool known, double value);
json_t *common__json_integer(uint64_t value);
/* Returns part as a percentage of whole; null where whole is 0. */
json_t *common__json_percent(double part, double whole);
/* Returns text as a JSON string, and null for "". New reference. */
json_t *common__json_text(const char *text);

/*
 * Prints "3 more rows (--limit 20)" for a table of cnt rows; prints nothing where the table shows
 * all rows.
 */
void common__left_out(size_t cnt, size_t limit, const char *what, FILE *out);
/*
 * Ends the text of a report: prints the paragraphs below its tables, unless the report failed with
 * err. 0 or -errno.
 */
int common__end(int err, struct job *job, FILE *out);
/* Flushes out. 0 when everything printed so far was written, else -errno. */
int common__flush(FILE *out);

#endif
