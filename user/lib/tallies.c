// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/tallies.h"

#include <errno.h>
#include <stdlib.h>

#include "user/lib/saturating.h"

int tallies__number(struct tallies *tallies, uint32_t slot, uint32_t value, uint32_t *number)
{
	return intern__add(&tallies->keys, (uint64_t)(slot + 1) << 32 | value, number);
}

int tallies__add(struct tallies *tallies, uint32_t slot, uint32_t value, uint64_t amount)
{
	uint32_t number;
	uint64_t *sum;

	if (tallies__number(tallies, slot, value, &number) ||
	    array__grow(&tallies->sums, intern__end(&tallies->keys), sizeof(*sum)))
		return -ENOMEM;
	sum = &((uint64_t *)tallies->sums.items)[number];
	*sum = saturating__add(*sum, amount);
	return 0;
}

static void put_top(struct tally_top *top, size_t cnt, struct tally_top new)
{
	for (size_t i = 0; i < cnt; i++) {
		struct tally_top old = top[i];

		if (new.sum <= old.sum)
			continue;
		top[i] = new;
		new = old;
	}
}

void tallies__top(const struct tallies *tallies, size_t slot_cnt, size_t cnt, struct tally_top *top)
{
	const uint64_t *sums = tallies->sums.items;

	for (uint32_t i = 1; i < intern__end(&tallies->keys); i++) {
		uint64_t key = intern__key(&tallies->keys, i), slot = (key >> 32) - 1;

		if (slot < slot_cnt)
			put_top(top + slot * cnt, cnt, (struct tally_top){key, i, sums[i]});
	}
}

void tallies__free(struct tallies *tallies)
{
	intern__free(&tallies->keys);
	free(tallies->sums.items);
	*tallies = (struct tallies){0};
}
