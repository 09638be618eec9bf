// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/export/arrow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/export/arrow_private.h"
#include "user/lib/utf8.h"

struct arrow *arrow__new(const struct arrow_column *columns, size_t cnt, FILE *out)
{
	struct arrow *arrow = calloc(1, sizeof(*arrow));

	if (arrow)
		arrow->columns = calloc(cnt, sizeof(*arrow->columns));
	if (!arrow || !arrow->columns) {
		free(arrow);
		return NULL;
	}
	arrow->out = out;
	arrow->column_cnt = cnt;
	for (size_t i = 0; i < cnt; i++)
		arrow->columns[i].is = &columns[i];
	arrow__begin_batch(arrow);
	if (cnt > ARROW_COLUMNS_MAX)
		arrow__fail(arrow, -EINVAL);
	else
		arrow__write_head(arrow);
	return arrow;
}

void arrow__free(struct arrow *arrow)
{
	for (size_t i = 0; arrow && i < arrow->column_cnt; i++) {
		struct arrow_data *column = &arrow->columns[i];

		free(column->values.items);
		free(column->present.items);
		free(column->ends.items);
		map__free_texts(&column->texts);
	}
	if (arrow) {
		free(arrow->columns);
		free(arrow->message.bytes);
		free(arrow->batches.items);
		free(arrow->dictionaries.items);
	}
	free(arrow);
}

void arrow__fail(struct arrow *arrow, int err)
{
	if (!arrow->err)
		arrow->err = err;
}

void arrow__add_bytes(struct arrow *arrow, struct arrow_bytes *to, const void *bytes, size_t cnt)
{
	if (!cnt)
		return;
	if (to->room - to->cnt < cnt) {
		size_t room = 2 * to->room + cnt + 64;
		void *grown = realloc(to->items, room);

		if (!grown) {
			arrow__fail(arrow, -ENOMEM);
			return;
		}
		to->items = grown;
		to->room = room;
	}
	memcpy(to->items + to->cnt, bytes, cnt);
	to->cnt += cnt;
}

void arrow__add_int32(struct arrow *arrow, struct arrow_bytes *to, int32_t value)
{
	arrow__add_bytes(arrow, to, &value, sizeof(value));
}

/* ---- values ---- */

static void add_bit(struct arrow *arrow, struct arrow_bytes *to, size_t at, bool bit)
{
	if (at % 8 == 0)
		arrow__add_bytes(arrow, to, "", 1);
	if (bit && at / 8 < to->cnt)
		to->items[at / 8] |= 1 << at % 8;
}

/* The column of the next value, or NULL where its type is not one of those of the mask. */
static struct arrow_data *next_column(struct arrow *arrow, unsigned int types)
{
	struct arrow_data *column = arrow->at < arrow->column_cnt ? &arrow->columns[arrow->at] : NULL;

	if (!column || !(types >> column->is->type & 1)) {
		arrow__fail(arrow, -EINVAL);
		return NULL;
	}
	return column;
}

static void end_value(struct arrow *arrow, struct arrow_data *column, bool present)
{
	if (!present && !column->is->nullable)
		arrow__fail(arrow, -EINVAL);
	column->null_cnt += !present;
	add_bit(arrow, &column->present, arrow->row_cnt, present);
	arrow->at++;
}

static void put_int(struct arrow *arrow, struct arrow_data *column, int64_t value)
{
	switch (column->is->type) {
	case ARROW_BOOL:
		add_bit(arrow, &column->values, arrow->row_cnt, value);
		break;
	case ARROW_INT32:
	case ARROW_TEXT:
		arrow__add_int32(arrow, &column->values, value);
		break;
	default:
		arrow__add_bytes(arrow, &column->values, &value, sizeof(value));
	}
}

void arrow__int(struct arrow *arrow, int64_t value)
{
	struct arrow_data *column =
		next_column(arrow, 1 << ARROW_INT32 | 1 << ARROW_INT64 | 1 << ARROW_BOOL | 1 << ARROW_TIME);

	if (!column)
		return;
	put_int(arrow, column, value);
	end_value(arrow, column, true);
}

void arrow__double(struct arrow *arrow, double value)
{
	struct arrow_data *column = next_column(arrow, 1 << ARROW_DOUBLE);

	if (!column)
		return;
	arrow__add_bytes(arrow, &column->values, &value, sizeof(value));
	end_value(arrow, column, true);
}

static void add_text(struct arrow *arrow, struct arrow_data *column, const char *text)
{
	char *shown = utf8__escape(text);
	uint32_t index = 0;

	if (!shown || map__add_text(&column->texts, shown, &index))
		arrow__fail(arrow, -ENOMEM);
	free(shown);
	arrow__add_int32(arrow, &column->values, index);
}

void arrow__text(struct arrow *arrow, const char *text)
{
	struct arrow_data *column = next_column(arrow, 1 << ARROW_TEXT);

	if (!column)
		return;
	if (!text) {
		arrow__null(arrow);
		return;
	}
	add_text(arrow, column, text);
	end_value(arrow, column, true);
}

void arrow__null(struct arrow *arrow)
{
	struct arrow_data *column = next_column(arrow, ~(1u << ARROW_TEXTS));

	if (!column)
		return;
	put_int(arrow, column, 0);
	end_value(arrow, column, false);
}

void arrow__item(struct arrow *arrow, const char *text)
{
	struct arrow_data *column = next_column(arrow, 1 << ARROW_TEXTS);

	if (column)
		add_text(arrow, column, text);
}

void arrow__end_list(struct arrow *arrow)
{
	struct arrow_data *column = next_column(arrow, 1 << ARROW_TEXTS);

	if (!column)
		return;
	arrow__add_int32(arrow, &column->ends, column->values.cnt / sizeof(int32_t));
	end_value(arrow, column, true);
}

void arrow__end_row(struct arrow *arrow)
{
	if (arrow->at != arrow->column_cnt)
		arrow__fail(arrow, -EINVAL);
	arrow->at = 0;
	if (++arrow->row_cnt == ARROW_BATCH_ROWS && !arrow->err)
		arrow__write_batch(arrow);
}
