// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A small library with what the readers look for: relocations, a method table, a jump table, clean-up, imports, a C++ name. */
#include <stddef.h>

struct method {
	const char *name;
	void *function;
	int flags;
	const char *doc;
};

void _Unwind_Resume(void *);
int outside(int);
void free(void *);

static void clean(void **p)
{
	free(*p);
}

int builtin_next(int a, int b)
{
	void *p __attribute__((cleanup(clean))) = (void *)(long)a;

	return outside(a) + b;
}

int _ZN2at6native4copyERKNS_6TensorE(int a)
{
	switch (a) {
	case 0:
		return outside(1);
	case 1:
		return outside(7);
	case 2:
		return outside(9) + 1;
	case 3:
		return outside(12) * 5;
	case 4:
		return outside(2);
	default:
		return 3;
	}
}

struct method builtin_methods[] = {
	{"next", builtin_next, 0x80, ""}, {"iter", outside, 0x80, ""}, {NULL, NULL, 0, NULL}};
struct method slotdefs[] = {{"__next__", (void *)224, 0, NULL}};
void *pointers[] = {&builtin_methods, outside, pointers, builtin_next};
