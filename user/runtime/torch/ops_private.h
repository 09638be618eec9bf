/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shared by the files that find operators: ops.c, ops_code.c, and their unit tests.
 */
#ifndef STEPFLAME_USER_RUNTIME_TORCH_OPS_PRIVATE_H
#define STEPFLAME_USER_RUNTIME_TORCH_OPS_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "user/elf/elf.h"
#include "user/elf/functions.h"
#include "user/runtime/torch/ops.h"

#define OP_NAME_MAX 256

/* Bytes of a function; size is 0 when the address is not in code. */
struct op_code {
	const uint8_t *bytes;
	size_t size;
	uint64_t vaddr;
};

struct op_code op_code__at(const struct elf *elf, uint64_t vaddr, uint64_t size);
/*
 * Finds the next byte from *at on that may begin a direct call, and the target that the call would
 * have. Returns false when there is none.
 */
bool op_code__next_call(const struct op_code *code, size_t *at, uint64_t *target);
/* A string of the file, or NULL. */
const char *op_code__text(const struct elf *elf, uint64_t vaddr);

/*
 * The C++ text of a mangled name or type, which the caller frees, or NULL: not mangled, too long,
 * no memory.
 */
char *ops_names__demangle(const char *mangled);

/* What an operator's code says about it. The strings lie in the file. */
struct op_schema {
	char name[OP_NAME_MAX]; /* "aten::add.Tensor" */
	const char *type;       /* mangled: "FN2at6TensorERKS0_S2_RKN3c106ScalarE", NULL when it was not found */
};

struct ops_names {
	const struct elf *elf;
	uint64_t own;    /* vaddr of Dispatcher::findSchemaOrThrow(char const *, char const *), 0: not of this file */
	uint64_t import; /* vaddr of its PLT entry, 0: not seen yet */
};

#define FIND_SCHEMA "_ZN3c1010Dispatcher17findSchemaOrThrowEPKcS2_"

/*
 * Finds the schema of the operator at::_ops::JOINED::call, whose code is at vaddr; JOINED ends at
 * its '4call'. With joined NULL, finds the schema of another function, one that calls an operator
 * of the namespace c10d. 0, or -ENOENT: the code has no name, or a name that does not give JOINED.
 */
int ops_names__find(struct ops_names *names, const char *joined, size_t joined_len, uint64_t vaddr, uint64_t size,
		    struct op_schema *out);

/*
 * Finds where the arguments of a function are at its entry, by its demangled type, "at::Tensor
 * (at::Tensor const&, long)". old_optional: the torch has an optional of its own (c10::optional),
 * which is passed differently from std::optional. Arguments after an unknown one are OP_ARG_OTHER.
 * 0, or -ENOTSUP: not a function type, or its return type is unknown, and so whether the result
 * takes %rdi.
 */
int ops_abi__args(const char *type, bool old_optional, struct op_arg arg[OP_ARGS_MAX], uint8_t *arg_cnt);

/*
 * Calls fn for each copy of Dispatcher::callBoxed in a file that has no symbols for them; the
 * copies take the handle and the stack. Stops when fn returns nonzero, and returns that; or
 * -ENOMEM.
 */
int ops_boxed__find(const struct elf *elf, int (*fn)(uint64_t vaddr, uint64_t size, void *ctx), void *ctx);

/*
 * Loads the cache of this file from dir. 0, or -ENOENT when there is no cache, or it cannot be
 * trusted.
 */
int ops_cache__load(const struct elf *elf, const char *dir, struct torch_ops **out);

#endif
