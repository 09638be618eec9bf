/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the text and the JSON of the summary share. */
#ifndef STEPFLAME_USER_REPORT_SUMMARY_H
#define STEPFLAME_USER_REPORT_SUMMARY_H

#include "user/analysis/cause/slowdown.h"
#include "user/analysis/live/trigger.h"
#include "user/analysis/loader/workers.h"
#include "user/report/steps_report.h"

struct summary {
	struct job *job;
	const struct report_options *options;
	struct steps_view view;
	const struct step_track *track; /* whose steps are shown; NULL: no whole step is in the recording */
	struct steps_of of;             /* of that track */
	struct slowdown slowdown;       /* likewise */
	struct workers *workers;
	const struct loader *loaders;
	size_t loader_cnt;
};

/* 0 or -ENOMEM. Free with summary__release. */
int summary__new(struct job *job, const struct report_options *options, struct summary *out);
void summary__release(struct summary *summary);
/* Returns steps per second of the track; 0 without one. */
double summary__steps_per_s(const struct summary *summary);
/* What the process does since its last step, where it has made none for long and is not over; else NULL. */
const struct outside_part *summary__stall(const struct summary *summary);

/* A row of the longest actions or operators. */
struct summary_row {
	const char *name, *kind; /* owned by the job; a static text, as in the JSON of other reports */
	uint64_t calls, ns;      /* ns: in the calls, less the time in actions or operators inside */
};

struct summary_rows {
	struct summary_row *items; /* malloc'ed; longest first */
	size_t cnt;
	bool of_ops;      /* operators, else actions */
	double window_ns; /* the time observed, of all processes whose rows were added; 0: not known */
};

/*
 * Collects the operators, if the recording has some, else the actions; leaves out those that merely
 * contain others, or take hardly any time. 0 or -ENOMEM.
 */
int summary_rows__collect(struct job *job, const struct steps_view *view, size_t limit, struct summary_rows *out);
void summary_rows__release(struct summary_rows *rows);
/* Adds them to a table; columns: those that its text may take. 0 or -ENOMEM. */
int summary_rows__print(const struct summary_rows *rows, size_t columns, struct table *table);

#define SUMMARY_ROWS 5

/* In summary_text.c. They return static texts, or out. */
const char *summary_text__cause(unsigned int cause);         /* of struct blame_group: what takes a slow step longer */
const char *summary_text__plural(uint64_t cnt);              /* "s", or "" for 1 */
const char *summary_text__duration(double ns, char out[32]); /* "12.3 ms", "4.1 s" */
/* The group of slow steps that the verdict is about; NULL: it is about all steps. */
const struct blame_group *summary_text__group(const struct steps_of *of);
/*
 * What limits the steps: "getting the data (input-bound): about 12 % of the time can be won".
 * malloc'ed; NULL: no memory.
 */
char *summary_text__limit(const struct steps_of *of);
/* "sleeping in data", "Python's garbage collection (generation 2)"; malloc'ed; NULL: no memory. */
char *summary_text__how(const struct steps_of *of, const struct blame_group *group);
/* *place: "train.py:67 load", malloc'ed; NULL: not known. 0 or -ENOMEM. */
int summary_text__place(struct job *job, const struct blame_group *group, char **place);
#define SUMMARY_ADVICE_BYTES 96
/* What is advised of a DataLoader's workers, behind what they do: "; more would not help", or "". */
const char *summary_text__advice(const struct loader *loader, char out[SUMMARY_ADVICE_BYTES]);

/* What makes most of the longer steps longer; NULL: there is no single cause. */
const struct blame_group *summary__slowdown_group(const struct summary *summary);
/* That as text: "sleeping in data, at train.py:67 load", or ""; malloc'ed; NULL: no memory. */
char *summary__slowdown_why(const struct summary *summary);

/*
 * Which rank has held the others up since then, and by what: "rank 1: it is in collectives for ..., at
 * train.py:67 load", or "" if none has; malloc'ed; NULL: no memory.
 */
char *summary__straggler_since(const struct summary *summary, uint64_t from_ns);

/* In summary_json.c. */
int summary__json(struct job *job, const struct report_options *options, FILE *out);

/*
 * The answer of a recording, for views that draw it: what the steps and the summary report say of each
 * track. Returns {shown, tracks}: the index of the track that the reports show first, null without tracks;
 * and of each track of the view, in its order, `verdict` and `causes` as report --steps --json has
 * them, with the words of the summary (`words`, `head`, `how`, `place`), and of each cause its
 * `share` of the time of all steps and the indexes of its `steps`. NULL: no memory.
 */
json_t *summary__answer_json(const struct steps_view *view);

/* ---- the words for what trigger.h sees ---- */

#define SUMMARY_EVENT_BYTES 256 /* bytes */

/* Writes "step 512 of process 7 took 1.2 s; the steps before it ...". Returns text. */
const char *summary_text__event(const struct trigger_event *event, char text[SUMMARY_EVENT_BYTES]);

#endif
