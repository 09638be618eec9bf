/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Follows a few instructions of getters that CPython or torch exports. In: the code in the file
 * (the code in the process may hold probes) and words of the process's memory. Out: places of
 * thread-local words, the version's text. Owned by the calling thread.
 */
#include "user/proc/getter.h"

#include <capstone/capstone.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "user/proc/process.h"
#include "user/x86/insn.h"

#define STEPS_MAX  64          /* instructions followed; the longest of these functions takes 8 */
#define RETURN_MAX 3           /* calls followed into */
#define MODULE_MAX 0xffff      /* files with thread-local data in a process */
#define TLS_MAX    (16u << 20) /* bytes of thread-local data of one file */

/* What a register is known to hold. */
enum value_kind {
	VALUE_UNKNOWN,
	VALUE_NUMBER, /* an address of the process, or any other number */
	VALUE_THREAD, /* thread pointer + number */
	VALUE_BLOCK,  /* the thread's TLS block of a module + number */
};

struct getter_value {
	enum value_kind kind;
	uint32_t module;
	uint64_t number;
};

struct getter_walk {
	const struct elf *elf;
	pid_t pid;
	uint64_t bias;
	csh capstone;
	struct getter_value regs[X86_REGISTERS];
	uint64_t at; /* vaddr of the next instruction, 0: stop */
	uint64_t returns[RETURN_MAX];
	int return_cnt;
	struct getter_value loaded; /* the place in thread-local storage that was read, once known */
};

static int reg__index(unsigned int reg)
{
	return regs__number(reg, 4);
}

static struct getter_value walk__reg(const struct getter_walk *walk, x86_reg reg)
{
	int index = reg__index(reg);

	return index < 0 ? (struct getter_value){0} : walk->regs[index];
}

static void walk__set(struct getter_walk *walk, int index, struct getter_value value)
{
	if (index >= 0)
		walk->regs[index] = value;
}

static struct getter_value value__add(struct getter_value a, struct getter_value b)
{
	if (a.kind == VALUE_NUMBER) { /* make the number the second operand */
		struct getter_value swap = a;

		a = b;
		b = swap;
	}
	/*
	 * A TLS descriptor gives its block less the thread pointer, so adding the thread pointer
	 * gives the block.
	 */
	if (a.kind == VALUE_THREAD && b.kind == VALUE_BLOCK)
		return value__add(b, (struct getter_value){.kind = VALUE_NUMBER, .number = a.number});
	if (a.kind == VALUE_BLOCK && b.kind == VALUE_THREAD)
		return value__add(a, (struct getter_value){.kind = VALUE_NUMBER, .number = b.number});
	if (a.kind == VALUE_UNKNOWN || b.kind != VALUE_NUMBER)
		return (struct getter_value){0};
	a.number += b.number;
	return a;
}

/* The address that a memory operand names, %fs: counted as the thread pointer. */
static struct getter_value walk__address(const struct getter_walk *walk, const cs_insn *insn, const x86_op_mem *mem)
{
	struct getter_value address = {.kind = VALUE_NUMBER, .number = (uint64_t)mem->disp};

	if (mem->index != X86_REG_INVALID || (mem->segment != X86_REG_INVALID && mem->segment != X86_REG_FS))
		return (struct getter_value){0};
	if (mem->base == X86_REG_RIP)
		address.number += walk->bias + insn->address + insn->size;
	else if (mem->base != X86_REG_INVALID)
		address = value__add(address, walk__reg(walk, mem->base));
	if (mem->segment == X86_REG_FS)
		address = value__add((struct getter_value){.kind = VALUE_THREAD}, address);
	return address;
}

/* The value of an 8-byte load; a load of thread-local data ends the walk. */
static struct getter_value walk__load(struct getter_walk *walk, struct getter_value address)
{
	struct getter_value value = {.kind = VALUE_NUMBER};

	if (address.kind == VALUE_NUMBER &&
	    !process__read_memory(walk->pid, address.number, &value.number, sizeof(value.number)))
		return value;
	if (address.kind == VALUE_THREAD && address.number == 0) /* the TCB begins with its own address */
		return address;
	/*
	 * Variables lie below the thread pointer; above it are the TCB's words, such as the stack
	 * protector's at 0x28.
	 */
	if (address.kind == VALUE_BLOCK || (address.kind == VALUE_THREAD && -address.number <= TLS_MAX))
		walk->loaded = address;
	return (struct getter_value){0};
}

