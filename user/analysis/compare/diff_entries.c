// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What the parts of diff add: times by section and name. */
#include <errno.h>
#include <stdlib.h>

#include "user/analysis/compare/diff_private.h"
#include "user/model/job.h"

struct diff_entry *diff__entry(struct diff_maker *m, enum diff_section section, const char *name)
{
	struct entry_key key = {.section = section};
	struct diff_entry *entry;

	if (m->err || !name)
		return NULL;
	entry = map__add_text(&m->entry_names, name, &key.name) ? NULL : MAP_ADD(&m->entries, struct diff_entry, &key);
	if (entry)
		entry->row.in[m->side] = true;
	else
		m->err = -ENOMEM;
	return entry;
}

void diff__add(struct diff_maker *m, enum diff_section section, const char *name, int block, double seconds)
{
	struct diff_entry *entry = block >= 0 ? diff__entry(m, section, name) : NULL;

	if (entry)
		entry->totals[block] += seconds;
}

void diff__add_row(struct diff_maker *m, enum diff_section section, const char *name, const struct history_row *row,
		   const struct agg_val *val)
{
	struct diff_entry *entry = row ? diff__entry(m, section, name) : NULL;
	const struct history_row **slot;

	for (size_t i = 0; entry && i < entry->rows.cnt; i++)
		if (((const struct history_row **)entry->rows.items)[i] == row)
			return;
	slot = entry ? array__add(&entry->rows, sizeof(*slot)) : NULL;
	if (slot)
		*slot = row;
	else if (entry)
		m->err = -ENOMEM;
	if (slot && val)
		job__add_val(&entry->val, val);
}

void diff__free_entries(struct diff_maker *m)
{
	struct diff_entry *entries = m->entries.items.items;

	for (size_t i = 0; i < m->entries.items.cnt; i++)
		free(entries[i].rows.items);
	map__free(&m->entries);
	map__free_texts(&m->entry_names);
}
