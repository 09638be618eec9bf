// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What the processes of a recording and their machine use, once a second, from /proc
 * (user/proc/proc_usage.h): REC_RESOURCES, REC_MACHINE; what cgroups limit: REC_LIMITS; and how often
 * a quota of CPU time was used up: REC_THROTTLE; which pages a child has copied: REC_COPIED. No probe and no BPF: the job pays nothing for it.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "include/resource_records.h"
#include "user/lib/array.h"
#include "user/proc/cgroup.h"
#include "user/proc/proc.h"
#include "user/proc/proc_usage.h"
#include "user/session/state.h"

#define PERIOD_NS     1000000000ULL
#define LEFT_EVERY    10  /* looks: cgroups sum up their memory when they are asked */
#define KEPT_MAX      256 /* processes whose files stay open: the session needs descriptors for others */
#define VMSTAT_BYTES  65536
#define SHM_FULL_PART 50  /* full: less than this part of it is free */
#define OTHERS_MAX    64  /* of the other processes in one look; the next look goes on with the rest */
#define MAINS_MAX     16  /* of a session in one look; more take turns */
#define CHILDREN_MAX  4   /* the same of children */
#define PAGES_EVERY   2   /* looks: the pages of so many children, in turn */
#define PAGES_OF_ALL  512 /* of all children together, of each no fewer than: */
#define PAGES_LEAST   32

/* The network of a namespace, at one look. */
struct network {
	uint64_t inode; /* of the namespace; 0: not known */
	int err;
	uint64_t received_bytes, sent_bytes;
};

/* Session state. */
struct resources {
	uint64_t next_ns, look_cnt;
	uint64_t failed;
	size_t kept, turn; /* turn: the first target that the next look may take as one of the others */
	size_t pages_turn; /* the first target whose pages the next look may take: it takes those of PAGES_EVERY */
	/* of this look */
	struct array networks; /* struct network */
	bool has_machine;
	struct machine_usage machine;
	struct cgroup_look cgroups;
};

/* Target state. */
struct target_resources {
	struct proc_files files;
	bool kept, unfollowed;
	struct shared_pages *pages; /* owned; NULL: none are known that it shares */
	bool pages_chosen;
	struct rec_limits limits; /* the last that was sent */
	/* of a main process, as of the last look at what is left */
	struct cgroup_quota quotas[CGROUP_QUOTAS_MAX];
	size_t quota_cnt;
	/* As the session first saw it: */
	char *kills_file; /* owned; NULL: not known */
	uint64_t cgroup_kills, machine_kills;
	bool has_machine_kills;
	struct shm_space shm; /* as it last saw it; 0 bytes: not known */
};

static struct resources *state_of(const struct session *s)
{
	return session__state(s, SOURCE_RESOURCES);
}

static struct target_resources *of_target(const struct target *t)
{
	return target__state(t, SOURCE_RESOURCES);
}

static void close_files(struct session *s, struct target *t)
{
	struct target_resources *own = of_target(t);

	if (own->kept && s)
		state_of(s)->kept--;
	proc_files__close(&own->files);
	own->kept = false;
}

/* NULL: no memory. */
static const struct network *network_of(struct resources *r, pid_t pid)
{
	struct network *networks = r->networks.items, *network;
	char path[64];
	struct stat stat_of;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	if (stat(path, &stat_of))
		stat_of.st_ino = 0;
	for (size_t i = 0; i < r->networks.cnt; i++)
		if (networks[i].inode == stat_of.st_ino && stat_of.st_ino)
			return &networks[i];
	network = array__add(&r->networks, sizeof(*network));
	if (!network)
		return NULL;
	network->inode = stat_of.st_ino;
	network->err = proc_usage__network(pid, &network->received_bytes, &network->sent_bytes);
	return network;
}

