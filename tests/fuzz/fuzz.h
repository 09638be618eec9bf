/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the fuzzers share: an input as a file, and what must be true of every text that stepflame prints. */
#ifndef STEPFLAME_TESTS_FUZZ_FUZZ_H
#define STEPFLAME_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "user/lib/utf8.h"

/* libFuzzer's, which has no C header. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

#define FUZZ_CHECK(condition)                                                           \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                        \
		}                                                                       \
	} while (0)

/* Returns a file that has the input; writes its path. The caller closes it. */
static inline int fuzz__file(const uint8_t *data, size_t size, char path[32])
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && !lseek(fd, 0, SEEK_SET));
	snprintf(path, 32, "/proc/self/fd/%d", fd);
	return fd;
}

/* A text as it goes to a terminal: valid UTF-8, and no control character but those of `allowed`. */
static inline void fuzz__check_text(const char *text, size_t bytes, const char *allowed)
{
	const char *at = text, *end = text + bytes;

	while (at < end) {
		const char *from = at;
		uint32_t code = utf8__next(&at, end, NULL);
		bool replaced = code == UTF8_REPLACEMENT && (at - from != 3 || memcmp(from, "\xef\xbf\xbd", 3));

		if (replaced || (utf8__steers(code) && !(code && code < 0x80 && strchr(allowed, (int)code)))) {
			fprintf(stderr, "byte %zu, U+%04x:\n%.*s\n", (size_t)(from - text), code, (int)bytes, text);
			abort();
		}
	}
}

#endif
