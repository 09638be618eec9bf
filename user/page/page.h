/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flame page: a flame in, one HTML file out, which opens offline and asks nothing of any address. */
#ifndef STEPFLAME_USER_PAGE_PAGE_H
#define STEPFLAME_USER_PAGE_PAGE_H

#include <stdio.h>

#include "user/page/content.h"

/* 0 or -ENOMEM; errors of out are left to the caller. */
int page__write(const struct page *page, FILE *out);

#endif
