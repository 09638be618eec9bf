// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/resources.h"

#include <errno.h>
#include <stdlib.h>

int resources__add(struct resources *resources, const struct rec_resources *record)
{
	struct rec_resources *sample = array__add(&resources->samples, sizeof(*sample));

	if (!sample)
		return -ENOMEM;
	*sample = *record;
	resources->sorted = false;
	return 0;
}

static int compare(const void *a, const void *b)
{
	const struct rec_resources *x = a, *y = b;

	if (x->pid != y->pid)
		return (x->pid > y->pid) - (x->pid < y->pid);
	return (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns);
}

const struct rec_resources *resources__samples(struct resources *resources, size_t *cnt)
{
	*cnt = resources->samples.cnt;
	if (!resources->sorted && *cnt)
		qsort(resources->samples.items, *cnt, sizeof(struct rec_resources), compare);
	resources->sorted = true;
	return resources->samples.items;
}

void resources__free(struct resources *resources)
{
	free(resources->samples.items);
}