/* Returns 1 if that failed, else 0. */
static int set_network(struct resources *r, pid_t pid, struct rec_resources *rec)
{
	const struct network *network = network_of(r, pid);

	if (!network || network->err)
		return 1;
	rec->known |= RESOURCES_NET;
	rec->received_bytes = network->received_bytes;
	rec->sent_bytes = network->sent_bytes;
	return 0;
}

static void set_swap(struct resources *r, pid_t pid, struct rec_resources *rec)
{
	uint64_t bytes = 0;

	bool swaps = r->machine.swap_bytes > r->machine.swap_free_bytes;

	if (!r->has_machine || (swaps && proc_usage__swap(pid, &bytes)))
		return;
	rec->known |= RESOURCES_SWAP;
	rec->swap_bytes = bytes;
}

/* The CPUs on which a process may run, by its cpuset and by the affinity of its main thread; 0: not known. */
static uint32_t count_processors(pid_t pid, const struct cgroup_limits *limits)
{
	cpu_set_t set;
	uint32_t cnt = sched_getaffinity(pid, sizeof(set), &set) ? 0 : CPU_COUNT(&set);

	return cnt && (!limits->processors || cnt < limits->processors) ? cnt : limits->processors;
}

static void emit_limits(struct session *s, struct target *t, const struct cgroup_limits *limits)
{
	struct rec_limits rec = {.hdr = {.type = REC_LIMITS, .size = sizeof(rec)}, .pid = t->process.pid};
	struct target_resources *own = of_target(t);

	rec.processors = count_processors(t->process.pid, limits);
	rec.memory_bytes = limits->memory_bytes;
	rec.milli_cpus = limits->cpus < 1e6 ? limits->cpus * 1000 : 0; /* more is no limit */
	if (!memcmp(&rec, &own->limits, sizeof(rec)))
		return;
	own->limits = rec;
	session__emit(s, &rec.hdr);
}

/* The files of a process that ends meanwhile fail in many ways: nothing is lost with them. */
static bool still_lives(const struct target *t)
{
	struct proc_stat stat;

	return !proc__stat(t->process.pid, 0, &stat) && !proc_stat__dead(&stat) &&
	       stat.start_time == t->process.start_time;
}

/* ---- what is short when a process ends ---- */

static bool read_machine_kills(uint64_t *out)
{
	size_t size;
	char *text;
	bool has;

	if (proc__slurp_path("/proc/vmstat", VMSTAT_BYTES, &text, &size))
		return false;
	has = !proc__parse_value(text, "oom_kill", out);
	free(text);
	return has;
}

/* What a later shortage is compared with: of a main process, anew where it has got into another cgroup. */
static void begin_shortages(struct session *s, struct target *t, bool left)
{
	struct target_resources *own = of_target(t);
	char *file;

	if (!own->has_machine_kills)
		own->has_machine_kills = read_machine_kills(&own->machine_kills);
	else if (t->role != ROLE_MAIN || !left)
		return;
	file = cgroup_look__kills_file(&state_of(s)->cgroups, t->process.pid);
	/* One that ends has been moved to the root of the cgroups. */
	if (!still_lives(t) || (file && own->kills_file && !strcmp(file, own->kills_file))) {
		free(file);
		return;
	}
	free(own->kills_file);
	own->kills_file = file;
	if (file && !cgroup__kills(file, &own->cgroup_kills)) {
		free(file);
		own->kills_file = NULL;
	}
}

/* As a process sees it, or last saw it. */
static struct shm_space shm_of(const struct target *t)
{
	struct shm_space space;

	return shm__space(t->process.pid, &space) ? of_target(t)->shm : space;
}

