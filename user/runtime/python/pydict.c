/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads dicts in a process, where anything may lie at an address. No state.
 *
 * A dict (CPython Include/cpython/dictobject.h, the same from 3.8 to 3.15) leads to its keys object
 * (Objects/dict-common.h, from 3.11 Include/internal/pycore_dict.h): a header, a hash table of
 * indices, and the entries in the order of insertion. The process's hashes are salted, so a key is
 * found by a look at each.
 */
#include "user/runtime/python/pydict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "user/proc/deputy.h"
#include "user/proc/process.h"
#include "user/runtime/python/pyobject.h"
#include "user/runtime/python/pythread.h"

#define DICT_ENTRIES_MAX 65536 /* a job has imported some 3,000 modules */
#define BATCH            512   /* keys by one system call; IOV_MAX is 1,024 */
#define MINOR_LOG2_KEYS  11    /* from this minor version on, the header has logarithms */
#define MODULE_DICT      16    /* PyModuleObject.md_dict (CPython Objects/moduleobject.c), without py_layout__longer */

struct dict_head {
	uint64_t used, version, keys, values; /* of a dict, behind its object header */
};

#define DICT_HEAD_AT 16

/* The header of a keys object. */
union keys_head {
	struct {
		uint64_t refcnt;
		int64_t size; /* of the hash table */
		uint64_t lookup;
		int64_t usable, entry_cnt;
	} until_310;
	struct {
		uint64_t refcnt;
		uint8_t log2_size, log2_index_bytes;
		uint8_t kind; /* 0: an entry has its hash */
		uint8_t mutex;
		uint32_t version;
		int64_t usable, entry_cnt;
	} from_311;
};

struct entries {
	uint64_t at; /* address of the first */
	size_t cnt;
	size_t bytes; /* of one; the key and the value are the last 16 */
};

static int64_t index_bytes(int64_t size)
{
	return size <= 0xff ? size : size <= 0xffff ? size * 2 : size <= 0xffffffff ? size * 4 : size * 8;
}

static int read_head(pid_t pid, const struct py_layout *layout, uint64_t dict, struct dict_head *out)
{
	if (!py_object__is(pid, layout, dict, "dict"))
		return -EINVAL;
	return process__read_memory(pid, dict + DICT_HEAD_AT + py_layout__longer(layout), out, sizeof(*out));
}

static int find_entries(pid_t pid, const struct py_layout *layout, uint64_t dict, struct entries *out)
{
	struct dict_head head;
	union keys_head keys;
	int64_t cnt, size;
	int err = read_head(pid, layout, dict, &head);

	if (!err && head.values)
		err = -EINVAL;
	err = err ?: process__read_memory(pid, head.keys, &keys, sizeof(keys));
	if (err)
		return err;
	if (layout->minor >= MINOR_LOG2_KEYS) {
		if (keys.from_311.log2_index_bytes > 32)
			return -EINVAL;
		cnt = keys.from_311.entry_cnt;
		size = 1LL << keys.from_311.log2_index_bytes;
		out->at = head.keys + sizeof(keys.from_311) + size;
		out->bytes = keys.from_311.kind ? 16 : 24;
	} else {
		cnt = keys.until_310.entry_cnt;
		size = keys.until_310.size;
		if (size < 0 || size > DICT_ENTRIES_MAX * 4)
			return -EINVAL;
		out->at = head.keys + sizeof(keys.until_310) + index_bytes(size);
		out->bytes = 24;
	}
	if (cnt < 0 || cnt > DICT_ENTRIES_MAX)
		return -EINVAL;
	out->cnt = (size_t)cnt;
	return 0;
}

