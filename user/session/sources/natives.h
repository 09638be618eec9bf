/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The native functions whose calls are always spans: backward, collectives, torch.save. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_NATIVES_H
#define STEPFLAME_USER_SESSION_SOURCES_NATIVES_H

#include "include/records.h"
#include "user/session/probe_list.h"

/* The functions that are not found by c10d's names. */
enum native {
	NATIVE_BACKWARD = 0, /* Engine::execute, which landmarks__torch finds */
	NATIVE_SAVE,         /* two functions: PyTorchStreamWriter's setup and writeEndOfFile */
	/* xla.h finds the rest */
	NATIVE_JIT,
	NATIVE_XLA_COMPILE,
	NATIVE_XLA_LOAD,
	NATIVE_XLA_WAIT,
	NATIVE_XLA_TO_HOST,
	NATIVE_XLA_TO_DEVICE,
	NATIVE_PJRT_COMPILE,
	NATIVE_PJRT_EXECUTE,
	NATIVE_PJRT_AWAIT,
	NATIVE_PJRT_TO_HOST,
	NATIVE_PJRT_TO_DEVICE,
	NATIVE_FOUND_ELSEWHERE, /* their count */
};

/*
 * The function numbers in cookies: natives are below natives__cnt(), the user's own functions
 * follow.
 */
uint32_t natives__cnt(void);
const char *natives__name(uint32_t fn);
enum span_kind natives__kind(uint32_t fn);

/* May a file with this path, other than libtorch_cpu, contain such functions? */
bool natives__wanted(const char *path);

/*
 * Adds the collectives and file writers that a file defines, stripped or not; exits before entries.
 * Returns how many functions can be timed, or -ENOMEM; skips functions on which no probe can be
 * placed.
 */
int natives__add(struct probe_list *list, const struct elf *elf);

#endif
