/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A tool of NVTX's own kind, as NVTX_INJECTION64_PATH loads it: it writes down each range that is pushed and popped, to
 * NVTX_LOG.PID, "ns tid push|pop domain name" (of a pop no name; of one that had nothing to end "popped-none"), with tabs
 * between. Names are escaped as C does. Handles of strings are indices, and those of domains too, as a tool may choose.
 */
#include <inttypes.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT    __attribute__((visibility("default")))
#define NAMES_MAX 4096
#define DOMAINS   64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *strings[NAMES_MAX];
static size_t string_cnt = 1, domain_cnt = 1;
static FILE *out;
static pid_t out_pid;
static __thread int depth[DOMAINS];

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static FILE *opened(void)
{
	char path[4096];

	if (out_pid == getpid())
		return out;
	out_pid = getpid();
	snprintf(path, sizeof(path), "%s.%d", getenv("NVTX_LOG"), out_pid);
	out = fopen(path, "a");
	setvbuf(out, NULL, _IOLBF, 1 << 16);
	return out;
}

static void put(uint64_t ns, const char *what, size_t domain, const char *name)
{
	FILE *f;

	pthread_mutex_lock(&lock);
	f = opened();
	fprintf(f, "%" PRIu64 "\t%ld\t%s\t%zu\t", ns, syscall(SYS_gettid), what, domain);
	for (const char *c = name ? name : ""; *c && c - name < 4096; c++)
		fprintf(f, *c == '\\' || *c == '\n' || *c == '\t' ? "\\x%02x" : "%c", *c);
	fprintf(f, name ? "\n" : "\\0\n");
	pthread_mutex_unlock(&lock);
}

static int push(size_t domain, const char *name)
{
	put(now_ns(), "push", domain, name);
	return depth[domain]++;
}

static int pop(size_t domain)
{
	uint64_t ns = now_ns();

	if (!depth[domain]) {
		put(ns, "popped-none", domain, "");
		return NVTX_NO_PUSH_POP_TRACKING;
	}
	put(ns, "pop", domain, "");
	return --depth[domain];
}

static int push_wide(size_t domain, const wchar_t *name)
{
	char text[16384], *at = text;

	for (; name && *name && at < text + sizeof(text) - 5; name++) {
		uint32_t c = *name;

		if (c < 0x80) {
			*at++ = c;
			continue;
		}
		if (c < 0x800)
			*at++ = 0xc0 | c >> 6;
		else if (c < 0x10000)
			*at++ = 0xe0 | c >> 12;
		else
			*at++ = 0xf0 | c >> 18;
		if (c >= 0x10000)
			*at++ = 0x80 | (c >> 12 & 0x3f);
		if (c >= 0x800)
			*at++ = 0x80 | (c >> 6 & 0x3f);
		*at++ = 0x80 | (c & 0x3f);
	}
	*at = 0;
	return push(domain, name ? text : NULL);
}

static int push_attributes(size_t domain, const nvtxEventAttributes_t *a)
{
	size_t string;

	switch (a->messageType) {
	case NVTX_MESSAGE_TYPE_ASCII:
		return push(domain, a->message.ascii);
	case NVTX_MESSAGE_TYPE_UNICODE:
		return push_wide(domain, a->message.unicode);
	case NVTX_MESSAGE_TYPE_REGISTERED:
		string = (size_t)a->message.registered;
		return push(domain, string < string_cnt ? strings[string] : NULL);
	default:
		return push(domain, NULL);
	}
}

static int range_push_a(const char *name)
{
	return push(0, name);
}

static int range_push_w(const wchar_t *name)
{
	return push_wide(0, name);
}

static int range_push_ex(const nvtxEventAttributes_t *a)
{
	return push_attributes(0, a);
}

static int range_pop(void)
{
	return pop(0);
}

static int domain_push_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a)
{
	return push_attributes((size_t)domain % DOMAINS, a);
}

static int domain_pop(nvtxDomainHandle_t domain)
{
	return pop((size_t)domain % DOMAINS);
}

static nvtxStringHandle_t domain_register(nvtxDomainHandle_t domain, const char *text)
{
	size_t string;

	(void)domain;
	pthread_mutex_lock(&lock);
	string = string_cnt < NAMES_MAX ? string_cnt++ : 0;
	if (string)
		strings[string] = strdup(text);
	pthread_mutex_unlock(&lock);
	return (nvtxStringHandle_t)string;
}

static nvtxDomainHandle_t domain_create(const char *name)
{
	size_t domain;

	(void)name;
	pthread_mutex_lock(&lock);
	domain = domain_cnt < DOMAINS ? domain_cnt++ : 0;
	pthread_mutex_unlock(&lock);
	return (nvtxDomainHandle_t)domain;
}

static void set(NvtxFunctionTable table, unsigned size, unsigned id, NvtxFunctionPointer function)
{
	if (id < size && table[id])
		*table[id] = function;
}

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
	const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
	NvtxFunctionTable table;
	unsigned size;

	if (!getenv("NVTX_LOG") || !callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size))
		return 0;
	set(table, size, NVTX_CBID_CORE_RangePushA, (NvtxFunctionPointer)range_push_a);
	set(table, size, NVTX_CBID_CORE_RangePushW, (NvtxFunctionPointer)range_push_w);
	set(table, size, NVTX_CBID_CORE_RangePushEx, (NvtxFunctionPointer)range_push_ex);
	set(table, size, NVTX_CBID_CORE_RangePop, (NvtxFunctionPointer)range_pop);
	if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
		return 0;
	set(table, size, NVTX_CBID_CORE2_DomainRangePushEx, (NvtxFunctionPointer)domain_push_ex);
	set(table, size, NVTX_CBID_CORE2_DomainRangePop, (NvtxFunctionPointer)domain_pop);
	set(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, (NvtxFunctionPointer)domain_register);
	set(table, size, NVTX_CBID_CORE2_DomainCreateA, (NvtxFunctionPointer)domain_create);
	return 1;
}
