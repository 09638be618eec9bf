/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Emits the path of a file, as the current process sees it, as a name: climbs from the leaf to the
 * process's root, across mounts, while the file is open. User space would come too late, since a
 * loader closes its file at once.
 */
#ifndef STEPFLAME_BPF_FILE_PATH_H
#define STEPFLAME_BPF_FILE_PATH_H

#include "bpf/name.h"

#define PATH_STEPS    64  /* directories and mounts to climb */
#define COMPONENT_MAX 256 /* bytes; longer than any name of a directory */
#define DELETED       " (deleted)"
#define CUT           "..." /* replaces the first directories */

/*
 * A path under construction. It grows from its last component to its first, from the end of `text`.
 */
struct climb {
	u32 busy; /* a thread on this CPU is using it */
	u32 at;   /* index of the path's first byte */
	u32 cut;
	u32 pad;
	u64 dentry, mnt; /* kernel addresses of where the climb has come to; mnt 0: unknown */
	u64 root, root_mnt;
	char text[REC_NAME_MAX + COMPONENT_MAX]; /* the second part is for the verifier */
	struct name_buffer name;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct climb);
} climbs __weak SEC(".maps");

/* Puts a text in front of the path. False: no room. */
static __always_inline bool climb__put(struct climb *c, const void *text, u32 bytes)
{
	u32 at = c->at;

	if (!bytes) /* BOUND_INDEX would turn an index at the very end into 0 */
		return true;
	if (bytes >= COMPONENT_MAX || at > REC_NAME_MAX || at < bytes + sizeof(CUT) - 1)
		return false;
	bytes = BOUND_INDEX(bytes, COMPONENT_MAX);
	at = BOUND_INDEX(at - bytes, REC_NAME_MAX);
	bpf_probe_read_kernel(c->text + at, bytes, text);
	c->at = at;
	return true;
}

static long climb__step(u32 i, struct climb **climb)
{
	struct climb *c = *climb;
	const struct dentry *dentry = (const void *)c->dentry, *parent;
	const struct vfsmount *mnt = (const void *)c->mnt;
	const struct mount *mount = (const void *)(c->mnt - MOUNT_OFFSET), *around;

	if (c->dentry == c->root && c->mnt == c->root_mnt)
		return 1;
	if (mnt && dentry == BPF_CORE_READ(mnt, mnt_root)) {
		around = BPF_CORE_READ(mount, mnt_parent);
		if (around == mount)
			return 1;
		c->dentry = (u64)BPF_CORE_READ(mount, mnt_mountpoint);
		c->mnt = (u64)around + MOUNT_OFFSET;
		return 0;
	}
	parent = BPF_CORE_READ(dentry, d_parent);
	if (parent == dentry)
		return 1;
	c->cut = !climb__put(c, BPF_CORE_READ(dentry, d_name.name), BPF_CORE_READ(dentry, d_name.len)) ||
		 !climb__put(c, "/", 1);
	c->dentry = (u64)parent;
	return c->cut;
}

/* Emits the path. Returns its name id; 0: failed (a full ring buffer is counted). */
static __always_inline u64 climb__send(struct climb *c)
{
	u32 at = c->at, bytes = REC_NAME_MAX - at, size;
	struct name_buffer *b = &c->name;
	u64 id;

	if (at > REC_NAME_MAX)
		return 0;
	bpf_probe_read_kernel(b->text, bytes, c->text + at);
	id = name__hash(b, bytes, bytes, NAME_UTF8);
	size = sizeof(struct rec_name) + ((bytes + 7) & ~7u);
	if (!id || size > sizeof(struct rec_name) + REC_NAME_MAX)
		return 0;
	b->name.hdr.type = REC_NAME;
	b->name.hdr.flags = 0;
	b->name.hdr.size = size;
	b->name.id = id;
	if (!bpf_ringbuf_output(&ring, &b->name, size, BPF_RB_NO_WAKEUP))
		return id;
	count(CNT_RING_FULL);
	return 0;
}

/*
 * Emits the path of a dentry in a mount (kernel addresses), as a name. mnt 0: unknown, so the path
 * starts at the root of its file system. Returns the name id; 0: not available now.
 */
__weak __noinline u64 file_path__send(u64 dentry, u64 mnt)
{
	static const u32 zero = 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct climb *c = bpf_map_lookup_elem(&climbs, &zero);
	const struct dentry *leaf = (const void *)dentry;
	u64 id = 0;

	if (!c || !dentry || __sync_lock_test_and_set(&c->busy, 1))
		return 0;
	c->at = REC_NAME_MAX;
	c->cut = 0;
	c->dentry = dentry;
	c->mnt = mnt;
	c->root = (u64)BPF_CORE_READ(task, fs, root.dentry);
	c->root_mnt = (u64)BPF_CORE_READ(task, fs, root.mnt);
	if (BPF_CORE_READ(leaf, d_parent) == leaf) /* in no directory: a memfd */
		climb__put(c, BPF_CORE_READ(leaf, d_name.name), BPF_CORE_READ(leaf, d_name.len));
	else if (!BPF_CORE_READ(leaf, d_hash.pprev))
		climb__put(c, DELETED, sizeof(DELETED) - 1);
	if (bpf_loop(PATH_STEPS, climb__step, &c, 0) == PATH_STEPS || c->cut) {
		u32 at = c->at - (sizeof(CUT) - 1);

		if (at < REC_NAME_MAX)
			__builtin_memcpy(&c->text[BOUND_INDEX(at, REC_NAME_MAX)], CUT, sizeof(CUT) - 1);
		c->at = at;
		count(CNT_NAME_CUT);
	}
	if (c->at < REC_NAME_MAX)
		id = climb__send(c);
	c->busy = 0;
	return id;
}

#endif
