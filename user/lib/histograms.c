// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/histograms.h"

#include <errno.h>
#include <stdlib.h>

#include "user/lib/saturating.h"

int histograms__number(struct histograms *histograms, uint32_t slot, uint32_t value, uint32_t *number)
{
	return intern__add(&histograms->keys, (uint64_t)(slot + 1) << 32 | value, number);
}

int histograms__add(struct histograms *histograms, uint32_t slot, uint32_t value, uint64_t amount)
{
	uint32_t number;
	uint64_t *total;

	if (histograms__number(histograms, slot, value, &number) ||
	    array__grow(&histograms->totals, intern__end(&histograms->keys), sizeof(*total)))
		return -ENOMEM;
	total = &((uint64_t *)histograms->totals.items)[number];
	*total = saturating__add(*total, amount);
	return 0;
}

uint64_t histograms__total(const struct histograms *histograms, uint32_t slot, uint32_t value)
{
	uint32_t number = intern__find(&histograms->keys, (uint64_t)(slot + 1) << 32 | value);

	return number ? ((const uint64_t *)histograms->totals.items)[number] : 0;
}

static void insert_into_top(struct histogram_top *top, size_t cnt, struct histogram_top new)
{
	for (size_t i = 0; i < cnt; i++) {
		struct histogram_top old = top[i];

		if (new.total <= old.total)
			continue;
		top[i] = new;
		new = old;
	}
}

void histograms__top(const struct histograms *histograms, size_t slot_cnt, size_t cnt, struct histogram_top *top)
{
	const uint64_t *totals = histograms->totals.items;

	for (uint32_t i = 1; i < intern__end(&histograms->keys); i++) {
		uint64_t key = intern__key(&histograms->keys, i), slot = (key >> 32) - 1;

		if (slot < slot_cnt)
			insert_into_top(top + slot * cnt, cnt, (struct histogram_top){key, i, totals[i]});
	}
}

void histograms__free(struct histograms *histograms)
{
	intern__free(&histograms->keys);
	free(histograms->totals.items);
	*histograms = (struct histograms){0};
}
