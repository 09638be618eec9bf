/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The data that the page draws: gzip in base64, so that no name can break out of it. It is the only
 * text in the page that comes from a recording.
 */
#ifndef STEPFLAME_USER_PAGE_DATA_H
#define STEPFLAME_USER_PAGE_DATA_H

#include <stdio.h>

#include "user/page/content.h"

/*
 * Writes a JSON object to out, then numbers (LEB128) in the order in which user/page/data.js reads
 * them. 0 or -ENOMEM; the caller checks out for errors.
 */
int page_data__write(const struct page *page, FILE *out);

#endif
