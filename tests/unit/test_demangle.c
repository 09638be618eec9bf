/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * demangle__name, compared with abi::__cxa_demangle: its text, with types taken out here, for all functions that
 * libstdc++ exports; and symbols that are made to hurt.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "user/elf/demangle.h"
#include "user/elf/elf.h"

extern char *__cxa_demangle(const char *mangled, char *buffer, size_t *size, int *status);

static void assert_name(const char *mangled, const char *want)
{
	char out[300];

	if (!demangle__name(mangled, out, sizeof(out)))
		fail_msg("%s: not understood", mangled);
	assert_string_equal(out, want);
}

/* What c++filt says of each, less the types. */
static void test_forms(void **state)
{
	assert_name("_ZN2at6native12_GLOBAL__N_110cpu_kernelIfEEvRKNS_6TensorE",
		    "at::native::(anonymous namespace)::cpu_kernel<...>");
	assert_name("_ZL3foov.isra.0.cold", "foo");
	assert_name("_ZNKSt6vectorIiSaIiEE4sizeEv", "std::vector<...>::size");
	assert_name("_ZN2at6TensorC2EOS0_", "at::Tensor::Tensor");
	assert_name("_ZN2at6TensorD0Ev", "at::Tensor::~Tensor");
	assert_name("_ZN3FooIiEC1Ev", "Foo<...>::Foo");
	assert_name("_ZNK1AcvbEv", "A::operator cast");
	assert_name("_ZN1AclEi", "A::operator()");
	assert_name("_ZN3c10lsIiEERSoS1_RKT_", "c10::operator<< <...>");
	assert_name("_ZStlsIcEvT_", "std::operator<< <...>");
	assert_name("_ZZZN1A1fEiENKUlvE_clEvENKUliE0_clEi", "A::f::{lambda#1}::operator()::{lambda#2}::operator()");
	assert_name("_ZZ1fvEN1B1gEv", "f::B::g");
	assert_name("_ZZ1fvEd_NKUlvE_clEv", "f::{lambda#1}::operator()");
	assert_name("_ZThn16_N1A1fEv", "A::f");
	assert_name("_ZTv0_n24_N1A1fEv", "A::f");
	assert_name("_ZN1A1fB5cxx11Ev", "A::f[abi:cxx11]");
	/* Types with letters that look like others: a float and a literal, an operator that begins an expression. */
	assert_name("_ZN3fmt5writeIcfLi0EEET0_S1_", "fmt::write<...>");
	assert_name("_ZN1fILN2at10ScalarTypeE6EE1gEv", "f<...>::g");
	assert_name("_Z1fIiEDTclL_Z1gEfp_EET_", "f<...>");
	assert_name("_ZN1XIXadL_ZN1A1gEvEEE1hEv", "X<...>::h");
}

static void test_refused(void **state)
{
	static const char *const bad[] = {
		"",          "_",        "_Z",
		"_ZN",       "_ZNE",     "_ZN3foE",
		"main",      "_ZTV1A",   "_ZN99999999999999999999999fooE",
		"_Z0foo",    "_ZNS_1fE", "_ZNC1Ev",
		"_ZNIiE1fE", "_R1f",
	};
	char out[64];

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_false(demangle__name(bad[i], out, sizeof(out)));
}

/* f<A, P<A, A>, P<P<A, A>, P<A, A>>, ...>: the last of `cnt` pairs has 2^cnt names when written out. */
static void pairs(char *mangled, int cnt)
{
	static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

	mangled += sprintf(mangled, "_Z1fI1A1PIS0_S0_E"); /* f is S_, A S0_, P S1_, P<A, A> S2_ */
	for (int i = 1; i < cnt; i++)
		mangled += sprintf(mangled, "S1_IS%c_S%c_E", digits[i + 1], digits[i + 1]);
	strcpy(mangled, "Evv");
}

/* Types in types, and scopes in scopes, each way. */
static void test_hostile(void **state)
{
	static const char *const nests[] = {"N", "I", "Z", "_ZZ", "LN", "Ul", "X", "1aI", "N1aI", "LF"};
	char mangled[65535], out[16], *whole;

	pairs(mangled, 3);
	whole = __cxa_demangle(mangled, NULL, NULL, NULL);
	assert_string_equal(
		whole, "void f<A, P<A, A>, P<P<A, A>, P<A, A> >, P<P<P<A, A>, P<A, A> >, P<P<A, A>, P<A, A> > > >()");
	free(whole);
	pairs(mangled, 35);
	assert_true(demangle__name(mangled, out, sizeof(out)));
	assert_string_equal(out, "f<...>");

	for (size_t i = 0; i < sizeof(nests) / sizeof(*nests); i++) {
		char *at = mangled + sprintf(mangled, "_Z1aI");

		while (at + strlen(nests[i]) < mangled + sizeof(mangled) - 1)
			at += sprintf(at, "%s", nests[i]);
		assert_false(demangle__name(mangled, out, sizeof(out)));
		assert_false(demangle__name(mangled + 5, out, sizeof(out)));
		memcpy(mangled + 3, "_Z", 2);
		assert_false(demangle__name(mangled + 3, out, sizeof(out)));
	}
	assert_true(demangle__name("_ZN10abcdefghij10abcdefghijEv", out, sizeof(out)));
	assert_string_equal(out, "abcdefghij::abc");
}