/* Since t began; of the process pid: t, or a child of which no more is known. */
static void emit_shortage(struct session *s, const struct target *t, pid_t pid, struct shm_space shm)
{
	struct rec_shortage rec = {.hdr = {.type = REC_SHORTAGE, .size = sizeof(rec)}, .pid = pid};
	const struct target_resources *own = of_target(t);
	uint64_t kills;

	if (own->kills_file && cgroup__kills(own->kills_file, &kills) && kills > own->cgroup_kills) {
		rec.known |= SHORTAGE_CGROUP;
		rec.cgroup_kills = kills - own->cgroup_kills;
	}
	if (own->has_machine_kills && read_machine_kills(&kills) && kills > own->machine_kills) {
		rec.known |= SHORTAGE_MACHINE;
		rec.machine_kills = kills - own->machine_kills;
	}
	if (shm.bytes && shm.free_bytes < shm.bytes / SHM_FULL_PART) {
		rec.known |= SHORTAGE_SHM;
		rec.shm_bytes = shm.bytes;
		rec.shm_free_bytes = shm.free_bytes;
	}
	if (rec.known)
		session__emit(s, &rec.hdr);
}

static void set_left(struct session *s, struct target *t, struct rec_resources *rec)
{
	struct resources *r = state_of(s);
	struct cgroup_limits limits;

	if (r->has_machine) {
		rec->known |= RESOURCES_LEFT;
		rec->left_bytes = r->machine.available_bytes;
	}
	if (cgroup_look__limits(&r->cgroups, t->process.pid, &limits))
		return;
	emit_limits(s, t, &limits);
	if (limits.memory_bytes && (!r->has_machine || limits.memory_left_bytes < rec->left_bytes)) {
		rec->known |= RESOURCES_LEFT | RESOURCES_LEFT_CGROUP;
		rec->left_bytes = limits.memory_left_bytes;
	}
}

static void find_quotas(struct session *s, struct target *t)
{
	struct target_resources *own = of_target(t);
	struct cgroup_quota quotas[CGROUP_QUOTAS_MAX];
	size_t cnt = cgroup_look__quotas(&state_of(s)->cgroups, t->process.pid, quotas);

	/* One that ends has been moved to the root of the cgroups. */
	if (!still_lives(t)) {
		cgroup_quotas__release(quotas, cnt);
		return;
	}
	cgroup_quotas__release(own->quotas, own->quota_cnt);
	memcpy(own->quotas, quotas, sizeof(quotas));
	own->quota_cnt = cnt;
}

static void emit_throttles(struct session *s, const struct target *t)
{
	const struct target_resources *own = of_target(t);

	for (size_t i = 0; i < own->quota_cnt; i++) {
		const struct cgroup_quota *quota = &own->quotas[i];
		struct rec_throttle rec = {.hdr = {.type = REC_THROTTLE, .size = sizeof(rec)}, .pid = t->process.pid};
		struct cgroup_throttle throttle;

		if (!cgroup_quota__throttle(quota, &throttle))
			continue;
		rec.time_ns = session__now_ns();
		rec.above = quota->above;
		rec.group = quota->group;
		rec.milli_cpus = quota->milli_cpus;
		rec.periods = throttle.periods;
		rec.throttled = throttle.throttled;
		rec.throttled_ns = throttle.throttled_ns;
		session__emit(s, &rec.hdr);
	}
}

static void look_at(struct session *s, struct target *t, bool left)
{
	struct rec_resources rec = {.hdr = {.type = REC_RESOURCES, .size = sizeof(rec)}, .pid = t->process.pid};
	struct target_resources *own = of_target(t);
	struct resources *r = state_of(s);
	struct proc_usage usage;
	uint64_t failed = 0;
	int err;

	if (!own->kept && r->kept < KEPT_MAX) {
		own->kept = true;
		r->kept++;
	}
	err = proc_usage__read(t->process.pid, &own->files, own->kept, &usage, &failed);
	if (err || usage.start_time != t->process.start_time) {
		r->failed += err && still_lives(t);
		return;
	}
	rec.time_ns = session__now_ns();
	rec.user_ns = usage.user_ns;
	rec.system_ns = usage.system_ns;
	rec.minor_faults = usage.minor_faults;
	rec.major_faults = usage.major_faults;
	rec.known = (usage.has_memory ? RESOURCES_MEMORY : 0) | (usage.has_disk ? RESOURCES_DISK : 0);
	rec.rss_bytes = usage.rss_bytes;
	rec.shared_bytes = usage.shared_bytes;
	rec.read_bytes = usage.read_bytes;
	rec.written_bytes = usage.written_bytes;
	if (!usage.ended) {
		if (left && t->role == ROLE_MAIN) {
			shm__space(rec.pid, &own->shm);
			find_quotas(s, t);
		}
		failed += set_network(r, rec.pid, &rec);
		set_swap(r, rec.pid, &rec);
		if (left)
			set_left(s, t, &rec);
	}
	if (failed && still_lives(t))
		r->failed += failed;
	session__emit(s, &rec.hdr);
	emit_throttles(s, t);
}

