// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Command lines, up to where a command would attach: the first byte is the command, the others its arguments, one a line. */
#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>

#include "tests/fuzz/fuzz.h"
#include "user/cmd/cmd.h"
#include "user/cmd/targets.h"
#include "user/session/session.h"

#define WORDS_MAX 32

const char *__asan_default_options(void);
int __wrap_session__new(const struct session_options *options, session_sink sink, void *ctx, struct session **out);
error_t __real_argp_parse(const struct argp *argp, int argc, char **argv, unsigned int flags, int *next, void *input);
error_t __wrap_argp_parse(const struct argp *argp, int argc, char **argv, unsigned int flags, int *next, void *input);
void __wrap_targets__choose_or_die(struct targets *targets, const char *verb, const char *doing);
void __wrap_argp_error(const struct argp_state *state, const char *fmt, ...);

void __real_exit(int status);
void __wrap_exit(int status);

static jmp_buf refused;
static bool runs; /* a command */

/* argp allocates, and what an error leaves behind ends with the program. */
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

void __wrap_argp_error(const struct argp_state *state, const char *fmt, ...)
{
	longjmp(refused, 1);
}

/* A word that is like an option. */
void __wrap_exit(int status)
{
	if (runs)
		longjmp(refused, 1);
	__real_exit(status);
}

/* Nothing is recorded. */
int __wrap_session__new(const struct session_options *options, session_sink sink, void *ctx, struct session **out)
{
	return -EPERM;
}

/* Nothing is looked for on this host. */
void __wrap_targets__choose_or_die(struct targets *targets, const char *verb, const char *doing)
{
}

/* An error ends no program, and there is no --help. */
error_t __wrap_argp_parse(const struct argp *argp, int argc, char **argv, unsigned int flags, int *next, void *input)
{
	error_t err =
		__real_argp_parse(argp, argc, argv, flags | ARGP_NO_EXIT | ARGP_NO_ERRS | ARGP_NO_HELP, next, input);

	if (err)
		longjmp(refused, 1);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct command *const run[] = {&command_record, &command_top,    &command_report, &command_diff,
						    &command_flame,  &command_export, &command_merge,  &command_dump};
	char *words[WORDS_MAX + 1] = {"stepflame"}, *text, *rest = NULL;
	int cnt = 1;

	if (!size)
		return 0;
	text = strndup((const char *)data + 1, size - 1);
	for (char *word = strtok_r(text, "\n", &rest); word && cnt < WORDS_MAX; word = strtok_r(NULL, "\n", &rest))
		words[cnt++] = word;
	runs = true;
	if (!setjmp(refused))
		run[data[0] % (sizeof(run) / sizeof(*run))]->run(cnt, words);
	runs = false;
	free(text);
	return 0;
}
