/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * throw START_FILE CALLS: waits for START_FILE to appear, then calls vm_pass CALLS times; every second call ends by an
 * exception that is thrown below it and caught above it. A return probe on vm_pass aborts this program, since the
 * unwinder cannot pass the trampoline that it puts in place of the return address. Prints the true counts at its end.
 */
#include <stdexcept>

#include "tests/vm/target.h"

extern "C" __attribute__((noinline)) int vm_throw(int n)
{
	if (n % 2)
		throw std::runtime_error("odd");
	return n;
}

/* Adds after the call, so that it is no tail call and has a frame of its own to unwind. */
extern "C" __attribute__((noinline)) int vm_pass(int n)
{
	return vm_throw(n) + 1;
}

int main(int argc, char **argv)
{
	int passed_cnt = 0, caught_cnt = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: throw START_FILE CALLS\n");
		return 2;
	}
	target__wait_or_die(argv[1]);
	for (int i = 0; i < atoi(argv[2]); i++) {
		try {
			vm_pass(i);
			passed_cnt++;
		} catch (const std::runtime_error &) {
			caught_cnt++;
		}
	}
	printf("vm_pass=%d\nvm_pass_caught=%d\n", passed_cnt + caught_cnt, caught_cnt);
	return 0;
}
