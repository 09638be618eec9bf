/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flame page. In: a flame. Out: one HTML file, which opens offline and makes no request. */
#ifndef STEPFLAME_USER_PAGE_PAGE_H
#define STEPFLAME_USER_PAGE_PAGE_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "user/analysis/flame/flame.h"
#include "user/analysis/resources/curves.h"
#include "user/analysis/timeline/lanes.h"

/* What a page shows. */

#define PAGE_RECORDINGS 2

struct page {
	const struct flame *flame;
	const struct lanes *lanes;
	const struct use_curves *uses;
	struct flame_choice choice; /* what the page shows first */
	uint32_t recording_cnt;
	struct page_recording {
		char file[4096]; /* the name of the recording; UTF-8 */
		char *about;     /* the paragraphs that end a report: window, targets, cost, losses */
		json_t *answer;  /* of summary__answer_json */
		double seconds;  /* of which there are samples: without what was dropped, and rests; 0: not known */
	} recordings[PAGE_RECORDINGS];
};

static inline void page_recording__release(struct page_recording *recording)
{
	free(recording->about);
	json_decref(recording->answer);
}

/* 0 or -ENOMEM; the caller checks out for errors. */
int page__write(const struct page *page, FILE *out);

#endif
