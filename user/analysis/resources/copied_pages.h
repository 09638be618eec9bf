/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Memory that is used up although no process grows: a forked worker shares the pages of its process
 * until one of both writes into them, for which counting a reference is enough (Python's lists of
 * objects, as datasets have them). Then the page is copied. Resident memory counts a page in both
 * before and after.
 */
#ifndef STEPFLAME_USER_ANALYSIS_RESOURCES_COPIED_PAGES_H
#define STEPFLAME_USER_ANALYSIS_RESOURCES_COPIED_PAGES_H

#include "user/analysis/resources/resources.h"

struct copied_pages {
	double per_s;    /* bytes by which the machine's available memory shrinks; 0: not seen */
	double faults_s; /* minor faults a second of the workers and children */
};

/*
 * Looks at the machine of the first process of `uses`, between the first and the last step. All of these must
 * be so: available memory shrinks all the time; the job's processes grow by less than a third of it; and its
 * workers have page faults for half of it. 0 or -ENOMEM.
 */
int copied_pages__find(struct job *job, const struct step_track *tracks, size_t track_cnt,
		       const struct resource_use *uses, size_t cnt, struct copied_pages *out);

#endif
