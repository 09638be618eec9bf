/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the page says where scripts do not run: the functions that take most time, the longest
 * steps, and the losses.
 */
#ifndef STEPFLAME_USER_PAGE_TOP_LIST_H
#define STEPFLAME_USER_PAGE_TOP_LIST_H

#include <stdio.h>

#include "user/page/content.h"

/* Writes HTML. 0 or -ENOMEM; the caller checks out for errors. */
int top_list__write(const struct page *page, FILE *out);

#endif
