// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* recdump FILE: prints a recording record by record, one line each. For developers; the recording is not believed here either. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../user/model/names.h"
#include "../user/recording/recording.h"
#include "../user/recording/spans.h"
#include "../user/report/text.h"

static void print_text(const char *name, const char *bytes, size_t len, enum name_encoding encoding)
{
	char *text = name__utf8(bytes, len, encoding, false), *escaped = text ? text__escape(text) : NULL;

	printf(" %s=\"%s\"", name, escaped ? escaped : "(no memory)");
	free(escaped);
	free(text);
}

#define FIELD(record, field)  printf(" " #field "=%" PRIu64, (uint64_t)(record)->field)
#define ID(record, field)     printf(" " #field "=%016" PRIx64, (uint64_t)(record)->field)
#define SIGNED(record, field) printf(" " #field "=%" PRId64, (int64_t)(record)->field)
#define STRING(record, field) \
	print_text(#field, (record)->field, strnlen((record)->field, sizeof((record)->field)), NAME_UTF8)

static void print_host(const void *record)
{
	const struct rec_host *host = record;

	FIELD(host, monotonic_ns);
	FIELD(host, realtime_ns);
	FIELD(host, cpus);
	STRING(host, version);
	STRING(host, hostname);
	STRING(host, kernel);
}

static void print_target(const void *record)
{
	const struct rec_target *target = record;

	FIELD(target, pid);
	FIELD(target, nspid);
	FIELD(target, role);
	SIGNED(target, rank);
	FIELD(target, parent_pid);
	STRING(target, python);
	STRING(target, torch);
	STRING(target, command);
}

static void print_name(const void *record)
{
	const struct rec_name *name = record;

	ID(name, id);
	FIELD(name, encoding);
	FIELD(name, cut);
	FIELD(name, bytes);
	FIELD(name, whole_bytes);
	if (name->bytes > name->hdr.size - sizeof(*name))
		printf(" (malformed: text longer than the record)");
	else
		print_text("text", name->text, name->bytes, name->encoding);
}

static void print_proc(const void *record)
{
	const struct rec_proc *proc = record;

	FIELD(proc, time_ns);
	FIELD(proc, event);
	FIELD(proc, pid);
	FIELD(proc, parent_pid);
	SIGNED(proc, exit_code);
	STRING(proc, comm);
}

static void print_window(const void *record)
{
	const struct rec_window *window = record;

	FIELD(window, start_ns);
	FIELD(window, end_ns);
	FIELD(window, steps);
	FIELD(window, step_rule);
}

static void print_agg(const void *record)
{
	const struct rec_agg *agg = record;

	FIELD(&agg->key, pid);
	FIELD(&agg->key, kind);
	ID(&agg->key, name);
	ID(&agg->key, parent);
	FIELD(&agg->val, calls);
	FIELD(&agg->val, total_ns);
	FIELD(&agg->val, self_ns);
	FIELD(&agg->val, min_ns);
	FIELD(&agg->val, max_ns);
	FIELD(&agg->val, first_ns);
	printf(" hist=");
	for (int i = 0, some = 0; i < AGG_BUCKETS; i++)
		if (agg->val.hist[i])
			printf("%s%d:%u", some++ ? "," : "", i, agg->val.hist[i]);
}

static void print_counter(const void *record)
{
	const struct rec_counter *counter = record;

	STRING(counter, name);
	FIELD(counter, value);
}

static void print_cost(const void *record)
{
	const struct rec_cost *cost = record;

	FIELD(cost, hits);
	FIELD(cost, busiest_hits);
	FIELD(cost, hit_ns);
	FIELD(cost, attach_ns);
	FIELD(cost, detach_ns);
	FIELD(cost, own_cpu_ns);
	FIELD(cost, own_rss_bytes);
	FIELD(cost, busiest_sampler_ns);
}

static void print_note(const void *record)
{
	const struct rec_note *note = record;

	FIELD(note, bytes);
	if (note->bytes > note->hdr.size - sizeof(*note))
		printf(" (malformed: text longer than the record)");
	else
		print_text("text", note->text, note->bytes, NAME_UTF8);
}

static void print_op(const void *record)
{
	const struct rec_op *op = record;

	FIELD(&op->key, pid);
	FIELD(&op->key, kind);
	ID(&op->key, name);
	ID(&op->key, action);
	ID(&op->key, group);
	FIELD(&op->val, calls);
	FIELD(&op->val, total_ns);
	FIELD(&op->val, self_ns);
	printf(" self_bytes=%" PRId64 ",%" PRId64 " total_bytes=%" PRId64 ",%" PRId64, (int64_t)op->val.self_bytes[0],
	       (int64_t)op->val.self_bytes[1], (int64_t)op->val.total_bytes[0], (int64_t)op->val.total_bytes[1]);
}

static void print_op_group(const void *record)
{
	const struct rec_op_group *group = record;

	ID(group, id);
	ID(group, source);
	ID(group, module);
	FIELD(group, word_cnt);
	if (group->word_cnt > (group->hdr.size - sizeof(*group)) / sizeof(*group->words)) {
		printf(" (malformed: words beyond the record)");
		return;
	}
	printf(" words=");
	for (uint32_t i = 0; i < group->word_cnt; i++)
		printf("%s%" PRIx64, i ? "," : "", (uint64_t)group->words[i]);
}

static void print_op_window(const void *record)
{
	const struct rec_op_window *window = record;

	FIELD(window, pid);
	FIELD(window, index);
	FIELD(window, first_step);
	FIELD(window, steps);
	FIELD(window, start_ns);
	FIELD(window, end_ns);
	FIELD(window, cut);
}

static void print_spans(const void *record)
{
	const struct rec_spans *packed = record;
	struct rec_span *spans = malloc(SPANS_MAX * sizeof(*spans));
	size_t cnt = 0;
	int err = spans ? spans__decode(packed, spans, &cnt) : -ENOMEM;

	FIELD(packed, pid);
	FIELD(packed, tid);
	FIELD(packed, span_cnt);
	FIELD(packed, bytes);
	FIELD(packed, base_ns);
	if (err)
		printf(" (%s)", err == -EBADMSG ? "malformed" : strerror(-err));
	for (size_t i = 0; i < cnt; i++) {
		printf("\n ");
		FIELD(&spans[i], kind);
		ID(&spans[i], name);
		FIELD(&spans[i], start_ns);
		FIELD(&spans[i], duration_ns);
		FIELD(&spans[i], depth);
		SIGNED(&spans[i], sequence);
		ID(&spans[i], group);
	}
	free(spans);
}

static void print_code(const void *record)
{
	const struct rec_code *code = record;

	ID(code, id);
	ID(code, file);
	ID(code, name);
	FIELD(code, pid);
	FIELD(code, first_line);
	FIELD(code, line_cnt);
	if (code->line_cnt > (code->hdr.size - sizeof(*code)) / sizeof(*code->lines)) {
		printf(" (malformed: lines beyond the record)");
		return;
	}
	printf(" lines=");
	for (uint32_t i = 0; i < code->line_cnt; i++)
		printf("%s%u:%d", i ? "," : "", code->lines[i].offset, code->lines[i].line);
}

static void print_stack(const void *record)
{
	const struct rec_stack *stack = record;

	ID(stack, id);
	FIELD(stack, cut);
	FIELD(stack, frame_cnt);
	if (stack->frame_cnt > (stack->hdr.size - sizeof(*stack)) / sizeof(*stack->frames)) {
		printf(" (malformed: frames beyond the record)");
		return;
	}
	printf(" frames=");
	for (uint32_t i = 0; i < stack->frame_cnt; i++)
		printf("%s%" PRIx64 "+%u", i ? "," : "", (uint64_t)stack->frames[i].code, stack->frames[i].offset);
}

static void print_path(const void *record)
{
	const struct rec_path *path = record;

	ID(path, id);
	FIELD(path, span_cnt);
	if (path->span_cnt > (path->hdr.size - sizeof(*path)) / sizeof(*path->spans)) {
		printf(" (malformed: spans beyond the record)");
		return;
	}
	printf(" spans=");
	for (uint32_t i = 0; i < path->span_cnt; i++)
		printf("%s%u:%" PRIx64, i ? "," : "", path->spans[i].kind, (uint64_t)path->spans[i].name);
}

static void print_interval(const void *record)
{
	const struct rec_interval *interval = record;

	FIELD(interval, kind);
	ID(interval, name);
	FIELD(interval, pid);
	FIELD(interval, tid);
	FIELD(interval, start_ns);
	FIELD(interval, duration_ns);
	FIELD(interval, depth);
	FIELD(interval, step);
}

static const char *const phase_names[] = {
#define X(id, name) name,
	STEPFLAME_PHASES(X)
#undef X
};

static void print_step(const void *record)
{
	const struct rec_step *step = record;

	FIELD(step, pid);
	FIELD(step, time_ns);
	FIELD(step, index);
	FIELD(step, rule);
	FIELD(step, tid);
	for (int i = 0; i < PHASE__COUNT; i++)
		printf(" %s=%" PRIu64, phase_names[i], (uint64_t)step->phase_ns[i]);
}

static void print_sample(const void *record)
{
	const struct rec_sample *sample = record;

	FIELD(sample, time_ns);
	FIELD(sample, weight_ns);
	ID(sample, stack);
	ID(sample, path);
	ID(sample, native);
	ID(sample, kernel);
	FIELD(sample, pid);
	FIELD(sample, tid);
	FIELD(sample, step);
	FIELD(sample, waits);
	FIELD(sample, kind);
	FIELD(sample, cause);
	FIELD(sample, waker_pid);
	FIELD(sample, waker_tid);
	SIGNED(sample, syscall);
	ID(sample, file);
}

static void print_calls(const void *record)
{
	const struct rec_calls *calls = record;

	FIELD(calls, pid);
	ID(calls, code);
	ID(calls, path);
	FIELD(calls, calls);
	FIELD(calls, primitive_calls);
	FIELD(calls, self_ns);
	FIELD(calls, total_ns);
}

static void print_syscall(const void *record)
{
	const struct rec_syscall *r = record;

	printf(" pid=%u number=%d calls=%llu errors=%llu total_ns=%llu bytes=%llu unfinished=%llu", r->key.pid,
	       (int)r->key.number, (unsigned long long)r->val.calls, (unsigned long long)r->val.errors,
	       (unsigned long long)r->val.total_ns, (unsigned long long)r->val.bytes,
	       (unsigned long long)r->val.unfinished);
}

static void print_file(const void *record)
{
	const struct rec_file *r = record;
	const struct file_val *v = &r->val;

	printf(" pid=%u dev=%u inode=%llu name=%016llx reads=%llu read_bytes=%llu writes=%llu written_bytes=%llu "
	       "total_ns=%llu disk_reads=%llu faults=%llu disk_bytes=%llu last_ns=%llu flags=%u",
	       r->key.pid, r->key.dev, (unsigned long long)r->key.inode, (unsigned long long)v->name,
	       (unsigned long long)v->reads, (unsigned long long)v->read_bytes, (unsigned long long)v->writes,
	       (unsigned long long)v->written_bytes, (unsigned long long)v->total_ns, (unsigned long long)v->disk_reads,
	       (unsigned long long)v->faults, (unsigned long long)v->disk_bytes, (unsigned long long)v->last_ns,
	       v->flags);
}

static const struct {
	const char *name;
	size_t bytes;
	void (*print)(const void *record);
} types[] = {
	[REC_HOST] = {"HOST", sizeof(struct rec_host), print_host},
	[REC_TARGET] = {"TARGET", sizeof(struct rec_target), print_target},
	[REC_NAME] = {"NAME", sizeof(struct rec_name), print_name},
	[REC_PROC] = {"PROC", sizeof(struct rec_proc), print_proc},
	[REC_WINDOW] = {"WINDOW", sizeof(struct rec_window), print_window},
	[REC_AGG] = {"AGG", sizeof(struct rec_agg), print_agg},
	[REC_COUNTER] = {"COUNTER", sizeof(struct rec_counter), print_counter},
	[REC_COST] = {"COST", sizeof(struct rec_cost), print_cost},
	[REC_NOTE] = {"NOTE", sizeof(struct rec_note), print_note},
	[REC_OP] = {"OP", sizeof(struct rec_op), print_op},
	[REC_OP_GROUP] = {"OP_GROUP", sizeof(struct rec_op_group), print_op_group},
	[REC_OP_WINDOW] = {"OP_WINDOW", sizeof(struct rec_op_window), print_op_window},
	[REC_SPANS] = {"SPANS", sizeof(struct rec_spans), print_spans},
	[REC_CODE] = {"CODE", sizeof(struct rec_code), print_code},
	[REC_STACK] = {"STACK", sizeof(struct rec_stack), print_stack},
	[REC_PATH] = {"PATH", sizeof(struct rec_path), print_path},
	[REC_INTERVAL] = {"INTERVAL", sizeof(struct rec_interval), print_interval},
	[REC_STEP] = {"STEP", sizeof(struct rec_step), print_step},
	[REC_SAMPLE] = {"SAMPLE", sizeof(struct rec_sample), print_sample},
	[REC_SYSCALL] = {"SYSCALL", sizeof(struct rec_syscall), print_syscall},
	[REC_FILE] = {"FILE", sizeof(struct rec_file), print_file},
	[REC_CALLS] = {"CALLS", sizeof(struct rec_calls), print_calls},
};

static int print_record(const struct rec_hdr *record, void *ctx)
{
	if (record->type >= sizeof(types) / sizeof(*types) || !types[record->type].name) {
		printf("unknown type=%u size=%u\n", record->type, record->size);
		return 0;
	}
	printf("%s", types[record->type].name);
	if (record->size < types[record->type].bytes)
		printf(" (malformed: %u bytes, not %zu)", record->size, types[record->type].bytes);
	else
		types[record->type].print(record);
	putchar('\n');
	return 0;
}

int main(int argc, char **argv)
{
	enum recording_end end = RECORDING_WHOLE;
	uint32_t version = 0;
	int err;

	if (argc != 2) {
		fprintf(stderr, "Usage: recdump FILE\n");
		return 2;
	}
	err = recording__read(argv[1], print_record, NULL, &end, &version);
	if (err) {
		fprintf(stderr, "recdump: %s: %s (format version %u)\n", argv[1], strerror(-err), version);
		return 1;
	}
	if (end == RECORDING_CUT)
		printf("(the rest is cut or damaged)\n");
	return fflush(stdout) ? 1 : 0;
}
