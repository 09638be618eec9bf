/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A stand-in for bpf/kernel.h, so that a test can include the BPF sources as plain C: it sets a clock, registers and a cookie, calls a
 * program, and looks into the maps. Included before anything of bpf/, since it takes the include guard of bpf/kernel.h.
 *
 * Maps are hash tables with the kernel's rules (a full map refuses, an array has all its elements, a value stays where it is). Each value is
 * an allocation of its own, so that ASan sees a step outside. The target's memory is this process's, or that of native.memory_pid, and is
 * read by process_vm_readv: a bad address fails as it does in the kernel, and leaves zeros.
 */
#ifndef STEPFLAME_TESTS_BPF_NATIVE_KERNEL_H
#define STEPFLAME_TESTS_BPF_NATIVE_KERNEL_H
#define STEPFLAME_BPF_KERNEL_H /* in the place of which it stands */

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/bpf.h>
#include <linux/types.h>

#ifdef __clang__
#pragma clang diagnostic ignored "-Wgnu-variable-sized-type-not-at-end" /* struct rec_name in struct thread */
#endif

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;

#define SEC(name)
#define __weak
/*
 * The kernel lets programs read unaligned words, on the machines that do. glibc has its own __always_inline; with it, the sanitizers make
 * a compilation take three times as long.
 */
#undef __always_inline
#define __always_inline inline __attribute__((no_sanitize("alignment")))
#define __noinline \
	static __attribute__((noinline, unused, no_sanitize("alignment"))) /* static: linked to nothing else */

/* The declaration of a map, as libbpf's: a struct whose members have the types that say what the map is. */
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

#define BOUND_INDEX(i, size)                                                  \
	({                                                                    \
		_Static_assert(!((size) & ((size)-1)), "not a power of two"); \
		(u64)(i) & ((size)-1);                                        \
	})

#define LOAD_HERE(place) (place)

/* As in the kernel, what lies behind NULL is 0. Two hops at most. */
#define NATIVE_HOP(from, member)             \
	({                                   \
		__auto_type __from = (from); \
		__from ? __from->member : 0; \
	})
#define NATIVE_HOPS(from, member, next)      NATIVE_HOP(NATIVE_HOP(from, member), next)
#define NATIVE_CHOOSE(a, b, c, chosen, ...)  chosen
#define BPF_CORE_READ(...)                   NATIVE_CHOOSE(__VA_ARGS__, NATIVE_HOPS, NATIVE_HOP, )(__VA_ARGS__)
#define BPF_CORE_READ_INTO(to, from, member) memcpy(to, &(from)->member, sizeof(*(to)))
#define BPF_PROG(name, ...)                  name(__VA_ARGS__)

/* ---- the kernel's structs, those members that are used ---- */

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};

struct upid {
	int nr;
	void *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[4];
};

#define NUMBERS_OFFSET offsetof(struct pid, numbers)

struct signal_struct {
	struct {
		int counter;
	} live;
	int group_exit_code;
};

struct bpf_perf_event_data {
	struct pt_regs regs;
};

struct super_block {
	u32 s_dev;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	u32 i_rdev;
	struct hlist_head i_dentry;
};

struct dentry {
	struct {
		void **pprev;
	} d_hash;
	struct dentry *d_parent;
	struct {
		u32 len;
		const unsigned char *name;
	} d_name;
	struct inode *d_inode;
	struct hlist_node d_alias;
};

