/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the page draws, as the one text in it that comes from a recording: gzip in base64, which no name can break out of. */
#ifndef STEPFLAME_USER_PAGE_DATA_H
#define STEPFLAME_USER_PAGE_DATA_H

#include <stdio.h>

#include "user/page/content.h"

/*
 * Writes to out: a JSON object, then numbers (LEB128) in the order in which user/page/data.js reads them. 0 or -ENOMEM; errors of out
 * are left to the caller.
 */
int page_data__write(const struct page *page, FILE *out);

#endif
