/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flame page: a flame in, one HTML file out, which opens offline and asks nothing of any address. */
#ifndef STEPFLAME_USER_PAGE_PAGE_H
#define STEPFLAME_USER_PAGE_PAGE_H

#include <stdio.h>

#include "user/analysis/flame.h"

#define PAGE_RECORDINGS 2

struct page {
	const struct flame *flame;
	struct flame_choice choice; /* what it shows first */
	uint32_t recording_cnt;
	struct page_recording {
		char file[4096]; /* its name; UTF-8 */
		char *about;     /* window, targets, cost, what was lost: the paragraphs below reports */
	} recordings[PAGE_RECORDINGS];
};

/* 0 or -ENOMEM; errors of out are left to the caller. */
int page__write(const struct page *page, FILE *out);

#endif
