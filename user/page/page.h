/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flame page. In: a flame. Out: one HTML file, which opens offline and makes no request. */
#ifndef STEPFLAME_USER_PAGE_PAGE_H
#define STEPFLAME_USER_PAGE_PAGE_H

#include <stdio.h>

#include "user/page/content.h"

/* 0 or -ENOMEM; the caller checks out for errors. */
int page__write(const struct page *page, FILE *out);

#endif
