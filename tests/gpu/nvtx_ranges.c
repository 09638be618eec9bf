/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ranges by all functions of NVTX's that push and pop, compiled into a library as extensions have them: with and without
 * optimization (libnvtx_ranges-O0.so, -O2), and with libnvtx3interop's functions instead of its own. A round pushes and
 * pops one range of each name, with the time `ns` in each; the names are those of its functions.
 */
#include <nvtx3/nvToolsExt.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#define EXPORT __attribute__((visibility("default")))

__attribute__((noinline)) static void spend(uint64_t ns)
{
	struct timespec ts = {.tv_nsec = ns};

	__asm__ volatile("" ::: "memory");
	if (ns)
		nanosleep(&ts, NULL);
}

static nvtxEventAttributes_t attributes(void)
{
	nvtxEventAttributes_t a;

	memset(&a, 0, sizeof(a));
	a.version = NVTX_VERSION;
	a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
	a.colorType = NVTX_COLOR_ARGB;
	a.color = 0xff00ff00;
	a.payloadType = NVTX_PAYLOAD_TYPE_INT64;
	a.payload.llValue = 42;
	return a;
}

static void ascii(const char *name, uint64_t ns)
{
	nvtxRangePushA(name);
	spend(ns);
	nvtxRangePop();
}

static void wide(uint64_t ns)
{
	wchar_t name[16];

	wmemcpy(name, L"wide \u00e9\u4e2d\U0001f525", 9);
	nvtxRangePushW(name);
	spend(ns);
	nvtxRangePop();
}

static void attribute(const char *name, uint64_t ns)
{
	nvtxEventAttributes_t a = attributes();

	a.messageType = NVTX_MESSAGE_TYPE_ASCII;
	a.message.ascii = name;
	nvtxRangePushEx(&a);
	spend(ns);
	nvtxRangePop();
}

static void domain(nvtxDomainHandle_t where, uint64_t ns)
{
	nvtxEventAttributes_t a = attributes();

	a.messageType = NVTX_MESSAGE_TYPE_UNICODE;
	a.message.unicode = L"domain";
	nvtxDomainRangePushEx(where, &a);
	spend(ns);
	nvtxDomainRangePop(where);
}

static void registered(nvtxDomainHandle_t where, nvtxStringHandle_t name, uint64_t ns)
{
	nvtxEventAttributes_t a = attributes();

	a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
	a.message.registered = name;
	nvtxDomainRangePushEx(where, &a);
	spend(ns);
	nvtxDomainRangePop(where);
}

/* A pop right behind a push's end, and a push behind a pop. */
static void chain(uint64_t ns)
{
	nvtxRangePushA("chain");
	nvtxRangePushA("link");
	spend(ns);
	nvtxRangePop();
	nvtxRangePushA("link");
	spend(ns);
	nvtxRangePop();
	nvtxRangePop();
}

EXPORT void rounds(uint64_t cnt, uint64_t ns);
EXPORT void rounds(uint64_t cnt, uint64_t ns)
{
	nvtxDomainHandle_t where = nvtxDomainCreateA("ranges");
	nvtxStringHandle_t name = nvtxDomainRegisterStringA(where, "registered");
	char changing[] = "changing 0";

	for (uint64_t i = 0; i < cnt; i++) {
		nvtxRangePushA("round");
		ascii("ascii", ns);
		changing[9] = '0' + i % 10;
		ascii(changing, ns);
		wide(ns);
		attribute("attributes", ns);
		domain(where, ns);
		registered(where, name, ns);
		chain(ns);
		nvtxRangePop();
	}
}