static struct getter_value walk__operand(struct getter_walk *walk, const cs_insn *insn, const cs_x86_op *op)
{
	switch (op->type) {
	case X86_OP_REG:
		return walk__reg(walk, op->reg);
	case X86_OP_IMM:
		return (struct getter_value){.kind = VALUE_NUMBER, .number = (uint64_t)op->imm};
	case X86_OP_MEM:
		if (op->size == 8)
			return walk__load(walk, walk__address(walk, insn, &op->mem));
		return (struct getter_value){0};
	default:
		return (struct getter_value){0};
	}
}

/* A tls_index {module, offset} of the process (System V ABI for x86-64, __tls_get_addr). */
static struct getter_value walk__tls_index(const struct getter_walk *walk, uint64_t address)
{
	uint64_t index[2];

	if (process__read_memory(walk->pid, address, index, sizeof(index)) || index[0] == 0 || index[0] > MODULE_MAX ||
	    index[1] > TLS_MAX)
		return (struct getter_value){0};
	return (struct getter_value){.kind = VALUE_BLOCK, .module = (uint32_t)index[0], .number = index[1]};
}

/*
 * A TLS descriptor {entry, argument} of the process: the argument is an offset from the thread
 * pointer, or points at a tls_index (glibc sysdeps/x86_64/dl-tlsdesc.S and dl-tlsdesc.h:
 * _dl_tlsdesc_return, tlsdesc_dynamic_arg).
 */
static struct getter_value walk__descriptor(const struct getter_walk *walk, uint64_t address)
{
	uint64_t words[2];

	if (process__read_memory(walk->pid, address, words, sizeof(words)))
		return (struct getter_value){0};
	if (-words[1] <= TLS_MAX)
		return (struct getter_value){.kind = VALUE_NUMBER, .number = words[1]};
	return walk__tls_index(walk, words[1]);
}

static void walk__call(struct getter_walk *walk, const cs_insn *insn, const cs_x86_op *op)
{
	struct getter_value rdi = walk->regs[X86_RDI], result = {0};

	if (op->type == X86_OP_MEM && op->mem.base == X86_REG_RAX && walk->regs[X86_RAX].kind == VALUE_NUMBER) {
		walk->regs[X86_RAX] = walk__descriptor(walk, walk->regs[X86_RAX].number);
		return; /* a descriptor's entry keeps all other registers */
	}
	if (rdi.kind == VALUE_NUMBER)
		result = walk__tls_index(walk, rdi.number);
	if (result.kind == VALUE_UNKNOWN && op->type == X86_OP_IMM && walk->return_cnt < RETURN_MAX) {
		walk->returns[walk->return_cnt++] = walk->at;
		walk->at = (uint64_t)op->imm;
		return;
	}
	for (int i = 0; i < X86_REGISTERS; i++) {
		if (i != X86_RBX && i != X86_RBP && i < X86_R12)
			walk->regs[i] = (struct getter_value){0};
	}
	walk->regs[X86_RAX] = result;
}

static void walk__step(struct getter_walk *walk, const cs_insn *insn)
{
	const cs_x86 *x86 = &insn->detail->x86;
	const cs_x86_op *op = x86->operands;
	int target = x86->op_count && op[0].type == X86_OP_REG ? reg__index(op[0].reg) : -1;
	cs_regs read, written;
	uint8_t read_cnt, written_cnt;

	walk->at = insn->address + insn->size;
	if (insn->id == X86_INS_CALL) {
		walk__call(walk, insn, op);
	} else if (insn->id == X86_INS_RET) {
		walk->at = walk->return_cnt ? walk->returns[--walk->return_cnt] : 0;
	} else if (insn->id == X86_INS_JMP) {
		walk->at = op->type == X86_OP_IMM ? (uint64_t)op->imm : 0;
	} else if (insn->id == X86_INS_MOV || insn->id == X86_INS_MOVABS) {
		walk__set(walk, target, walk__operand(walk, insn, &op[1]));
	} else if (insn->id == X86_INS_LEA) {
		walk__set(walk, target, walk__address(walk, insn, &op[1].mem));
	} else if (insn->id == X86_INS_ADD && target >= 0) {
		walk__set(walk, target, value__add(walk->regs[target], walk__operand(walk, insn, &op[1])));
	} else if (!cs_regs_access(walk->capstone, insn, read, &read_cnt, written, &written_cnt)) {
		for (int i = 0; i < written_cnt; i++)
			walk__set(walk, reg__index(written[i]), (struct getter_value){0});
	}
}