/* ---- against libstdc++ ---- */

static const char *const operators[] = {"<<=", "<=>", "<<", "<=", "<", ">>=", ">>", ">=", ">", "->*", "->", "()"};

/* The length of an operator's name at text, 0: none there. */
static size_t operator_len(const char *text)
{
	if (strncmp(text, "operator", 8))
		return 0;
	for (size_t i = 0; i < sizeof(operators) / sizeof(*operators); i++) {
		if (!strncmp(text + 8, operators[i], strlen(operators[i])))
			return 8 + strlen(operators[i]);
	}
	return 0;
}

/* Behind the bracket that closes the one at text. */
static const char *behind(const char *text)
{
	char open = *text++;

	while (*text && *text != (open == '<' ? '>' : ')')) {
		if (*text == '<' || *text == '(')
			text = behind(text);
		else
			text += operator_len(text) ? operator_len(text) : 1;
	}
	return text + !!*text;
}

/* "void ns::f<int>(int) const" to "ns::f<...>" */
static void without_types(const char *text, char *out)
{
	char *begin = out;

	while (*text) {
		size_t len = operator_len(text);

		if (!strncmp(text, "(anonymous namespace)", 21))
			len = 21;
		if (len) {
			memcpy(out, text, len);
			out += len;
			text += len;
			if (!strncmp(text, " <", 2)) /* operator< <int> */
				*out++ = *text++;
		} else if (*text == '<') {
			text = behind(text);
			out += sprintf(out, "<...>");
		} else if (*text == '(') {
			break;
		} else if (*text == ' ' && strncmp(out - (out - begin < 8 ? 0 : 8), "operator", 8)) {
			out = begin; /* a return type */
			text++;
		} else {
			*out++ = *text++;
		}
	}
	*out = 0;
}

struct tally {
	size_t compared;
	char last[300];
};

static int compare(const struct elf_symbol *symbol, void *ctx)
{
	struct tally *tally = ctx;
	char want[4096], got[4096], *text;

	/* Ss and its like, which it writes out; thunks; conversions, whose names are types. */
	if (!symbol->function || strncmp(symbol->name, "_Z", 2) || strlen(symbol->name) > 300 ||
	    strstr(symbol->name, "Ss") || strstr(symbol->name, "Si") || strstr(symbol->name, "So") ||
	    strstr(symbol->name, "Sd") || strstr(symbol->name, "NSa") || strstr(symbol->name, "NKSa") ||
	    symbol->name[2] == 'T' || symbol->name[2] == 'G' || strstr(symbol->name, "cv"))
		return 0;
	text = __cxa_demangle(symbol->name, NULL, NULL, NULL);
	if (!text || strlen(text) >= sizeof(want) / 2)
		goto out;
	without_types(text, want);
	if (!demangle__name(symbol->name, got, sizeof(got)))
		fail_msg("%s: not understood", symbol->name);
	if (strcmp(got, want))
		fail_msg("%s: %s, wanted %s (%s)", symbol->name, got, want, text);
	tally->compared++;
out:
	free(text);
	return 0;
}

static void test_libstdcxx(void **state)
{
	struct tally tally = {0};
	struct elf *elf;
	Dl_info info;

	assert_true(dladdr((void *)__cxa_demangle, &info));
	assert_int_equal(elf__new(info.dli_fname, &elf), 0);
	elf__each_symbol(elf, compare, &tally);
	elf__free(elf);
	print_message("%zu names compared\n", tally.compared);
	if (!tally.compared)
		skip(); /* linked statically */
}

/* Any bytes in a symbol: no more than the sanitizers is asked. */
static void test_mutated(void **state)
{
	static const char seed[] =
		"_ZZNSt3mapIN2at6TensorELN3c1010ScalarTypeE6EXadL_Z1gEEDTclfp_EEE1fB5cxx11EvENKUlvE0_clEv";
	static const char alphabet[] = "_ZNISTLXEUDCFJABMKOPRVclfpabdhnstv0123456789";
	char mangled[sizeof(seed)], out[40];

	srand(1);
	for (int i = 0; i < 300000; i++) {
		memcpy(mangled, seed, sizeof(seed));
		for (int n = rand() % 6; n >= 0; n--)
			mangled[2 + rand() % (sizeof(seed) - 3)] = alphabet[rand() % (sizeof(alphabet) - 1)];
		mangled[rand() % sizeof(seed)] = rand() % 4 ? '1' : 0;
		mangled[sizeof(seed) - 1] = 0;
		if (demangle__name(mangled, out, sizeof(out)))
			assert_true(strlen(out) < sizeof(out));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),     cmocka_unit_test(test_refused), cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_libstdcxx), cmocka_unit_test(test_mutated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
