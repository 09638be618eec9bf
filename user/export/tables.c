// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/export/tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/export/export.h"
#include "user/export/tables_private.h"
#include "user/identity/job_id.h"
#include "user/lib/utf8.h"
#include "user/model/processes.h"
#include "user/model/resources.h"
#include "user/report/common.h"

static const struct {
	const char *name;
	const struct table *table;
} tables_of[] = {
#define X(name) {#name, &table_##name},
	TABLES(X)
#undef X
};

size_t tables__cnt(void)
{
	return sizeof(tables_of) / sizeof(*tables_of);
}

const char *tables__name(size_t table)
{
	return tables_of[table].name;
}

/* ---- keys ---- */

/* Where its ranks meet, which those of a job without a name have in common: "HOST-29500". `far`: only if that is not on each one's own host. */
static void put_meeting(const struct rec_job *known, const char *host, bool far, char *job, size_t size)
{
	char address[80];
	char *port;
	bool own;

	snprintf(address, sizeof(address), "%.*s", (int)sizeof(known->meets), known->meets);
	port = strchr(address, ' ');
	if (!port || known->world_size == 1)
		return;
	*port++ = 0;
	own = !strncmp(address, "127.", 4) || !strcmp(address, "localhost") || !strcmp(address, "::1");
	if (!own || !far)
		snprintf(job, size, "%s-%s", own ? host : address, port);
}

/*
 * The process that has started a rank and others of the same job: of those without a name, each has another rank. The rank's own: it has started
 * one alone, or ranks of several jobs.
 */
static uint32_t starter_of(const struct job *job, const struct rec_target *target)
{
	size_t cnt, siblings = 0;
	const struct rec_target *all = job__targets(job, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		bool sibling = all[i].role == ROLE_MAIN && all[i].parent_pid == target->parent_pid && all[i].rank >= 0;

		if (sibling && all[i].pid != target->pid && all[i].rank == target->rank)
			return target->pid;
		siblings += sibling;
	}
	return target->rank >= 0 && siblings > 1 ? target->parent_pid : target->pid;
}

static void find_key(struct job *job, const struct rec_target *target, struct table_key *key)
{
	const struct rec_job *known = resources__job(job__resources(job), target->pid);
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);
	const char *other = job__target_host(job, target - targets);

	snprintf(key->host, sizeof(key->host), "%.64s", other ?: job__host(job)->hostname);
	if (known)
		snprintf(key->job, sizeof(key->job), "%.64s", known->name);
	/* each rank of a job may be in a container of its own */
	if (known && (!key->job[0] || known->launcher == LAUNCHER_CONTAINER))
		put_meeting(known, key->host, key->job[0], key->job, sizeof(key->job));
	if (!key->job[0])
		snprintf(key->job, sizeof(key->job), "%s-pid-%u", key->host, REC_PID(starter_of(job, target)));
}

static int find_keys(struct tables *tables)
{
	size_t cnt;
	const struct minutes_of *all = minutes__all(tables->minutes, &cnt);

	tables->keys = calloc(cnt + 1, sizeof(*tables->keys));
	for (size_t i = 0; tables->keys && i < cnt; i++)
		find_key(tables->job, all[i].target, &tables->keys[i]);
	return tables->keys ? 0 : -ENOMEM;
}

/* ---- all tables ---- */

struct tables *tables__new(struct job *job, uint32_t pid, int *err)
{
	struct tables *tables = calloc(1, sizeof(*tables));

	*err = -ENOMEM;
	if (!tables)
		return NULL;
	tables->job = job;
	tables->pid = pid;
	tables->steps = steps__new(job);
	if (tables->steps)
		tables->minutes = minutes__new(job, tables->steps, err);
	if (tables->minutes)
		*err = find_keys(tables);
	if (!*err)
		return tables;
	tables__free(tables);
	return NULL;
}

void tables__free(struct tables *tables)
{
	if (!tables)
		return;
	free(tables->keys);
	minutes__free(tables->minutes);
	steps__free(tables->steps);
	free(tables);
}

int tables__write(struct tables *tables, size_t table, FILE *out)
{
	const struct table *is = tables_of[table].table;
	struct arrow *arrow = arrow__new(is->columns, is->column_cnt, out);
	int err = arrow ? is->put(tables, arrow) : -ENOMEM;

	if (!err)
		err = arrow__finish(arrow);
	arrow__free(arrow);
	return err;
}

const struct minutes_of *tables__next(const struct tables *tables, size_t *at)
{
	size_t cnt;
	const struct minutes_of *all = minutes__all(tables->minutes, &cnt);

	while (*at < cnt) {
		const struct minutes_of *of = &all[(*at)++];

		if (!tables->pid || of->target->pid == tables->pid)
			return of;
	}
	return NULL;
}

const struct minutes_of *tables__of(const struct tables *tables, uint32_t pid)
{
	size_t at = 0;
	const struct minutes_of *of;

	while ((of = tables__next(tables, &at)))
		if (of->target->pid == pid)
			return of;
	return NULL;
}

