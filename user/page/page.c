// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The parts of the page are files beside this one, as a browser would load them. The assembler
 * includes them in the program, as C has #embed only from C23 on. The page's policy allows only the
 * one style and the one script that carry its nonce.
 */
#include "user/page/page.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/random.h>

#include "user/page/data.h"
#include "user/page/top_list.h"

#define EMBED(symbol, file)                                                                                    \
	asm(".pushsection .rodata\n" #symbol ":\n\t.incbin \"user/page/" file "\"\n\t.byte 0\n.popsection\n"); \
	extern const char symbol[] __attribute__((visibility("hidden")))

EMBED(page_html, "page.html");
EMBED(page_css, "page.css");
EMBED(page_format_js, "format.js");
EMBED(page_data_js, "data.js");
EMBED(page_select_js, "select.js");
EMBED(page_tree_js, "tree.js");
EMBED(page_colours_js, "colours.js");
EMBED(page_flame_js, "flame.js");
EMBED(page_uses_js, "uses.js");
EMBED(page_overview_js, "overview.js");
EMBED(page_table_js, "table.js");
EMBED(page_answer_js, "answer.js");
EMBED(page_spans_js, "spans.js");
EMBED(page_lanes_js, "lanes.js");
EMBED(page_image_js, "image.js");
EMBED(page_main_js, "main.js");

static const char *const scripts[] = {
	page_format_js,   page_data_js,  page_select_js, page_tree_js,  page_colours_js, page_flame_js, page_uses_js,
	page_overview_js, page_table_js, page_answer_js, page_spans_js, page_lanes_js,   page_image_js, page_main_js,
};

int page__write(const struct page *page, FILE *out)
{
	uint64_t nonce[2];
	int err;

	if (getrandom(nonce, sizeof(nonce), 0) != sizeof(nonce))
		return -errno;
	fprintf(out,
		"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; "
		"form-action 'none'; "
		"script-src 'nonce-%016" PRIx64 "%016" PRIx64 "'; style-src 'nonce-%016" PRIx64 "%016" PRIx64 "'\">\n"
		"<meta name=\"viewport\" content=\"width=device-width\">\n<title>stepflame flame</title>\n",
		nonce[0], nonce[1], nonce[0], nonce[1]);
	fprintf(out, "<style nonce=\"%016" PRIx64 "%016" PRIx64 "\">\n%s</style>\n</head>\n<body>\n%s", nonce[0],
		nonce[1], page_css, page_html);
	fputs("<noscript>\n", out);
	err = top_list__write(page, out);
	fputs("</noscript>\n<script type=\"application/octet-stream\" id=\"data\">", out);
	if (!err)
		err = page_data__write(page, out);
	fprintf(out, "</script>\n<script nonce=\"%016" PRIx64 "%016" PRIx64 "\">\n'use strict';\n", nonce[0], nonce[1]);
	for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++)
		fputs(scripts[i], out);
	fputs("</script>\n</body>\n</html>\n", out);
	return err;
}
