/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NVTX ranges (nvtxRangePush, nvtxRangePop and their domain variants): labels that the program may
 * begin and end anywhere. As in NVTX, ranges are per thread and domain, and a pop ends the
 * innermost one. The probe's struct nvtx_site says where the arguments are
 * (user/runtime/nvtx/nvtx.h).
 */
#ifndef STEPFLAME_BPF_NVTX_H
#define STEPFLAME_BPF_NVTX_H

#include "bpf/span.h"

#define NVTX_WIDE_MAX (REC_NAME_MAX / 4)

/* nvtxEventAttributes_v2 of nvtx3/nvToolsExt.h. */
struct nvtx_attributes {
	u16 version, size;
	u32 category;
	u32 colour_type, colour;
	u32 payload_type, reserved;
	u64 payload;
	u32 message_type, pad;
	u64 message;
};

enum nvtx_message { NVTX_MESSAGE_ASCII = 1, NVTX_MESSAGE_UNICODE };

static __always_inline u64 nvtx__register(const struct pt_regs *ctx, u32 number)
{
	switch (number) {
	case 0:
		return LOAD_HERE(ctx->ax);
	case 1:
		return LOAD_HERE(ctx->cx);
	case 2:
		return LOAD_HERE(ctx->dx);
	case 3:
		return LOAD_HERE(ctx->bx);
	case 4:
		return LOAD_HERE(ctx->sp);
	case 5:
		return LOAD_HERE(ctx->bp);
	case 6:
		return LOAD_HERE(ctx->si);
	case 7:
		return LOAD_HERE(ctx->di);
	case 8:
		return LOAD_HERE(ctx->r8);
	case 9:
		return LOAD_HERE(ctx->r9);
	case 10:
		return LOAD_HERE(ctx->r10);
	case 11:
		return LOAD_HERE(ctx->r11);
	case 12:
		return LOAD_HERE(ctx->r12);
	case 13:
		return LOAD_HERE(ctx->r13);
	case 14:
		return LOAD_HERE(ctx->r14);
	case 15:
		return LOAD_HERE(ctx->r15);
	case NVTX_BASE_SITE:
		return LOAD_HERE(ctx->ip);
	default:
		return 0;
	}
}

static __always_inline u64 nvtx__value(const struct pt_regs *ctx, const struct nvtx_value *value)
{
	u64 at = nvtx__register(ctx, value->base) + value->disp;

	return value->loads ? read_u64(at) : at;
}

struct wide_text {
	u64 address;
	struct name_buffer *to;
	u32 cnt, bits; /* characters, and all of them ORed */
	u32 width, pad;
};

static long wide__measure(u32 i, struct wide_text *text)
{
	u32 c;

	if (bpf_probe_read_user(&c, sizeof(c), (const void *)(text->address + 4 * i))) {
		text->width = 0;
		return 1;
	}
	if (!c)
		return 1;
	text->bits |= c;
	text->cnt = i + 1;
	return 0;
}

static long wide__copy(u32 i, struct wide_text *text)
{
	u32 c = 0, at = i * text->width;
	char *to = text->to->text;

	bpf_probe_read_user(&c, sizeof(c), (const void *)(text->address + 4 * i));
	if (text->width == 4)
		*(u32 *)(to + BOUND_INDEX(at, REC_NAME_MAX)) = c;
	else if (text->width == 2)
		*(u16 *)(to + BOUND_INDEX(at, REC_NAME_MAX)) = c;
	else
		to[BOUND_INDEX(at, REC_NAME_MAX)] = c;
	return 0;
}

/*
 * Name id of a wchar_t text; 0 (counted): unreadable. The text goes into the buffer in the encoding
 * that Python's str has for its widest character, and ASCII as UTF-8, so that one text has one id,
 * whichever function pushes it.
 */
__weak __noinline u64 nvtx__read_wide(struct name_buffer *b, u64 address)
{
	struct wide_text text = {.address = address, .to = b, .width = 1};
	u32 whole;

	if (!b)
		return 0;
	bpf_loop(NVTX_WIDE_MAX + 1, wide__measure, &text, 0);
	if (!text.width) {
		count(CNT_NAME_LOST);
		return 0;
	}
	text.width = text.bits > 0xffff ? 4 : text.bits > 0xff ? 2 : 1;
	whole = text.cnt * text.width;
	if (text.cnt > NVTX_WIDE_MAX) {
		count(CNT_NAME_CUT);
		text.cnt = NVTX_WIDE_MAX;
	}
	bpf_loop(text.cnt, wide__copy, &text, 0);
	if (text.width == 1)
		return name__hash(b, text.cnt, whole, text.bits < 0x80 ? NAME_UTF8 : NAME_LATIN1);
	return name__hash(b, text.cnt * text.width, whole, text.width == 2 ? NAME_UCS2 : NAME_UCS4);
}

