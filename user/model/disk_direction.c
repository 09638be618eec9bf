// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/disk_direction.h"

#include "include/waits.h"
#include "user/lib/compare.h"
#include "user/lib/search.h"

#define LEAST_BYTES 65536         /* fewer are a log, or a module that is imported */
#define ONE_SIDED   10            /* so many times as many bytes in one direction as in the other */
#define LOOKS_APART 3000000000ULL /* farther from the wait than that, a look says nothing of it */

/* What a process read and wrote from before a wait until after it. */
struct traffic {
	uint64_t read_bytes, written_bytes, major_faults;
};

static int compare_look(const struct rec_resources *look, uint32_t pid, uint64_t time_ns)
{
	return look->pid != pid ? COMPARE(look->pid, pid) : COMPARE(look->time_ns, time_ns);
}

static uint64_t difference(uint64_t from, uint64_t to)
{
	return to > from ? to - from : 0;
}

/* false: it is not known. */
static bool find_traffic(const struct rec_resources *looks, size_t cnt, const struct sample *wait, struct traffic *out)
{
	uint64_t ns = wait->waits > 1 ? wait->weight_ns / wait->waits : wait->weight_ns;
	uint64_t start_ns = wait->time_ns > ns ? wait->time_ns - ns : 0;
	size_t to = SEARCH(i, 0, cnt, compare_look(&looks[i], wait->pid, wait->time_ns) < 0);
	size_t from = SEARCH(i, 0, cnt, compare_look(&looks[i], wait->pid, start_ns) <= 0);
	const struct rec_resources *first, *last;

	if (!from || to == cnt)
		return false;
	first = &looks[from - 1];
	last = &looks[to];
	if (first->pid != wait->pid || last->pid != wait->pid || !(first->known & last->known & RESOURCES_DISK) ||
	    start_ns - first->time_ns > LOOKS_APART || last->time_ns - wait->time_ns > LOOKS_APART)
		return false;
	out->read_bytes = difference(first->read_bytes, last->read_bytes);
	out->written_bytes = difference(first->written_bytes, last->written_bytes);
	out->major_faults = difference(first->major_faults, last->major_faults);
	return true;
}

/* CAUSE_NONE: in both directions, or hardly any bytes at all. */
static unsigned int only_direction(const struct traffic *traffic)
{
	if (traffic->read_bytes >= LEAST_BYTES && traffic->read_bytes / ONE_SIDED >= traffic->written_bytes)
		return CAUSE_DISK_READ;
	if (traffic->written_bytes >= LEAST_BYTES && traffic->written_bytes / ONE_SIDED >= traffic->read_bytes)
		return CAUSE_DISK_WRITE;
	return CAUSE_NONE;
}

/* What the wait's call leaves open, if the bytes decide it. CAUSE_NONE: it stays as it is. */
static unsigned int decide(const struct sample *wait, const struct traffic *traffic)
{
	uint32_t rule = wait->syscall < 0 ? CAUSE_UNKNOWN : syscall__rule(wait->syscall);
	unsigned int only = only_direction(traffic);

	if (wait->cause == CAUSE_PAGE_FAULT) /* of a page of a file that has to be written before it changes again */
		return wait->file && only == CAUSE_DISK_WRITE && !traffic->major_faults ? only : CAUSE_NONE;
	if (wait->cause == CAUSE_POLL) /* libaio has files alone; a ring may have anything */
		return wait->syscall == SYS_IO_GETEVENTS || wait->syscall == SYS_IO_PGETEVENTS ? only : CAUSE_NONE;
	if (wait->syscall == SYS_CLOSE) /* it writes what is left, if something was written */
		return wait->cause == CAUSE_DISK_WRITE && !traffic->written_bytes ? CAUSE_UNKNOWN : CAUSE_NONE;
	if (wait->cause == CAUSE_DISK_READ &&
	    (rule == CAUSE_UNKNOWN || rule == RULE_COPY || rule == RULE_OPEN || rule == RULE_OPENAT))
		return only;
	return CAUSE_NONE;
}

static bool is_open(const struct sample *wait)
{
	return wait->kind == SAMPLE_WAIT && !wait->resolved &&
	       (wait->cause == CAUSE_PAGE_FAULT || wait->cause == CAUSE_POLL || wait->cause == CAUSE_DISK_READ ||
		wait->cause == CAUSE_DISK_WRITE);
}

void disk_direction__correct(struct samples *samples, struct resources *resources)
{
	size_t cnt;
	const struct rec_resources *looks = resources__samples(resources, &cnt);

	for (size_t i = 0; i < samples__cnt(samples) && cnt; i++) {
		struct sample wait = samples__get(samples, i);
		struct traffic traffic;
		unsigned int cause;

		if (!is_open(&wait) || !find_traffic(looks, cnt, &wait, &traffic))
			continue;
		cause = decide(&wait, &traffic);
		if (cause != CAUSE_NONE)
			samples__set_cause(samples, i, cause);
	}
}