/* In the deputy or not. Leaves out what was deleted. Returns how many. */
static int read_entries(pid_t pid, const struct entries *entries, struct py_dict_entry *out, size_t most)
{
	size_t cnt = entries->cnt, have = 0;
	uint8_t *bytes = malloc(cnt * entries->bytes + 1);
	int err = !bytes ? -ENOMEM : cnt ? process__read_memory(pid, entries->at, bytes, cnt * entries->bytes) : 0;

	for (size_t i = 0; !err && i < cnt && have < most; i++) {
		memcpy(&out[have], bytes + (i + 1) * entries->bytes - sizeof(*out), sizeof(*out));
		have += out[have].key && out[have].value;
	}
	free(bytes);
	return err ?: (int)have;
}

int py_dict__entries(pid_t pid, const struct py_layout *layout, uint64_t dict, struct py_dict_entry *out, size_t most)
{
	struct entries entries;

	return find_entries(pid, layout, dict, &entries) ?: read_entries(pid, &entries, out, most);
}

int64_t py_dict__len(pid_t pid, const struct py_layout *layout, uint64_t dict)
{
	struct dict_head head;
	int err = read_head(pid, layout, dict, &head);

	return err ?: head.used > INT32_MAX ? -EINVAL : (int64_t)head.used;
}

/* ---- a key ---- */

struct key_request {
	pid_t pid;
	struct py_layout layout;
	uint64_t dict;
	char key[PY_KEY_MAX + 1];
	bool (*is)(const char *key); /* NULL: `key` */
};

#define KEYS_KEPT    4
#define STR_HEAD_MAX 64 /* sizeof(PyASCIIObject) is 40 to 56 */
/* An ASCII str that may be the key, with the 0 behind it. */
#define STR_BYTES (STR_HEAD_MAX + PY_KEY_MAX + 1)

static bool is_key(const struct key_request *r, const uint8_t *str)
{
	const struct py_layout *layout = &r->layout;
	char key[PY_KEY_MAX + 1] = "";
	uint64_t length;
	uint32_t state;

	memcpy(&length, str + layout->str_length, sizeof(length));
	memcpy(&state, str + layout->str_state, sizeof(state));
	if (length > PY_KEY_MAX || !(state >> layout->str_ascii_shift & 1))
		return false;
	if (!r->is)
		return length == strlen(r->key) && !memcmp(str + layout->str_ascii_data, r->key, length);
	memcpy(key, str + layout->str_ascii_data, length);
	return r->is(key);
}

/*
 * Finds the key in a batch of entries; returns its index, or cnt. A text that is not readable, since
 * the process has freed it meanwhile, is another one.
 */
static size_t find_in_batch(const struct key_request *r, const struct py_dict_entry *entries, size_t cnt)
{
	size_t bytes = r->layout.str_ascii_data + (r->is ? PY_KEY_MAX : strlen(r->key)) + 1, at = 0;
	uint8_t strings[BATCH][STR_BYTES];
	struct iovec local[BATCH], remote[BATCH];

	for (size_t i = 0; i < cnt; i++) {
		local[i] = (struct iovec){strings[i], bytes};
		remote[i] = (struct iovec){(void *)(uintptr_t)entries[i].key, bytes};
	}
	while (at < cnt) {
		ssize_t got = process_vm_readv(r->pid, local + at, cnt - at, remote + at, cnt - at, 0);
		size_t whole = got > 0 ? (size_t)got / bytes : 0;

		for (size_t i = at; i < at + whole; i++)
			if (is_key(r, strings[i]))
				return i;
		at += whole + 1;
	}
	return cnt;
}

/*
 * Where the search for a key begins: where it was found last. The jobs of a host mostly import the same
 * modules in the same order.
 */
static _Thread_local struct found_key {
	char key[PY_KEY_MAX + 1];
	int batch;
} found_keys[KEYS_KEPT];

/* NULL: it is not among them. */
static struct found_key *find_found_key(const char *key)
{
	for (size_t i = 0; i < KEYS_KEPT; i++)
		if (!strcmp(found_keys[i].key, key))
			return &found_keys[i];
	return NULL;
}

static void keep_found_key(const char *key, int batch)
{
	static _Thread_local size_t next;
	struct found_key *found = find_found_key(key) ?: &found_keys[next++ % KEYS_KEPT];

	strcpy(found->key, key);
	found->batch = batch;
}