/* Follows the function until it loads a thread-local word. */
static bool walk__function(struct getter_walk *walk, uint64_t vaddr)
{
	cs_insn *insn = cs_malloc(walk->capstone);

	if (!insn)
		return false;
	walk->at = vaddr;
	for (int step = 0; step < STEPS_MAX && walk->at && walk->loaded.kind == VALUE_UNKNOWN; step++) {
		uint64_t address = walk->at;
		size_t have = 0;
		const uint8_t *code;

		if (!elf__is_code(walk->elf, walk->at))
			break;
		code = elf__bytes(walk->elf, walk->at, 16, &have);
		if (!code || !cs_disasm_iter(walk->capstone, &code, &have, &address, insn))
			break;
		walk__step(walk, insn);
	}
	cs_free(insn, 1);
	return walk->loaded.kind != VALUE_UNKNOWN;
}

static int capstone__open(csh *capstone)
{
	if (cs_open(CS_ARCH_X86, CS_MODE_64, capstone) != CS_ERR_OK)
		return -ENOMEM;
	cs_option(*capstone, CS_OPT_DETAIL, CS_OPT_ON);
	return 0;
}

int getter__thread_word(const struct elf *elf, pid_t pid, uint64_t bias, const char *getter, struct thread_word *out)
{
	struct getter_walk walk = {.elf = elf, .pid = pid, .bias = bias};
	struct elf_symbol symbol;
	int err;

	if (elf__symbol(elf, getter, &symbol))
		return -ENOENT;
	err = capstone__open(&walk.capstone);
	if (err)
		return err;
	if (walk__function(&walk, symbol.vaddr))
		*out = (struct thread_word){.module = walk.loaded.module, .offset = walk.loaded.number};
	else
		err = -ENOENT;
	cs_close(&walk.capstone);
	return err;
}

int getter__tstate(const struct elf *elf, pid_t pid, uint64_t bias, struct py_process *out)
{
	/* 3.12 and later; 3.12 alone; 3.13 and later; all, but with an error path. */
	static const char *const getters[] = {"_PyThreadState_GetCurrent", "_PyThreadState_UncheckedGet",
					      "PyThreadState_GetUnchecked", "PyThreadState_Get"};

	for (size_t i = 0; i < sizeof(getters) / sizeof(getters[0]); i++) {
		struct thread_word word;

		if (getter__thread_word(elf, pid, bias, getters[i], &word))
			continue;
		out->tstate_where = word.module ? PY_TSTATE_DTV : PY_TSTATE_TLS;
		out->tls_module = word.module;
		out->tstate_address = word.offset;
		return 0;
	}
	return -ENOENT;
}

/* "3.9.18", "3.9.0rc1+" and the like; what follows the digits and letters is cut. */
static bool version__parse(const char *text, char *version, size_t size)
{
	int minor, micro, length = 0;

	if (sscanf(text, "3.%2d.%2d%n", &minor, &micro, &length) != 2)
		return false;
	while (isalnum((unsigned char)text[length]))
		length++;
	return snprintf(version, size, "%.*s", length, text) < (int)size;
}

int getter__version(const struct elf *elf, pid_t pid, uint64_t bias, char *version, size_t size)
{
	struct elf_symbol symbol;
	const uint8_t *code;
	char text[24];
	cs_insn *insns;
	size_t have, cnt;
	csh capstone;
	int err;

	if (elf__symbol(elf, "Py_GetVersion", &symbol))
		return -ENOENT;
	code = elf__bytes(elf, symbol.vaddr, symbol.size ? symbol.size : 128, &have);
	if (!code)
		return -ENOENT;
	err = capstone__open(&capstone);
	if (err)
		return err;
	err = -ENOENT;
	cnt = cs_disasm(capstone, code, have, symbol.vaddr, STEPS_MAX, &insns);
	for (size_t i = 0; err && i < cnt; i++) {
		const cs_x86 *x86 = &insns[i].detail->x86;
		uint64_t address = 0;

		if (x86->op_count != 2)
			continue;
		if (insns[i].id == X86_INS_LEA && x86->operands[1].mem.base == X86_REG_RIP)
			address = bias + insns[i].address + insns[i].size + (uint64_t)x86->operands[1].mem.disp;
		else if (insns[i].id == X86_INS_MOV && x86->operands[1].type == X86_OP_IMM)
			address = (uint64_t)x86->operands[1].imm; /* a static executable at a fixed address */
		text[sizeof(text) - 1] = 0;
		if (address && !process__read_memory(pid, address, text, sizeof(text) - 1) &&
		    version__parse(text, version, size))
			err = 0;
	}
	if (cnt)
		cs_free(insns, cnt);
	cs_close(&capstone);
	return err;
}