struct vfsmount {
	struct dentry *mnt_root;
	struct super_block *mnt_sb;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct file_place {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct fs_struct {
	struct file_place root;
};

struct file {
	struct inode *f_inode;
	unsigned int f_flags;
	struct file_place f_path;
};

struct address_space {
	struct inode *host;
};

struct folio {
	struct address_space *mapping;
	u64 pages;
};

#define MOUNT_OFFSET offsetof(struct mount, mnt)
#define ALIAS_OFFSET offsetof(struct dentry, d_alias)

static inline u64 folio__pages(const struct folio *folio)
{
	return folio->pages;
}

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct cred {
	struct {
		u32 val;
	} euid;
};

struct task_struct {
	int pid;
	int tgid;
	int exit_code;
	unsigned int flags;
	unsigned int on_cpu;
	struct {
		u64 sum_exec_runtime, prev_sum_exec_runtime;
	} se;
	unsigned int __state;
	unsigned long jobctl;
	unsigned in_iowait : 1;
	struct files_struct *files;
	struct fs_struct *fs;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
	const struct cred *cred;
	struct {
		unsigned long fsbase;
	} thread;
	char comm[16];
};

struct bpf_iter__task {
	struct task_struct *task;
};

#define BPF_CORE_READ_BITFIELD_PROBED(from, member) ((from)->member)

/* ---- what the test sets and sees ---- */

static struct {
	u64 now_ns;
	u64 tick_ns; /* by which each look at the clock moves it */
	u64 cookie;
	struct task_struct *task;
	const struct pt_regs *user; /* of any task, as it entered the kernel */
	pid_t memory_pid;           /* whose memory is read; 0: this process's */
	u32 storage_failures;       /* of the next task_storage_get calls */
	u64 random;                 /* the state of bpf_get_prandom_u32 */
	bool ring_full;
	u8 *ring; /* the records sent, one behind the other */
	size_t ring_bytes, ring_room;
	struct {
		size_t at;
		u32 type, n;
	} found; /* of the ring: where the last look at it ended (job.h) */
	/* Reads memory instead; false: it is not there. NULL: memory_pid's. */
	bool (*memory)(void *to, u32 bytes, u64 from);
	u64 reads;            /* of the target's memory, so far */
	u64 (*corrupt)(void); /* a random number, by which some of what is read is changed; NULL: nothing is */
} native;

/* ---- maps ---- */

#define NATIVE_BUCKETS 512

struct native_row {
	struct native_row *next;
	u64 key[4];
	u64 value[]; /* 8-aligned, as the kernel's */
};

struct native_map {
	struct native_map *next;
	const void *map; /* the struct that declares it */
	u32 cnt;
	struct native_row *buckets[NATIVE_BUCKETS];
};

static struct native_map *native_maps;

/* What the declaration says. */
struct native_shape {
	const void *map;
	u32 type, max_entries, key_bytes, value_bytes;
};

#define NATIVE_NUMBER(member) (sizeof(*(member)) / sizeof(int))
#define NATIVE_SHAPE(m)                                                                                            \
	(&(struct native_shape){(m), NATIVE_NUMBER((m)->type), NATIVE_NUMBER((m)->max_entries), sizeof(*(m)->key), \
				sizeof(*(m)->value)})

static inline struct native_map *native_map__get(const void *map)
{
	struct native_map *m = native_maps;

	while (m && m->map != map)
		m = m->next;
	if (m)
		return m;
	m = calloc(1, sizeof(*m));
	if (!m)
		abort();
	m->map = map;
	m->next = native_maps;
	native_maps = m;
	return m;
}

/* Where the pointer to the row of that key is, or to the end of its chain. */
static inline struct native_row **native_map__slot(const struct native_shape *shape, const void *key)
{
	struct native_row **slot;
	u64 hash = 0, words[4] = {0};

	memcpy(words, key, shape->key_bytes);
	for (int i = 0; i < 4; i++)
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ULL;
	slot = &native_map__get(shape->map)->buckets[(hash >> 40) % NATIVE_BUCKETS];
	while (*slot && memcmp((*slot)->key, words, sizeof(words)))
		slot = &(*slot)->next;
	return slot;
}

/* Makes room, which a map of the kind that forgets has always: for which entry goes there is no promise. */
static inline bool native_map__evict(const struct native_shape *shape)
{
	struct native_map *m = native_map__get(shape->map);
	struct native_row *row = NULL;

	if (shape->type != BPF_MAP_TYPE_LRU_HASH)
		return false;
	for (u32 i = 0; !row; i++) {
		row = m->buckets[i];
		if (row)
			m->buckets[i] = row->next;
	}
	free(row);
	m->cnt--;
	return true;
}

static inline int native_map__update(const struct native_shape *shape, const void *key, const void *value, u64 flags)
{
	struct native_row **slot = native_map__slot(shape, key), *row = *slot;

	if (row && flags == BPF_NOEXIST)
		return -EEXIST;
	if (!row && flags == BPF_EXIST)
		return -ENOENT;
	if (!row) {
		if (native_map__get(shape->map)->cnt >= shape->max_entries && !native_map__evict(shape))
			return -E2BIG;
		row = calloc(1, sizeof(*row) + shape->value_bytes);
		if (!row)
			abort();
		memcpy(row->key, key, shape->key_bytes);
		*slot = row;
		native_map__get(shape->map)->cnt++;
	}
	if (value)
		memcpy(row->value, value, shape->value_bytes);
	return 0;
}

static inline void *native_map__lookup(const struct native_shape *shape, const void *key)
{
	bool array = shape->type == BPF_MAP_TYPE_ARRAY || shape->type == BPF_MAP_TYPE_PERCPU_ARRAY;
	struct native_row *row;

	if (array) {
		if (*(const u32 *)key >= shape->max_entries)
			return NULL;
		native_map__update(shape, key, NULL, BPF_NOEXIST);
	}
	row = *native_map__slot(shape, key);
	return row ? row->value : NULL;
}

static inline int native_map__delete(const struct native_shape *shape, const void *key)
{
	struct native_row **slot = native_map__slot(shape, key), *row = *slot;

	if (!row)
		return -ENOENT;
	*slot = row->next;
	free(row);
	native_map__get(shape->map)->cnt--;
	return 0;
}

static inline u32 native_map__cnt(const void *map)
{
	return native_map__get(map)->cnt;
}

/* All rows of a map, in no order. Stops when visit returns false. */
static inline void native_map__each(const void *map, bool (*visit)(const void *key, void *value, void *arg), void *arg)
{
	struct native_map *m = native_map__get(map);

	for (u32 i = 0; i < NATIVE_BUCKETS; i++) {
		for (struct native_row *row = m->buckets[i]; row; row = row->next) {
			if (!visit(row->key, row->value, arg))
				return;
		}
	}
}

/* Takes all rows out of a map. */
static inline void native__forget(const void *map)
{
	struct native_map *m = native_map__get(map);

	for (u32 i = 0; m->cnt && i < NATIVE_BUCKETS; i++) {
		while (m->buckets[i]) {
			struct native_row *row = m->buckets[i];

			m->buckets[i] = row->next;
			m->cnt--;
			free(row);
		}
	}
}

static inline void native__reset(void)
{
	while (native_maps) {
		struct native_map *m = native_maps;

		native__forget(m->map);
		native_maps = m->next;
		free(m);
	}
	free(native.ring);
	memset(&native, 0, sizeof(native));
}

/* A queue, of values that differ: in no order. */
#define NATIVE_QUEUE(m, v)                                                                                    \
	(&(struct native_shape){(m), NATIVE_NUMBER((m)->type), NATIVE_NUMBER((m)->max_entries), sizeof(*(v)), \
				sizeof(*(v))})

static inline int native_queue__pop(const void *map, void *value, u32 bytes)
{
	struct native_shape shape = {map, BPF_MAP_TYPE_QUEUE, ~0u, bytes, bytes};
	struct native_map *m = native_map__get(map);

	for (u32 i = 0; i < NATIVE_BUCKETS; i++) {
		if (!m->buckets[i])
			continue;
		memcpy(value, m->buckets[i]->value, bytes);
		return native_map__delete(&shape, value);
	}
	return -ENOENT;
}

/* ---- helpers ---- */

#define bpf_map_lookup_elem(m, k)        native_map__lookup(NATIVE_SHAPE(m), k)
#define bpf_map_update_elem(m, k, v, fl) native_map__update(NATIVE_SHAPE(m), k, v, fl)
#define bpf_map_delete_elem(m, k)        native_map__delete(NATIVE_SHAPE(m), k)
#define bpf_task_storage_get(m, task, v, fl)                                                                          \
	native__task_storage(&(struct native_shape){(m), NATIVE_NUMBER((m)->type), ~0u, sizeof(struct task_struct *), \
						    sizeof(*(m)->value)},                                             \
			     task, fl)
#define bpf_ringbuf_output(m, data, bytes, fl) native__send(data, bytes)
#define bpf_ringbuf_reserve(m, bytes, fl)      native__reserve(bytes)
#define bpf_ringbuf_submit(data, fl)           native__submit(data)
#define __ksym
#define bpf_get_attach_cookie(ctx)   ((void)(ctx), native.cookie)
#define bpf_get_current_task_btf()   (native.task)
#define bpf_get_current_pid_tgid()   ((u64)native.task->tgid << 32 | (u32)native.task->pid)
#define bpf_map_pop_elem(m, v)       native_queue__pop(m, v, sizeof(*(v)))
#define bpf_map_push_elem(m, v, fl)  native_map__update(NATIVE_QUEUE(m, v), v, v, BPF_ANY)
#define bpf_loop(cnt, step, ctx, fl) native__loop(cnt, (long (*)(u32, void *))(void *)(step), ctx)
#define bpf_task_pt_regs(task)       ((void)(task), native.user)
#define bpf_ksym_exists(function)    true
#define bpf_tail_call(ctx, m, index) ((void)(m)) /* the array is empty */

static inline long native__loop(u32 cnt, long (*step)(u32 i, void *ctx), void *ctx)
{
	u32 i = 0;

	while (i < cnt && !step(i++, ctx))
		;
	return i;
}

static inline void *native__task_storage(const struct native_shape *shape, struct task_struct *task, u64 flags)
{
	if (native.storage_failures) {
		native.storage_failures--;
		return NULL;
	}
	if (flags & BPF_LOCAL_STORAGE_GET_F_CREATE)
		native_map__update(shape, &task, NULL, BPF_NOEXIST);
	return native_map__lookup(shape, &task);
}

static inline u64 bpf_ktime_get_ns(void)
{
	return native.now_ns += native.tick_ns;
}

static inline u32 bpf_get_prandom_u32(void)
{
	native.random = native.random * 6364136223846793005ULL + 1442695040888963407ULL;
	return native.random >> 32;
}

static inline long bpf_probe_read_kernel(void *to, u32 bytes, const void *from)
{
	memcpy(to, from, bytes);
	return 0;
}

static inline bool native__read(void *to, u32 bytes, u64 from)
{
	struct iovec local = {to, bytes}, remote = {(void *)from, bytes};

	return process_vm_readv(native.memory_pid ? native.memory_pid : getpid(), &local, 1, &remote, 1, 0) ==
	       (ssize_t)bytes;
}

static inline long bpf_probe_read_user(void *to, u32 bytes, const void *from)
{
	u64 random = native.corrupt ? native.corrupt() : 0;

	native.reads++;
	if (!bytes)
		return 0;
	if ((native.memory ? native.memory : native__read)(to, bytes, (u64)from)) {
		if (random % 64 == 1) /* one read in so many has a byte wrong */
			((u8 *)to)[(random >> 8) % bytes] ^= random >> 40 | 1;
		return 0;
	}
	memset(to, 0, bytes);
	return -EFAULT;
}

/* Its length with the NUL, which a cut one has too. */
static inline long bpf_probe_read_user_str(char *to, u32 bytes, const void *from)
{
	u64 reads = native.reads;
	u32 n = 0;

	do {
		if (bpf_probe_read_user(to + n, 1, (const char *)from + n))
			return -EFAULT;
	} while (to[n++] && n < bytes);
	to[n - 1] = 0;
	native.reads = reads + 1;
	return n;
}

static inline int native__send(const void *data, u64 bytes)
{
	if (native.ring_full)
		return -EAGAIN;
	if (native.ring_bytes + bytes > native.ring_room) {
		native.ring_room = 2 * (native.ring_bytes + bytes);
		native.ring = realloc(native.ring, native.ring_room);
		if (!native.ring)
			abort();
	}
	memcpy(native.ring + native.ring_bytes, data, bytes);
	native.ring_bytes += bytes;
	return 0;
}

/* All records that were sent are read, and no longer counted. */
static inline void native__empty_ring(void)
{
	native.ring_bytes = 0;
	memset(&native.found, 0, sizeof(native.found));
}

static inline void *native__reserve(u64 bytes)
{
	u64 *record = native.ring_full ? NULL : malloc(sizeof(u64) + bytes);

	if (record)
		*record++ = bytes;
	return record;
}

static inline void native__submit(void *data)
{
	u64 *record = (u64 *)data - 1;

	native__send(data, *record);
	free(record);
}

/* Sets a knob (const volatile, so in read-only memory) as the loader does. */
#define native__set_knob(knob, value) native__set_bytes(knob, value, sizeof(*(knob)))

static inline void native__set_bytes(const volatile void *knob, u64 value, size_t bytes)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE), start = (u64)knob & ~(page - 1);

