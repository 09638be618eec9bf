// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/spots.h"

#include <errno.h>
#include <stdlib.h>

static int add_file(struct spots *spots, uint32_t slot, uint32_t line, const struct sample *sample)
{
	uint32_t spot, file;

	return tallies__number(&spots->tallies, slot, line, &spot) ?:
	       intern__add(&spots->file_ids, sample->file, &file) ?:
	       tallies__add(&spots->files, spot, file, sample->weight_ns);
}

int spots__add(struct spots *spots, uint32_t slot, const struct sample *sample)
{
	uint32_t line = spots->lines[sample->stack];
	int err;

	if (!line)
		return 0;
	err = tallies__add(&spots->tallies, slot, line, sample->weight_ns);
	return err || !sample->file ? err : add_file(spots, slot, line, sample);
}

int spots__top(const struct spots *spots, size_t slot_cnt, size_t cnt, struct spot *top)
{
	size_t spot_end = intern__end(&spots->tallies.keys);
	struct tally_top *found = calloc(slot_cnt * cnt + 1, sizeof(*found));
	struct tally_top *files = calloc(spot_end, sizeof(*files));
	int err = found && files ? 0 : -ENOMEM;

	if (err)
		goto out;
	tallies__top(&spots->tallies, slot_cnt, cnt, found);
	tallies__top(&spots->files, spot_end, 1, files);
	for (size_t i = 0; i < slot_cnt * cnt && !err; i++) {
		uint64_t key = intern__key(&spots->places->lines, found[i].value);
		const struct tally_top *file = &files[found[i].number];

		top[i] = (struct spot){.code = key >> 32, .line = key, .ns = found[i].sum};
		if (2 * file->sum >= found[i].sum)
			top[i].file = intern__key(&spots->file_ids, file->value);
	}
out:
	free(found);
	free(files);
	return err;
}

void spots__free(struct spots *spots)
{
	tallies__free(&spots->tallies);
	intern__free(&spots->file_ids);
	tallies__free(&spots->files);
}