static void look_at_machine(struct session *s)
{
	struct rec_machine rec = {.hdr = {.type = REC_MACHINE, .size = sizeof(rec)}};
	struct resources *r = state_of(s);

	r->has_machine = !proc_usage__machine(&r->machine);
	if (!r->has_machine || !s->target_cnt)
		return;
	rec.time_ns = session__now_ns();
	rec.pid = s->targets[0]->process.pid;
	rec.processors = sysconf(_SC_NPROCESSORS_ONLN);
	rec.busy_ns = r->machine.busy_ns;
	rec.idle_ns = r->machine.idle_ns;
	rec.memory_bytes = r->machine.memory_bytes;
	rec.available_bytes = r->machine.available_bytes;
	rec.swap_bytes = r->machine.swap_bytes;
	rec.swap_free_bytes = r->machine.swap_free_bytes;
	session__emit(s, &rec.hdr);
}

/* ---- pages that are copied ---- */

static void emit_copied(struct session *s, const struct target *t, size_t copied)
{
	const struct shared_pages *pages = of_target(t)->pages;
	struct rec_copied rec = {.hdr = {.type = REC_COPIED, .size = sizeof(rec)}, .pid = t->process.pid};

	rec.time_ns = session__now_ns();
	rec.pages = pages->cnt;
	rec.copied = copied;
	rec.each_bytes = pages->each_bytes;
	session__emit(s, &rec.hdr);
}

static void forget_pages(struct target *t)
{
	free(of_target(t)->pages);
	of_target(t)->pages = NULL;
}

static void look_at_pages(struct session *s, struct target *t, size_t children)
{
	size_t most = PAGES_OF_ALL / children;
	struct target_resources *own = of_target(t);
	size_t copied = 0;
	int err = 0;

	if (!own->pages_chosen) {
		own->pages_chosen = true;
		own->pages = calloc(1, sizeof(*own->pages));
		err = own->pages ? shared_pages__choose(t->process.pid, most < PAGES_LEAST ? PAGES_LEAST : most,
							own->pages)
				 : -ENOMEM;
	} else
		err = shared_pages__copied(t->process.pid, own->pages, &copied);
	if (err || !own->pages->cnt || !still_lives(t))
		forget_pages(t);
	else
		emit_copied(s, t, copied);
}

static bool has_pages(const struct target *t)
{
	const struct target_resources *own = of_target(t);

	return t->role != ROLE_MAIN && !t->gone && !own->unfollowed && (own->pages || !own->pages_chosen);
}

/* Of some children, in turn: many pages now and then tell more than few pages often. */
static void look_at_some_pages(struct session *s)
{
	struct resources *r = state_of(s);
	size_t children = 0, taken = 0, first = r->pages_turn;

	for (size_t i = 0; i < s->target_cnt; i++)
		children += has_pages(s->targets[i]);
	for (size_t i = 0; i < s->target_cnt && children && taken < PAGES_EVERY; i++) {
		struct target *t = s->targets[(first + i) % s->target_cnt];

		if (!has_pages(t))
			continue;
		look_at_pages(s, t, children);
		taken++;
		r->pages_turn = (first + i + 1) % s->target_cnt;
	}
}

static bool is_followed(const struct target *t)
{
	return !t->gone && !of_target(t)->unfollowed;
}

static bool is_main(const struct target *t)
{
	return t->role == ROLE_MAIN;
}