void tables__put_key(const struct tables *tables, const struct minutes_of *of, struct arrow *arrow)
{
	size_t cnt;
	const struct table_key *key = &tables->keys[of - minutes__all(tables->minutes, &cnt)];

	arrow__text(arrow, key->job);
	arrow__text(arrow, key->host);
	arrow__int(arrow, REC_PID(of->target->pid));
	tables__put_known(arrow, of->target->rank);
}

void tables__put_known(struct arrow *arrow, int64_t value)
{
	if (value < 0)
		arrow__null(arrow);
	else
		arrow__int(arrow, value);
}

void tables__put_minute(struct arrow *arrow, int64_t minute)
{
	arrow__int(arrow, minute * 60 * 1000000);
}

void tables__put_time(const struct tables *tables, uint64_t monotonic_ns, struct arrow *arrow)
{
	arrow__int(arrow, job__wall_ns(tables->job, monotonic_ns) / 1000);
}

/* ---- ranks ---- */

static const struct arrow_column rank_columns[] = {
	KEY_COLUMNS,
	NULLABLE("local_rank", INT32),
	NULLABLE("world_size", INT32),
	COLUMN("launcher", TEXT),
	NULLABLE("job_id", TEXT),
	NULLABLE("restarts", INT32),
	NULLABLE("uid", INT64),
	NULLABLE("cgroup", TEXT),
	NULLABLE("gpu", TEXT),
	COLUMN("cpus", INT32),
	NULLABLE("python", TEXT),
	NULLABLE("torch", TEXT),
	NULLABLE("jax", TEXT),
	COLUMN("stepflame", TEXT),
	COLUMN("kernel", TEXT),
	NULLABLE("steps_by", TEXT),
	COLUMN("since", TIME),
	COLUMN("until", TIME),
	COLUMN("ended", BOOL),
	NULLABLE("ending", TEXT),
};

/* A text that is not 0-terminated when full. empty: what "" becomes. */
static void put_field(struct arrow *arrow, const char *field, size_t bytes, const char *empty)
{
	char text[512];

	utf8__copy(text, sizeof(text), field, bytes);
	arrow__text(arrow, text[0] ? text : empty);
}

#define PUT_FIELD(arrow, field) put_field(arrow, field, sizeof(field), NULL)

static void put_job(const struct tables *tables, uint32_t pid, struct arrow *arrow)
{
	static const struct rec_job unknown = {
		.uid = JOB_UID_UNKNOWN, .local_rank = -1, .world_size = -1, .restarts = -1};
	const struct rec_job *known = resources__job(job__resources(tables->job), pid) ?: &unknown;

	tables__put_known(arrow, known->local_rank);
	tables__put_known(arrow, known->world_size);
	arrow__text(arrow, launcher__name(known->launcher));
	PUT_FIELD(arrow, known->id);
	tables__put_known(arrow, known->restarts);
	tables__put_known(arrow, known->uid == JOB_UID_UNKNOWN ? -1 : (int64_t)known->uid);
	PUT_FIELD(arrow, known->cgroup);
}

static const char *gpu_of(const struct gpu *gpu, uint32_t pid)
{
	size_t cnt;
	const struct rec_gpu_device *devices = gpu__devices(gpu, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (devices[i].pid == pid)
			return devices[i].name;
	return NULL;
}

static int put_ranks(struct tables *tables, struct arrow *arrow)
{
	const struct rec_host *host = job__host(tables->job);
	const struct gpu *gpu = job__gpu(tables->job);
	const struct minutes_of *of;
	size_t at = 0;

	while (gpu && (of = tables__next(tables, &at))) {
		const struct rec_target *target = of->target;
		const struct rec_proc *exit = job__exit(tables->job, target->pid);
		char *ending = exit ? processes__end_text(exit->exit_code) : NULL;

		tables__put_key(tables, of, arrow);
		put_job(tables, target->pid, arrow);
		arrow__text(arrow, gpu_of(gpu, target->pid));
		arrow__int(arrow, host->cpus);
		PUT_FIELD(arrow, target->python);
		PUT_FIELD(arrow, target->torch);
		PUT_FIELD(arrow, target->jax);
		put_field(arrow, host->version, sizeof(host->version), "");
		put_field(arrow, host->kernel, sizeof(host->kernel), "");
		arrow__text(arrow, of->track ? common__step_rule_name(of->track->rule) : NULL);
		tables__put_time(tables, of->since_ns, arrow);
		tables__put_time(tables, of->until_ns, arrow);
		arrow__int(arrow, exit != NULL);
		arrow__text(arrow, ending);
		arrow__end_row(arrow);
		free(ending);
	}
	return gpu ? 0 : -ENOMEM;
}

const struct table table_ranks = {COLUMNS(rank_columns), put_ranks};

/* ---- the format ---- */

static int write_arrow(struct job *job, const struct timeline *timeline, const struct export_options *options,
		       FILE *out)
{
	return tables__write(options->tables, options->table, out);
}

const struct export_ops export_arrow = {
	.name = "arrow", .binary = true, .folder = true, .source = EXPORT_TABLES, .write = write_arrow};
