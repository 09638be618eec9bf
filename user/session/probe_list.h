/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The probes of one file: offsets and cookies, in the order of attachment. */
#ifndef STEPFLAME_USER_SESSION_PROBE_LIST_H
#define STEPFLAME_USER_SESSION_PROBE_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "user/elf/elf.h"
#include "user/x86/sites.h"

struct mapped_file;

struct probe_list {
	int fd;              /* of the file; the session's, open as long as the list is used */
	uint64_t dev, inode; /* of the file, as /proc/PID/maps has them */
	uint32_t number;     /* identifies the list in the map probe_cookies; 0: not yet */
	int copy;            /* of the list, in memory that the guardian can map; a file; owned; 0: none */
	size_t cnt, room;
	unsigned long *offsets; /* in the file */
	uint64_t *cookies;
};

void probe_list__release(struct probe_list *list); /* accepts a zeroed struct */
/* fd: borrowed. */
void probe_list__set_file(struct probe_list *list, const struct mapped_file *file, int fd);
/*
 * Is the code of a process at each site that of the file? A breakpoint there is accepted: another
 * recording has it. 0; -EBADMSG: no; -ESTALE: the file has lost the sites; or -errno.
 */
int probe_list__compare(const struct probe_list *list, const struct mapped_file *file);
/* Adds one probe. 0, -ENOMEM, or -E2BIG: more than any file has. */
int probe_list__add(struct probe_list *list, uint64_t offset, uint64_t cookie);
/* Adds one probe at a site, with the site's depth in the cookie. 0 or -ENOMEM. */
int probe_list__add_site(struct probe_list *list, const struct site *site, uint32_t event, uint32_t flags, uint32_t fn);

/*
 * Adds the probes of a native function: event `exit` at its exit sites and where exceptions leave
 * it (PROBE_NONE: no such probes), then event `enter` at its entry site; so exits attach before
 * entries. flags and fn go into the cookies. 0 or -ENOMEM.
 */
int probe_list__add_sites(struct probe_list *list, const struct sites *sites, uint32_t enter, uint32_t exit,
			  uint32_t flags, uint32_t fn);
/*
 * The same for the function at vaddr, whose sites it finds with SITES_STRICT. 0 or -errno of
 * sites__find.
 */
int probe_list__add_function(struct probe_list *list, const struct elf *elf, uint64_t vaddr, uint64_t size,
			     uint32_t enter, uint32_t exit, uint32_t flags, uint32_t fn);

/*
 * Adds the probes that an earlier session has cached for a file under the key `what` to the lists. 0;
 * -ENOENT: not cached; or -errno, and the lists are empty.
 */
int probe_lists__load(const struct elf *elf, const char *what, struct probe_list *lists, size_t list_cnt);
/* Caches them. Ignores failures: the next session then finds the probes afresh. */
void probe_lists__save(const struct elf *elf, const char *what, const struct probe_list *lists, size_t list_cnt);

#endif
