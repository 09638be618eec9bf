// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/cmd.h"

#include <stddef.h>

const struct command *const commands[] = {
#define X(name) &command_##name,
	STEPFLAME_COMMANDS(X)
#undef X
		NULL,
};
