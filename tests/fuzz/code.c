// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Machine code: the flow of functions, probe sites, getters, NVTX's registers, the collector's and torch's places. The
 * input is the text of a small ELF file that is built around it, with a table of pointers behind it.
 */
#include <elf.h>
#include <errno.h>

#include "tests/fuzz/fuzz.h"
#include "user/proc/getter.h"
#include "user/runtime/nvtx/nvtx.h"
#include "user/runtime/python/interpreter.h"
#include "user/runtime/torch/ops.c"
#include "user/runtime/torch/torch.h"
#include "user/x86/flow.h"
#include "user/x86/sites.h"

#define CODE_MAX     1024
#define CODE         0x1000 /* vaddr and offset of the input */
#define WORDS        0x2000 /* of the pointers: nvtxGlobals_v3 */
#define WORD_CNT     8
#define FUNCTION_CNT 8

static const char *const names[FUNCTION_CNT] = {
	"nvtxRangePushA_impl_init_v3",
	"nvtxRangePop_impl_init_v3",
	"PyGC_Collect",
	"_PyThreadState_UncheckedGet",
	"Py_GetVersion",
	"_Unwind_Resume",
	FIND_SCHEMA,
	"_ZN2at4_ops3add4callERKNS_6TensorES4_",
};

struct image {
	Elf64_Ehdr header;
	Elf64_Phdr segments[2];
	Elf64_Shdr sections[4];
	Elf64_Sym symbols[FUNCTION_CNT + 2];
	char strings[512];
	char pad[CODE - sizeof(Elf64_Ehdr) - 2 * sizeof(Elf64_Phdr) - 4 * sizeof(Elf64_Shdr) -
		 (FUNCTION_CNT + 2) * sizeof(Elf64_Sym) - 512];
	uint8_t code[WORDS - CODE];
	uint64_t words[WORD_CNT];
};
_Static_assert(offsetof(struct image, code) == CODE && offsetof(struct image, words) == WORDS, "places");

static struct image image;

static uint32_t add_string(const char *text)
{
	static uint32_t used = 1;
	uint32_t at = used;

	strcpy(image.strings + at, text);
	used += strlen(text) + 1;
	return at;
}

static Elf64_Shdr section(uint32_t name, uint32_t type, size_t offset, size_t bytes, size_t entry)
{
	return (Elf64_Shdr){.sh_name = name,
			    .sh_type = type,
			    .sh_addr = offset,
			    .sh_offset = offset,
			    .sh_size = bytes,
			    .sh_link = 2,
			    .sh_info = 1,
			    .sh_addralign = 8,
			    .sh_entsize = entry};
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	image.header = (Elf64_Ehdr){.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
				    .e_type = ET_DYN,
				    .e_machine = EM_X86_64,
				    .e_version = EV_CURRENT,
				    .e_phoff = offsetof(struct image, segments),
				    .e_shoff = offsetof(struct image, sections),
				    .e_ehsize = sizeof(Elf64_Ehdr),
				    .e_phentsize = sizeof(Elf64_Phdr),
				    .e_phnum = 2,
				    .e_shentsize = sizeof(Elf64_Shdr),
				    .e_shnum = 4,
				    .e_shstrndx = 2};
	image.segments[0] = (Elf64_Phdr){
		.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = WORDS, .p_memsz = WORDS, .p_align = 4096};
	image.segments[1] = (Elf64_Phdr){.p_type = PT_LOAD,
					 .p_flags = PF_R | PF_W,
					 .p_offset = WORDS,
					 .p_vaddr = WORDS,
					 .p_paddr = WORDS,
					 .p_filesz = sizeof(image.words),
					 .p_memsz = 4096,
					 .p_align = 4096};
	image.sections[1] = section(add_string(".symtab"), SHT_SYMTAB, offsetof(struct image, symbols),
				    sizeof(image.symbols), sizeof(Elf64_Sym));
	image.sections[2] =
		section(add_string(".strtab"), SHT_STRTAB, offsetof(struct image, strings), sizeof(image.strings), 0);
	image.sections[3] = section(add_string(".text"), SHT_PROGBITS, CODE, WORDS - CODE, 0);
	for (size_t i = 0; i < FUNCTION_CNT; i++) {
		image.symbols[i + 1] = (Elf64_Sym){.st_name = add_string(names[i]),
						   .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
						   .st_shndx = 3,
						   .st_value = CODE + i * CODE_MAX / FUNCTION_CNT,
						   .st_size = CODE_MAX / FUNCTION_CNT};
		image.words[i] = image.symbols[i + 1].st_value;
	}
	image.symbols[FUNCTION_CNT + 1] = (Elf64_Sym){.st_name = add_string("nvtxGlobals_v3"),
						      .st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT),
						      .st_shndx = 3,
						      .st_value = WORDS,
						      .st_size = sizeof(image.words)};
	return 0;
}

static void check_site(const struct site *site)
{
	FUZZ_CHECK(site->offset >= CODE && site->offset < WORDS);
}

static void find_sites(const struct elf *elf, uint64_t vaddr, uint64_t size)
{
	struct site ends[SOFT_ENDS_MAX];
	struct sites sites, there;
	struct call_site call;

	for (enum sites_policy policy = SITES_STRICT; policy <= SITES_AFTER_WORK; policy++) {
		if (sites__find(elf, vaddr, size, policy, &sites))
			continue;
		check_site(&sites.entry);
		for (uint32_t i = 0; i < sites.exit_cnt; i++)
			check_site(&sites.exit[i]);
		for (uint32_t i = 0; i < sites.unwind_cnt; i++)
			check_site(&sites.unwind[i]);
		sites__away(elf, vaddr, size, &sites, &there);
	}
	sites__find_call(elf, vaddr, size, names[5], &call);
	sites__find_last_call(elf, vaddr, size, names[5], &call);
	sites__find_callee_frame(elf, vaddr, size);
	FUZZ_CHECK(soft_ends__find(elf, vaddr, size, ends) <= SOFT_ENDS_MAX);
}

static void find_places(const struct elf *elf)
{
	struct ops_names ops_names = {.elf = elf, .own = CODE + 6 * CODE_MAX / FUNCTION_CNT};
	struct function_range range;
	struct op_schema schema;
	struct array places = {0};
	struct thread_word word;
	struct py_process py;
	char version[16];
	struct py_gc gc;
	size_t missed = 0;
	uint32_t offset;

	nvtx__find(elf, &places, &missed);
	for (size_t i = 0; i < places.cnt; i++)
		FUZZ_CHECK(((struct nvtx_place *)places.items)[i].offset < WORDS);
	free(places.items);
	py_gc__find(elf, &gc);
	/* no process has this number, so what the loader would fill in is not known */
	getter__thread_word(elf, -1, 0, names[3], &word);
	getter__tstate(elf, -1, 0, &py);
	getter__version(elf, -1, 0, version, sizeof(version));
	ops_names__find(&ops_names, "add", 3, CODE, CODE_MAX / FUNCTION_CNT, &schema);
	find_call_of_node(elf, CODE, CODE_MAX, &range);
	torch__sizes_offset(elf, &offset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elf *elf;
	char path[32];
	int fd;

	size = size < CODE_MAX ? size : CODE_MAX;
	memset(image.code, 0xc3, sizeof(image.code)); /* ret */
	memcpy(image.code, data, size);
	fd = fuzz__file((uint8_t *)&image, sizeof(image), path);
	FUZZ_CHECK(!elf__new(path, &elf));
	find_sites(elf, CODE, 0);
	find_sites(elf, CODE, size);
	find_places(elf);
	elf__free(elf);
	close(fd);
	return 0;
}
