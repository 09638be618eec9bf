/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Places of NVTX's ranges (user/runtime/nvtx/nvtx.h) in a library that has its table and its functions' form, written in
 * assembly so that each case is certain; then in the same file with bytes flipped. That compilers make this form is
 * tests/e2e/test_nvtx.py's.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "include/probes.h"
#include "tests/unit/library.h"
#include "user/runtime/nvtx/nvtx.h"

#define FLIP_ROUNDS 1000

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R12 = 12 };

/* Slots of the table, which is not laid out as NVTX's: pointers are known by where they lead at first. */
static const char fixture[] =
	"#define FUNCTION(x) .type x,@function; .p2align 4; x: .cfi_startproc\n"
	"#define END(x) .cfi_endproc; .size x, .-x\n"
	"#define CHECK(slot) mov slot(%rip),%rax; test %rax,%rax\n"
	".data\n.p2align 3\n.local nvtxGlobals_v3\n.type nvtxGlobals_v3,@object\nnvtxGlobals_v3: .quad 0\n"
	"pop: .quad nvtxRangePop_impl_init_v3\n"
	"push: .quad nvtxRangePushA_impl_init_v3\n"
	"push_ex: .quad nvtxRangePushEx_impl_init_v3\n"
	"domain_ex: .quad nvtxDomainRangePushEx_impl_init_v3\n"
	".size nvtxGlobals_v3, .-nvtxGlobals_v3\n"
	"other: .quad work\n"
	".text\n"
	"FUNCTION(work)\n ret\nEND(work)\n"
	/* calls the function again: its places' first calls are none */
	"FUNCTION(nvtxRangePushA_impl_init_v3)\n push %rdi\n call work\n pop %rdi\n jmp nvtxRangePushA\n"
	"END(nvtxRangePushA_impl_init_v3)\n"
	/* has the function in itself: is called once more by nobody */
	"FUNCTION(nvtxRangePop_impl_init_v3)\n call work\n CHECK(pop)\n je 1f\n jmp *%rax\n 1: ret\n"
	"END(nvtxRangePop_impl_init_v3)\n"
	"FUNCTION(nvtxRangePushEx_impl_init_v3)\n call work\n ret\nEND(nvtxRangePushEx_impl_init_v3)\n"
	"FUNCTION(nvtxDomainRangePushEx_impl_init_v3)\n call work\n ret\nEND(nvtxDomainRangePushEx_impl_init_v3)\n"
	"FUNCTION(nvtxRangePushA)\n mov push(%rip),%rax\n test %rax,%rax\n place1: je 1f\n jmp *%rax\n 1: ret\n"
	"END(nvtxRangePushA)\n"
	/* by jne; from memory; moved; on the stack */
	"FUNCTION(by_jne)\n push %rbx\n mov %rdi,%rbx\n CHECK(push)\n place2: jne 1f\n pop %rbx\n ret\n"
	" 1: mov 24(%rbx),%rdi\n call *%rax\n pop %rbx\n ret\nEND(by_jne)\n"
	"FUNCTION(unoptimized)\n push %rbp\n mov %rsp,%rbp\n sub $32,%rsp\n mov %rdi,-24(%rbp)\n mov push(%rip),%rax\n"
	" mov %rax,-8(%rbp)\n cmpq $0,-8(%rbp)\n place3: je 1f\n mov -24(%rbp),%rax\n mov -8(%rbp),%rdx\n mov "
	"%rax,%rdi\n"
	" call *%rdx\n 1: leave\n ret\nEND(unoptimized)\n"
	"FUNCTION(constant)\n sub $8,%rsp\n CHECK(push)\n place4: je 1f\n lea text(%rip),%rdi\n add $8,%rsp\n jmp "
	"*%rax\n"
	" 1: add $8,%rsp\n ret\nEND(constant)\n"
	"FUNCTION(attributes)\n sub $56,%rsp\n CHECK(domain_ex)\n place5: je 1f\n lea 8(%rsp),%rsi\n xor %edi,%edi\n"
	" call *%rax\n 1: add $56,%rsp\n ret\nEND(attributes)\n"
	/* attributes that are written only if they are needed: missed */
	"FUNCTION(late)\n sub $56,%rsp\n CHECK(push_ex)\n je 1f\n mov %rdi,40(%rsp)\n lea 8(%rsp),%rdi\n"
	" call *%rax\n 1: add $56,%rsp\n ret\nEND(late)\n"
	/* two pops; where there is no tool one check does for both */
	"FUNCTION(merged)\n push %rbx\n CHECK(pop)\n place6: je 2f\n call *%rax\n CHECK(pop)\n place7: je 2f\n call "
	"*%rax\n"
	" 2: pop %rbx\n jmp work\nEND(merged)\n"
	/* and two, with a check each */
	"FUNCTION(apart)\n push %rbx\n CHECK(pop)\n place8: je 1f\n call *%rax\n 1: CHECK(pop)\n place9: je 2f\n call "
	"*%rax\n"
	" 2: pop %rbx\n jmp work\nEND(apart)\n"
	/* none: another pointer; no check; a check of something else; the bytes of a use in a constant */
	"FUNCTION(others)\n CHECK(other)\n je 1f\n call *%rax\n 1: mov pop(%rip),%rax\n call *%rax\n"
	" mov pop(%rip),%rax\n test %rdx,%rdx\n je 3f\n jmp *%rax\n 3: ret\nEND(others)\n"
	"FUNCTION(constants)\n push %rbx\n movabs $0x058b4890909090,%rax\n pop %rbx\n ret\nEND(constants)\n"
	".section .rodata\ntext: .asciz \"text\"\n.section .note.GNU-stack\n";

