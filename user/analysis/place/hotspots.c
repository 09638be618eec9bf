// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/place/hotspots.h"

#include <errno.h>
#include <stdlib.h>

static int hotspots__add_file(struct hotspots *hotspots, uint32_t slot, uint32_t line, const struct sample *sample)
{
	uint32_t hotspot, file;

	return histograms__number(&hotspots->by_line, slot, line, &hotspot) ?:
	       intern__add(&hotspots->file_ids, sample->file, &file) ?:
	       histograms__add(&hotspots->files, hotspot, file, sample->weight_ns);
}

int hotspots__add(struct hotspots *hotspots, uint32_t slot, const struct sample *sample)
{
	uint32_t line = hotspots->lines[sample->stack];
	int err;

	if (!line)
		return 0;
	err = histograms__add(&hotspots->by_line, slot, line, sample->weight_ns);
	return err || !sample->file ? err : hotspots__add_file(hotspots, slot, line, sample);
}

int hotspots__top(const struct hotspots *hotspots, size_t slot_cnt, size_t cnt, struct hotspot *top)
{
	size_t hotspot_end = intern__end(&hotspots->by_line.keys);
	struct histogram_top *found = calloc(slot_cnt * cnt + 1, sizeof(*found));
	struct histogram_top *files = calloc(hotspot_end, sizeof(*files));
	int err = found && files ? 0 : -ENOMEM;

	if (err)
		goto out;
	histograms__top(&hotspots->by_line, slot_cnt, cnt, found);
	histograms__top(&hotspots->files, hotspot_end, 1, files);
	for (size_t i = 0; i < slot_cnt * cnt && !err; i++) {
		uint64_t key = intern__key(&hotspots->places->lines, found[i].value);
		const struct histogram_top *file = &files[found[i].number];

		top[i] = (struct hotspot){.code = key >> 32, .line = key, .ns = found[i].total};
		if (2 * file->total >= found[i].total)
			top[i].file = intern__key(&hotspots->file_ids, file->value);
	}
out:
	free(found);
	free(files);
	return err;
}

void hotspots__free(struct hotspots *hotspots)
{
	histograms__free(&hotspots->by_line);
	intern__free(&hotspots->file_ids);
	histograms__free(&hotspots->files);
}
