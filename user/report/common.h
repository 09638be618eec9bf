/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every report says besides its own table: what was observed, what it cost, what was lost. */
#ifndef STEPFLAME_USER_REPORT_COMMON_H
#define STEPFLAME_USER_REPORT_COMMON_H

#include <jansson.h>

#include "user/report/report.h"

/* "Optimizer.step": by what steps are told apart (enum step_rule); static. */
const char *common__step_rule(uint32_t rule);

/* How the recording introduces a process, or what is known of one that it does not. */
struct rec_target common__target(const struct job *job, uint32_t pid);

/* "pid 42 (main, rank 0)": the line above a table of one process. */
void common__process(const struct rec_target *target, FILE *out);

/* The paragraphs below a table: window, target, cost, lost, note. */
void common__text(struct job *job, FILE *out);

/* A new object with the common keys of report `name`; NULL: no memory. */
json_t *common__json(struct job *job, const char *name);
/* An object of `target`: who a process is. NULL: no memory. */
json_t *common__json_target(const struct rec_target *target);
/*
 * Prints an object and drops the reference to it (NULL: -ENOMEM). ASCII only, so that no name steers a terminal. 0 or
 * -errno.
 */
int common__print_json(json_t *object, FILE *out);
/*
 * An object of `processes`: who it is, and its rows under `key`. Takes rows over; NULL when there was no memory for
 * them or for it.
 */
json_t *common__json_process(const struct rec_target *target, const char *key, json_t *rows);

/* A report that has a table for each process. */
struct common_tables {
	/* Those with a table of their own; malloc'ed. 0 or -ENOMEM. */
	int (*processes)(struct job *job, struct rec_target **out, size_t *cnt);
	/* The table of pid, or of PROCESSES_ALL_MAIN. 0 or -ENOMEM; NULL. */
	int (*print)(struct job *job, const struct report_options *options, uint32_t pid, FILE *out);
	json_t *(*rows)(struct job *job, const struct report_options *options, uint32_t pid);
	const char *key; /* of the rows */
	/* What JSON has behind them; NULL: nothing. */
	json_t *(*more)(struct job *job, uint32_t pid);
	const char *more_key;
};

/* The table of all main processes, or with --per-rank one for each process. 0 or -errno. */
int common__print_tables(const struct common_tables *tables, struct job *job, const struct report_options *options,
			 FILE *out);
/* The object of a report with the rows of all main processes, and with --per-rank `processes`. NULL: no memory. */
json_t *common__json_tables(const char *name, const struct common_tables *tables, struct job *job,
			    const struct report_options *options);

/*
 * Processes that have a table of their own with --per-rank, of items that have a uint32_t pid at pid_at: targets in their
 * order, then unknown pids. malloc'ed into *out. 0 or -ENOMEM.
 */
int common__processes(const struct job *job, const void *items, size_t cnt, size_t item_bytes, size_t pid_at,
		      struct rec_target **out, size_t *out_cnt);

/* How many processes such items are of. 0 or -ENOMEM. */
int common__count_processes(const void *items, size_t cnt, size_t item_bytes, size_t pid_at, size_t *out);

/* Adds to a list, or object, which becomes NULL where there is no memory; takes item over (NULL: no memory). */
void common__json_append(json_t **list, json_t *item);
void common__json_set(json_t **object, const char *key, json_t *item);
/* value, or NULL and value dropped. */
json_t *common__json_unless_failed(json_t *value, int failed);
/* A number that may not be known, which is null; an integer that may be more than JSON's. New references. */
json_t *common__json_real(bool known, double value);
json_t *common__json_integer(uint64_t value);
/* part of whole in %; of nothing: null. */
json_t *common__json_percent(double part, double whole);
/* Text as a JSON string, "" as null. New reference. */
json_t *common__json_text(const char *text);

/* "3 more rows (--limit 20)", of cnt rows; nothing where all of them are shown. */
void common__left_out(size_t cnt, size_t limit, const char *what, FILE *out);
/* The end of a report's text: the paragraphs below its tables, unless it failed with err. 0 or -errno. */
int common__end(int err, struct job *job, FILE *out);
/* -errno of what was printed to out so far, flushed; 0 when all of it went. */
int common__flush(FILE *out);

#endif