/*
 * Name id of a message; 0 (counted): unreadable, or registered, so that only NVTX's tool knows it.
 */
static __always_inline u64 nvtx__read(struct name_buffer *b, u32 type, u64 address)
{
	if (!address || type < NVTX_MESSAGE_ASCII || type > NVTX_MESSAGE_UNICODE) {
		count(CNT_NVTX_UNNAMED);
		return 0;
	}
	return type == NVTX_MESSAGE_ASCII ? name__read_text(b, address) : nvtx__read_wide(b, address);
}

__weak __noinline u64 nvtx__read_message(struct name_buffer *b, u64 address)
{
	struct nvtx_attributes attributes;

	if (!b)
		return 0;
	if (bpf_probe_read_user(&attributes, sizeof(attributes), (const void *)address)) {
		count(CNT_NAME_LOST);
		return 0;
	}
	if (!attributes.version || attributes.version > 3 || attributes.size < sizeof(attributes))
		attributes.message_type = 0;
	return nvtx__read(b, attributes.message_type, attributes.message);
}

#define NVTX_TOKEN(domain) ((domain) | 1ULL << 63) /* differs from those of other labels, which are addresses */

/* Pushes a range. A range without a name (0) is there only for its pop. */
__weak __noinline int nvtx__push(struct thread *t, u64 domain, u64 name)
{
	struct span *s;
	int first;

	if (!t)
		return 0;
	first = nvtx__outermost(t, NVTX_OPEN_MAX - 1);
	if (first >= 0)
		nvtx__give_up(t, first);
	s = span__begin(t, SPAN_LABEL, NVTX_TOKEN(domain), name, 0);
	if (s)
		s->label = LABEL_NVTX;
	return 0;
}

__weak __noinline int nvtx__pop(struct thread *t, const struct proc *proc, u32 pid, u64 domain)
{
	int i;

	if (!t || !proc)
		return 0;
	i = span__find(t, SPAN_LABEL, NVTX_TOKEN(domain), 0);
	if (i < 0)
		count(CNT_NVTX_NOT_PUSHED);
	else if (span__at(t, i)->name)
		span__end(t, proc, pid, i);
	else
		nvtx__give_up(t, i);
	return 0;
}

/* Name id of the range that a call pushes; 0: unknown (counted). */
__weak __noinline u64 nvtx__name(struct name_buffer *b, struct proc *proc, u32 call, u64 argument)
{
	u64 name;

	if (!b)
		return 0;
	if (call == NVTX_PUSH_A)
		name = nvtx__read(b, NVTX_MESSAGE_ASCII, argument);
	else if (call == NVTX_PUSH_W)
		name = nvtx__read(b, NVTX_MESSAGE_UNICODE, argument);
	else
		name = nvtx__read_message(b, argument);
	return name__admit(b, proc, name, NAMES_RANGES);
}

#define NVTX_MORE 4 /* calls that one hit can stand for: struct nvtx_site.more */

static __always_inline void on_nvtx(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid, u32 fn)
{
	const struct nvtx_site *site = bpf_map_lookup_elem(&nvtx_sites, &fn);
	struct thread *t;
	u64 pointer;

	__sync_fetch_and_add(&proc->nvtx.hits, 1);
	if (!site)
		return;
	pointer = nvtx__register(ctx, site->pointer);
	if (site->init && pointer == ctx->ip + site->init)
		return;
	t = thread__enter(task, ctx->sp);
	if (!t)
		return;
	for (u32 n = 0; n < NVTX_MORE; n++) {
		u64 first = nvtx__value(ctx, &site->argument[0]), second = nvtx__value(ctx, &site->argument[1]);
		u32 call = site->call;

		if (call == NVTX_POP || call == NVTX_DOMAIN_POP)
			nvtx__pop(t, proc, pid, call == NVTX_POP ? 0 : first);
		else if (call == NVTX_DOMAIN_PUSH_EX)
			nvtx__push(t, first, nvtx__name(&t->names, proc, call, second));
		else
			nvtx__push(t, 0, nvtx__name(&t->names, proc, call, first));
		if (pointer || !site->more)
			break;
		fn++;
		site = bpf_map_lookup_elem(&nvtx_sites, &fn);
		if (!site)
			break;
	}
}

#endif