static struct array places;
static size_t missed;

static uint64_t offset_of(const struct elf *elf, const char *name)
{
	struct elf_symbol symbol;
	uint64_t offset;

	assert_int_equal(elf__symbol(elf, name, &symbol), 0);
	assert_int_equal(elf__offset(elf, symbol.vaddr, &offset), 0);
	return offset;
}

static const struct nvtx_site *site_at(const struct elf *elf, const char *name)
{
	const struct nvtx_place *place = places.items;
	uint64_t offset = offset_of(elf, name);

	for (size_t i = 0; i < places.cnt; i++)
		if (place[i].offset == offset)
			return &place[i].site;
	print_message("no place at %s\n", name);
	fail();
	return NULL;
}

static void expect_found(const struct nvtx_value *v, uint8_t base, bool loads, int32_t disp)
{
	assert_int_equal(v->base, base);
	assert_int_equal(v->loads, loads);
	assert_int_equal(v->disp, disp);
}

static struct elf *find(void)
{
	struct elf *elf = open_library();

	places = (struct array){0};
	assert_int_equal(nvtx__find(elf, &places, &missed), 0);
	return elf;
}

static void release(struct elf *elf)
{
	free(places.items);
	elf__free(elf);
}

static void test_places(void **state)
{
	struct elf *elf = find();
	const struct nvtx_site *site;
	int64_t init;

	(void)state;
	site = site_at(elf, "place1");
	init = (int64_t)(offset_of(elf, "nvtxRangePushA_impl_init_v3") - offset_of(elf, "place1"));
	assert_int_equal(site->call, NVTX_PUSH_A);
	assert_int_equal(site->pointer, RAX);
	assert_int_equal(site->init, init);
	expect_found(&site->argument[0], RDI, false, 0);
	expect_found(&site_at(elf, "place2")->argument[0], RBX, true, 24);
	expect_found(&site_at(elf, "place3")->argument[0], RBP, true, -24);
	site = site_at(elf, "place4");
	expect_found(&site->argument[0], NVTX_BASE_SITE, false, site->argument[0].disp);
	site = site_at(elf, "place5");
	assert_int_equal(site->call, NVTX_DOMAIN_PUSH_EX);
	expect_found(&site->argument[0], NVTX_BASE_NONE, false, 0);
	expect_found(&site->argument[1], RSP, false, 8);
	/* late, and the two uses of `others` */
	assert_int_equal(missed, 3);
	release(elf);
}

static void test_merged(void **state)
{
	struct elf *elf = find();
	const struct nvtx_site *site = site_at(elf, "place6");

	(void)state;
	assert_int_equal(site->call, NVTX_POP);
	assert_int_equal(site->init, 0); /* its init has the check in itself */
	assert_int_equal(site->more, 1);
	site = &((const struct nvtx_place *)((const char *)site - offsetof(struct nvtx_place, site)) + 1)->site;
	assert_int_equal(site->call, NVTX_POP);
	assert_int_equal(site->more, 0);
	assert_int_equal(site_at(elf, "place7")->more, 0);
	assert_int_equal(site_at(elf, "place8")->more, 0);
	assert_int_equal(site_at(elf, "place9")->more, 0);
	assert_int_equal(places.cnt, 10);
	release(elf);
}

/* Whatever is in the file: no crash, and places where code is. */
static void use(const char *path)
{
	struct array found = {0};
	struct elf *elf;
	uint64_t vaddr;

	if (elf__new(path, &elf))
		return;
	nvtx__find(elf, &found, &missed);
	for (size_t i = 0; i < found.cnt; i++) {
		assert_int_equal(elf__vaddr(elf, ((struct nvtx_place *)found.items)[i].offset, &vaddr), 0);
		assert_true(elf__is_code(elf, vaddr));
	}
	free(found.items);
	elf__free(elf);
}

static void test_flipped(void **state)
{
	char path[sizeof(library)];
	struct stat st;
	char *good, *bad;
	int fd;

	(void)state;
	elf__free(open_library());
	fd = open(library, O_RDONLY);
	assert_true(fd >= 0 && !fstat(fd, &st));
	good = malloc(st.st_size);
	bad = malloc(st.st_size);
	assert_true(read(fd, good, st.st_size) == st.st_size);
	close(fd);
	in_dir("bad.so", path);
	srandom(1);
	for (int round = 0; round < FLIP_ROUNDS; round++) {
		memcpy(bad, good, st.st_size);
		for (int flips = 1 + random() % 8; flips; flips--)
			bad[random() % st.st_size] = random();
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		assert_true(fd >= 0 && write(fd, bad, st.st_size) == (ssize_t)st.st_size);
		close(fd);
		use(path);
	}
	free(good);
	free(bad);
}

static int make_library(void **state)
{
	(void)state;
	if (!mkdtemp(dir) || !write_text("ranges.S", fixture))
		return -1;
	compile("ranges.so", "ranges.S", library);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_merged),
		cmocka_unit_test(test_flipped),
	};

	return cmocka_run_group_tests(tests, make_library, clean);
}
