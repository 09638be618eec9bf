// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Maps the library that is its argument, as a C++ program with libtorch does, and waits. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 2 || !dlopen(argv[1], RTLD_NOW)) {
		puts(dlerror());
		return 1;
	}
	puts("mapped");
	fflush(stdout);
	pause();
	return 0;
}
