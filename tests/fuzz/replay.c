// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * NAME-replay FILE|FOLDER...: gives each input once to a fuzzer's entry point, in the place of libFuzzer. Says on stderr which input is next, so that
 * the last one named is the one that ended the program. An input that takes 20 seconds of processor time ends it by SIGPROF.
 */
#include <dirent.h>
#include <errno.h>
#include <sys/time.h>

#include "tests/fuzz/fuzz.h"

#define INPUT_BYTES_MAX (1 << 20)
#define INPUT_SECONDS   20

#pragma weak LLVMFuzzerInitialize

static size_t input_cnt;

/* Only custom mutators call it, and nothing calls those here. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
{
	abort();
}

/* In an allocation of its size, so that ASan sees a step outside. */
static void run(const char *name, const uint8_t *data, size_t size)
{
	const struct itimerval limit = {.it_value.tv_sec = INPUT_SECONDS};
	uint8_t *copy = malloc(size);

	fprintf(stderr, "input %s\n", name);
	if (size)
		memcpy(copy, data, size);
	setitimer(ITIMER_PROF, &limit, NULL);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	input_cnt++;
}

static void run_file(const char *path)
{
	static uint8_t data[INPUT_BYTES_MAX];
	FILE *from = fopen(path, "rb");
	size_t size;

	FUZZ_CHECK(from);
	size = fread(data, 1, sizeof(data), from);
	FUZZ_CHECK(!ferror(from));
	fclose(from);
	run(path, data, size);
}

static int is_shown(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void run_folder(const char *folder)
{
	struct dirent **entries;
	int cnt = scandir(folder, &entries, is_shown, alphasort);
	char path[4096];

	if (cnt < 0 && errno == ENOTDIR) {
		run_file(folder);
		return;
	}
	FUZZ_CHECK(cnt >= 0);
	for (int i = 0; i < cnt; i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
		run_file(path);
		free(entries[i]);
	}
	free(entries);
}

int main(int argc, char **argv)
{
	FUZZ_CHECK(freopen("/dev/null", "w", stdout)); /* what stepflame prints of the inputs */
	if (LLVMFuzzerInitialize)
		LLVMFuzzerInitialize(&argc, &argv);
	run("(empty)", NULL, 0);
	for (int i = 1; i < argc; i++)
		run_folder(argv[i]);
	fprintf(stderr, "%zu inputs done\n", input_cnt);
	return 0;
}