/* left: also at what is left of memory, and then at all. */
static void look_at_all(struct session *s, bool left)
{
	struct resources *r = state_of(s);
	size_t others = 0, turn = r->turn, cnts[2] = {}, ats[2] = {};

	r->networks.cnt = 0;
	look_at_machine(s);
	r->turn = 0;
	for (size_t i = 0; i < s->target_cnt; i++)
		cnts[is_main(s->targets[i])] += is_followed(s->targets[i]);
	for (size_t i = 0; i < s->target_cnt; i++) {
		struct target *t = s->targets[i];
		bool kind = is_main(t);
		size_t most = kind ? MAINS_MAX : CHILDREN_MAX, rounds = (cnts[kind] + most - 1) / most;

		if (!is_followed(t) || (!left && (ats[kind]++ + r->look_cnt) % rounds))
			continue;
		if (!of_target(t)->kept && r->kept == KEPT_MAX) {
			if (i < turn)
				continue;
			if (others++ == OTHERS_MAX)
				r->turn = i;
			if (others > OTHERS_MAX)
				continue;
		}
		begin_shortages(s, t, left);
		look_at(s, t, left);
	}
	if (r->look_cnt % PAGES_EVERY == 0)
		look_at_some_pages(s);
	cgroup_look__release(&r->cgroups);
}

static bool is_wanted(const struct session *s)
{
	return s->opened && !s->options.live_ns; /* the live view does not show it */
}

static void tend(struct session *s)
{
	struct resources *r = state_of(s);
	uint64_t now = session__now_ns();

	if (!is_wanted(s) || now < r->next_ns)
		return;
	r->next_ns = r->next_ns && r->next_ns + PERIOD_NS > now ? r->next_ns + PERIOD_NS : now + PERIOD_NS;
	look_at_all(s, r->look_cnt++ % LEFT_EVERY == 0);
}

static void look_last(struct session *s)
{
	if (is_wanted(s))
		look_at_all(s, true);
}

static void count(const struct session *s, uint64_t counters[CNT__COUNT])
{
	counters[CNT_RESOURCES_LOST] += state_of(s)->failed;
}

static void unfollow(struct session *s, struct target *t)
{
	close_files(s, t);
	of_target(t)->unfollowed = true;
}

/* The files may be those of a program that could be read; those of the new one may not be. */
static void on_exec(struct session *s, struct target *t)
{
	close_files(s, t);
	forget_pages(t);
}

/* Its parent may not have waited for it yet: then its times are still there. */
static void look_at_ended(struct session *s, struct target *t)
{
	if (is_wanted(s) && !of_target(t)->unfollowed && of_target(t)->kept)
		look_at(s, t, false);
	if (is_wanted(s) && !of_target(t)->unfollowed) /* its parent may live, and sees the same */
		emit_shortage(s, t, t->process.pid, shm_of(targets__find(s, t->process.parent) ?: t));
	close_files(s, t);
}

static void look_at_lost_child(struct session *s, struct target *parent, pid_t pid)
{
	if (is_wanted(s))
		emit_shortage(s, parent, pid, shm_of(parent));
}

static void forget(struct session *s, struct target *t)
{
	close_files(s, t);
}

static void free_target(struct target *t)
{
	proc_files__close(&of_target(t)->files);
	forget_pages(t);
	free(of_target(t)->kills_file);
	cgroup_quotas__release(of_target(t)->quotas, of_target(t)->quota_cnt);
}

static void free_state(struct session *s)
{
	free(state_of(s)->networks.items);
}

const struct source source_resources = {
	.session_bytes = sizeof(struct resources),
	.target_bytes = sizeof(struct target_resources),
	.tend = tend,
	.close = look_last,
	.count = count,
	.unfollow = unfollow,
	.on_exec = on_exec,
	.on_exit = look_at_ended,
	.lost_child = look_at_lost_child,
	.forget = forget,
	.free_target = free_target,
	.free = free_state,
};
