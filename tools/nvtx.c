/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prints the places where the code of files pushes and pops NVTX ranges, for developers: a line per place, "offset call
 * pointer domain-or-text attributes", then how many are not understood.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/elf.h"
#include "user/runtime/nvtx/nvtx.h"

static void print_value(const struct nvtx_value *v)
{
	printf(v->loads ? "  [r%u%+d]" : "  r%u%+d", v->base, v->disp);
}

static int print(const char *path)
{
	struct array places = {0};
	struct elf *elf;
	size_t missed;
	int err = elf__new(path, &elf);

	if (err) {
		fprintf(stderr, "%s: %s\n", path, strerror(-err));
		return err;
	}
	err = nvtx__find(elf, &places, &missed);
	for (size_t i = 0; i < places.cnt; i++) {
		const struct nvtx_place *p = (struct nvtx_place *)places.items + i;

		printf("%#8" PRIx64 "  %u  r%u%+d", p->offset, p->site.call, p->site.pointer, p->site.init);
		print_value(&p->site.argument[0]);
		print_value(&p->site.argument[1]);
		printf("%s", p->site.more ? "  and" : "");
		putchar('\n');
	}
	printf("%s: %zu places, %zu not understood\n", path, places.cnt, missed);
	free(places.items);
	elf__free(elf);
	return err;
}

int main(int argc, char **argv)
{
	int err = 0;

	for (int i = 1; i < argc; i++)
		err |= print(argv[i]);
	return err ? EXIT_FAILURE : EXIT_SUCCESS;
}
