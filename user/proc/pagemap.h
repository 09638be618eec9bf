/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* /proc/PID/pagemap: 8 bytes a page (Linux Documentation/admin-guide/mm/pagemap.rst). */
#ifndef STEPFLAME_USER_PROC_PAGEMAP_H
#define STEPFLAME_USER_PROC_PAGEMAP_H

#define PAGE           4096UL
#define PAGE_OF_FILE   (1ULL << 61)
#define PAGE_EXISTS    (3ULL << 62) /* in memory, or swapped out */
#define PAGE_IN_MEMORY (1ULL << 63)
#define PAGE_EXCLUSIVE (1ULL << 56) /* one process maps it */

#endif
