/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The option tables of the commands, for what is generated from them. */
#ifndef STEPFLAME_TOOLS_OPTIONS_H
#define STEPFLAME_TOOLS_OPTIONS_H

#include <argp.h>
#include <stddef.h>

/* The next option that --help shows, from o on, which may be NULL; headings of groups have no name. NULL at the end of the table. */
static inline const struct argp_option *option_at(const struct argp_option *o)
{
	while (o && ((!o->name && (o->key || o->doc || o->group)) || (o->flags & OPTION_HIDDEN)))
		o++;
	return o && o->name ? o : NULL;
}

#endif