	if (mprotect((void *)start, (u64)knob + bytes - start, PROT_READ | PROT_WRITE))
		abort();
	memcpy((void *)(u64)knob, &value, bytes);
}

/* The programs, which nothing else declares. */
int probe(struct pt_regs *ctx);
int op_enter(struct pt_regs *ctx);
int node_enter(struct pt_regs *ctx);
int boxed_enter(struct pt_regs *ctx);
int op_exit(struct pt_regs *ctx);
int op_memory(struct pt_regs *ctx);
int exact(struct pt_regs *ctx);
int gpu_enter(struct pt_regs *ctx);
int gpu_exit(struct pt_regs *ctx);
int exact_exit(struct task_struct *task);
int exact_exec(struct task_struct *task);
int process_fork(struct task_struct *parent, struct task_struct *child);
int process_exec(struct task_struct *task);
int process_exit(struct task_struct *task);
int sample_timer(struct bpf_perf_event_data *ctx);
int sample_switch(bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state);
int sample_switch_later(bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state);
int sample_waking(struct task_struct *task);
int sample_threads(struct bpf_iter__task *ctx);
int syscall_enter(struct pt_regs *regs, long number);
int syscall_exit(struct pt_regs *regs, long result);
int page_added(struct folio *folio);
int syscall_unfinished(struct bpf_iter__task *ctx);

#endif