static int find_in_deputy(const void *in, struct deputy_out *out)
{
	const struct key_request *r = in;
	struct py_dict_entry *entries = (void *)(out->bytes + sizeof(*entries));
	const struct found_key *last = find_found_key(r->key);
	int cnt = r->layout.str_ascii_data > STR_HEAD_MAX
			  ? -EINVAL
			  : py_dict__entries(r->pid, &r->layout, r->dict, entries, DICT_ENTRIES_MAX);

	for (int i = 0, first = last ? last->batch : 0, batches = (cnt + BATCH - 1) / BATCH; i < batches; i++) {
		int at = (i + first) % batches * BATCH;
		size_t batch = cnt - at < BATCH ? cnt - at : BATCH, found = find_in_batch(r, entries + at, batch);

		if (found == batch)
			continue;
		keep_found_key(r->key, at / BATCH);
		memcpy(out->bytes, &entries[at + found].value, sizeof(uint64_t));
		out->size = sizeof(uint64_t);
		return 0;
	}
	return cnt < 0 ? cnt : -ENOENT;
}

int py_dict__find(pid_t pid, const struct py_layout *layout, uint64_t dict, const char *key, uint64_t *value)
{
	struct key_request request = {.pid = pid, .layout = *layout, .dict = dict};
	const struct deputy_out *answer;
	int err;

	if (strlen(key) > PY_KEY_MAX)
		return -EINVAL;
	strcpy(request.key, key);
	err = deputy__run(pid, find_in_deputy, &request, sizeof(request), &answer);
	if (!err)
		memcpy(value, answer->bytes, sizeof(*value));
	return err;
}

/* ---- modules ---- */

/* The dict sys.modules of the main interpreter. */
static int find_modules(pid_t pid, const struct python *python, uint64_t *modules)
{
	uint64_t interpreter = py_thread__main_interpreter(pid, python->runtime, python->walk);
	uint32_t at = python->walk[PY_WALK_INTERP_MODULES];

	return interpreter && at ? process__read_memory(pid, interpreter + at, modules, sizeof(*modules)) : -ENOENT;
}

int py_module__variables(pid_t pid, const struct python *python, const char *name, uint64_t *dict)
{
	const struct py_layout *layout = &python->process.layout;
	uint64_t modules, module;
	int err = find_modules(pid, python, &modules) ?: py_dict__find(pid, layout, modules, name, &module);

	if (!err && !py_object__is(pid, layout, module, "module"))
		err = -EINVAL;
	return err
		       ?: process__read_memory(pid, module + MODULE_DICT + py_layout__longer(&python->process.layout),
					       dict, sizeof(*dict));
}

struct modules_request {
	pid_t pid;
	struct python python;
	bool (*is)(const char *name);
	int64_t cnt;
};

/* *out: how many modules there are, if that is another number. */
static int search_modules(const void *in, struct deputy_out *out)
{
	const struct modules_request *r = in;
	struct key_request request = {.pid = r->pid, .layout = r->python.process.layout, .is = r->is};
	int err = find_modules(r->pid, &r->python, &request.dict), found;
	int64_t cnt = err ?: py_dict__len(r->pid, &request.layout, request.dict);

	if (cnt < 0)
		return (int)cnt;
	if (cnt == r->cnt)
		return 0;
	found = find_in_deputy(&request, out);
	memcpy(out->bytes, &cnt, sizeof(cnt));
	out->size = sizeof(cnt);
	return found == -ENOENT ? 0 : found ?: 1;
}

int py_modules__any(pid_t pid, const struct python *python, bool (*is)(const char *name), int64_t *cnt)
{
	const struct modules_request request = {pid, *python, is, *cnt};
	const struct deputy_out *answer;
	int found = deputy__run(pid, search_modules, &request, sizeof(request), &answer);

	if (found >= 0 && answer->size == sizeof(*cnt))
		memcpy(cnt, answer->bytes, sizeof(*cnt));
	return found;
}
