// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/children.h"

#include <errno.h>
#include <stdlib.h>

#define PIDS          (4U << 20) /* the most that pid_max can be */
#define PIDS_PER_BYTE 4
#define ROLE_BITS     2
#define ROLE_MASK     3

int children__init(struct children *children)
{
	children->roles = calloc(PIDS / PIDS_PER_BYTE, 1); /* the kernel gives only the pages that are written to */
	return children->roles ? 0 : -ENOMEM;
}

/* 0, or a role + 1. */
static unsigned int get_word(const struct children *children, uint32_t pid)
{
	return children->roles[pid / PIDS_PER_BYTE] >> pid % PIDS_PER_BYTE * ROLE_BITS & ROLE_MASK;
}

static void set_word(struct children *children, uint32_t pid, unsigned int word)
{
	uint8_t *byte = &children->roles[pid / PIDS_PER_BYTE];
	unsigned int shift = pid % PIDS_PER_BYTE * ROLE_BITS, old = get_word(children, pid);

	if (old == word)
		return;
	if (old)
		children->cnt[old - 1]--;
	if (word)
		children->cnt[word - 1]++;
	*byte = (*byte & ~(ROLE_MASK << shift)) | word << shift;
}

bool children__set(struct children *children, uint32_t pid, enum target_role role)
{
	if (!children->roles || pid >= PIDS)
		return false;
	set_word(children, pid, role + 1);
	return true;
}

void children__again(struct children *children, uint32_t pid)
{
	unsigned int word = children->roles && pid < PIDS ? get_word(children, pid) : 0;

	if (word)
		children->cnt[word - 1]++;
}

void children__unset(struct children *children, uint32_t pid)
{
	if (children->roles && pid < PIDS)
		set_word(children, pid, 0);
}

void children__free(struct children *children)
{
	free(children->roles);
	*children = (struct children){};
}
