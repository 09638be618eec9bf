// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Whether a wait was for reads or writes, by what /proc/PID/io counted around it; and where it does not say so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "include/resource_records.h"
#include "include/waits.h"
#include "tests/unit/build_job.h"
#include "user/model/samples.h"

#define S       1000000000ull
#define MIB     1048576ull
#define FADVISE 221 /* which is not in the table of calls */

enum { PID = 7, OTHER = 8 };

static void add_look(struct job *job, uint32_t pid, uint64_t time_ns, uint64_t read, uint64_t written, uint64_t faults)
{
	struct rec_resources record = {.hdr = {.type = REC_RESOURCES, .size = sizeof(record)},
				       .time_ns = time_ns,
				       .pid = pid,
				       .known = RESOURCES_DISK,
				       .read_bytes = read,
				       .written_bytes = written,
				       .major_faults = faults};

	assert_int_equal(add_copy(job, &record), 0);
}

static void add_wait(struct job *job, uint32_t pid, uint64_t time_ns, uint64_t ns, int call, enum wait_cause cause)
{
	struct rec_sample record = {.hdr = {.type = REC_SAMPLE, .size = sizeof(record)},
				    .time_ns = time_ns,
				    .weight_ns = ns,
				    .pid = pid,
				    .tid = pid,
				    .waits = 1,
				    .syscall = call,
				    .kind = SAMPLE_WAIT,
				    .cause = cause,
				    .file = call < 0 ? 99 : 0};

	assert_int_equal(add_copy(job, &record), 0);
}

struct moved {
	uint64_t read, written, faults; /* between the looks before and after the wait */
};

/* What is said of a wait of 0.2 s between two looks. */
static unsigned int cause_of(int call, enum wait_cause cause, struct moved moved)
{
	struct job *job = job__new();
	unsigned int found;

	add_look(job, PID, 10 * S, 5 * MIB, 3 * MIB, 4);
	add_look(job, PID, 11 * S, 5 * MIB + moved.read, 3 * MIB + moved.written, 4 + moved.faults);
	add_look(job, OTHER, 10 * S, 0, 0, 0); /* of which nothing counts */
	add_look(job, OTHER, 11 * S, 900 * MIB, 900 * MIB, 900);
	add_wait(job, PID, 10 * S + S / 2, S / 5, call, cause);
	found = samples__get(job__samples(job), 0).cause;
	job__free(job);
	return found;
}

static const struct moved none = {0}, reads = {50 * MIB, 4096, 9}, writes = {4096, 50 * MIB, 0},
			  both = {50 * MIB, 40 * MIB, 9}, little = {8192, 0, 1};

static void what_the_call_leaves_open_the_bytes_decide(void **state)
{
	static const int calls[] = {SYS_SENDFILE, SYS_COPY_FILE_RANGE, SYS_SPLICE, SYS_MMAP, SYS_MADVISE, FADVISE,
				    SYS_OPEN,     SYS_OPENAT};
	static const int events[] = {SYS_IO_GETEVENTS, SYS_IO_PGETEVENTS};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		assert_int_equal(cause_of(calls[i], CAUSE_DISK_READ, writes), CAUSE_DISK_WRITE);
		assert_int_equal(cause_of(calls[i], CAUSE_DISK_READ, reads), CAUSE_DISK_READ);
		assert_int_equal(cause_of(calls[i], CAUSE_DISK_READ, both), CAUSE_DISK_READ);
		assert_int_equal(cause_of(calls[i], CAUSE_DISK_READ, none), CAUSE_DISK_READ);
	}
	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
		assert_int_equal(cause_of(events[i], CAUSE_POLL, writes), CAUSE_DISK_WRITE);
		assert_int_equal(cause_of(events[i], CAUSE_POLL, reads), CAUSE_DISK_READ);
		assert_int_equal(cause_of(events[i], CAUSE_POLL, both), CAUSE_POLL);
		assert_int_equal(cause_of(events[i], CAUSE_POLL, little), CAUSE_POLL);
	}
}

static void a_close_writes_only_what_was_written(void **state)
{
	assert_int_equal(cause_of(SYS_CLOSE, CAUSE_DISK_WRITE, writes), CAUSE_DISK_WRITE);
	assert_int_equal(cause_of(SYS_CLOSE, CAUSE_DISK_WRITE, both), CAUSE_DISK_WRITE);
	assert_int_equal(cause_of(SYS_CLOSE, CAUSE_DISK_WRITE, none), CAUSE_UNKNOWN);
	assert_int_equal(cause_of(SYS_CLOSE, CAUSE_DISK_WRITE, (struct moved){50 * MIB, 0, 0}), CAUSE_UNKNOWN);
}

static void a_fault_of_a_mapped_file_may_wait_for_writes(void **state)
{
	assert_int_equal(cause_of(-1, CAUSE_PAGE_FAULT, writes), CAUSE_DISK_WRITE);
	assert_int_equal(cause_of(-1, CAUSE_PAGE_FAULT, (struct moved){0, 50 * MIB, 3}), CAUSE_PAGE_FAULT);
	assert_int_equal(cause_of(-1, CAUSE_PAGE_FAULT, reads), CAUSE_PAGE_FAULT);
	assert_int_equal(cause_of(-1, CAUSE_PAGE_FAULT, none), CAUSE_PAGE_FAULT);
}

static void what_the_call_says_stays(void **state)
{
	assert_int_equal(cause_of(SYS_READ, CAUSE_DISK_READ, writes), CAUSE_DISK_READ);
	assert_int_equal(cause_of(SYS_PREAD64, CAUSE_DISK_READ, writes), CAUSE_DISK_READ);
	assert_int_equal(cause_of(SYS_STATX, CAUSE_DISK_READ, writes), CAUSE_DISK_READ);
	assert_int_equal(cause_of(SYS_WRITE, CAUSE_DISK_WRITE, reads), CAUSE_DISK_WRITE);
	assert_int_equal(cause_of(SYS_RENAME, CAUSE_DISK_WRITE, reads), CAUSE_DISK_WRITE);
	assert_int_equal(cause_of(SYS_FSYNC, CAUSE_FSYNC, reads), CAUSE_FSYNC);
	assert_int_equal(cause_of(SYS_FTRUNCATE, CAUSE_DISK_WRITE, none), CAUSE_DISK_WRITE);
	assert_int_equal(cause_of(SYS_POLL, CAUSE_POLL, reads), CAUSE_POLL);
}

/* A ring is waited for `waits` times between two looks, beside another wait of the process. */
static unsigned int cause_of_ring(struct moved moved, uint32_t waits, int beside, enum wait_cause beside_cause)
{
	struct job *job = job__new();
	unsigned int found;

	add_look(job, PID, 10 * S, 5 * MIB, 3 * MIB, 4);
	add_look(job, PID, 11 * S, 5 * MIB + moved.read, 3 * MIB + moved.written, 4 + moved.faults);
	for (uint32_t i = 0; i < waits; i++)
		add_wait(job, PID, 10 * S + S / 2 + i, 1000, SYS_IO_URING_ENTER, CAUSE_POLL);
	add_wait(job, PID, 10 * S + S / 3, S / 5, beside, beside_cause);
	add_wait(job, OTHER, 10 * S + S / 3, S / 5, SYS_READ, CAUSE_DISK_READ);
	found = samples__get(job__samples(job), 0).cause;
	job__free(job);
	return found;
}

static void a_ring_has_what_nothing_else_waits_for(void **state)
{
	assert_int_equal(cause_of_ring(reads, 100, SYS_NANOSLEEP, CAUSE_SLEEP), CAUSE_DISK_READ);
	assert_int_equal(cause_of_ring(writes, 100, SYS_NANOSLEEP, CAUSE_SLEEP), CAUSE_DISK_WRITE);
	assert_int_equal(cause_of_ring(both, 100, SYS_NANOSLEEP, CAUSE_SLEEP), CAUSE_POLL);
	assert_int_equal(cause_of_ring(little, 1, SYS_NANOSLEEP, CAUSE_SLEEP), CAUSE_POLL);
	assert_int_equal(cause_of_ring(none, 1, SYS_NANOSLEEP, CAUSE_SLEEP), CAUSE_POLL);
	/* more waits than there can have been blocks: for sockets, say */
	assert_int_equal(cause_of_ring((struct moved){MIB / 4, 0, 0}, 100, SYS_NANOSLEEP, CAUSE_SLEEP), CAUSE_POLL);
	/* the bytes may be those of another call, of a page fault, or of libaio */
	assert_int_equal(cause_of_ring(reads, 100, SYS_READ, CAUSE_DISK_READ), CAUSE_POLL);
	assert_int_equal(cause_of_ring(writes, 100, SYS_FSYNC, CAUSE_FSYNC), CAUSE_POLL);
	assert_int_equal(cause_of_ring(reads, 100, -1, CAUSE_PAGE_FAULT), CAUSE_POLL);
	assert_int_equal(cause_of_ring(reads, 100, SYS_IO_GETEVENTS, CAUSE_POLL), CAUSE_POLL);
}

static unsigned int cause_between(uint64_t first_ns, uint64_t last_ns, uint64_t time_ns, uint64_t ns, bool known)
{
	struct job *job = job__new();
	unsigned int found;

	if (first_ns)
		add_look(job, PID, first_ns, 0, 0, 0);
	if (last_ns && known)
		add_look(job, PID, last_ns, 0, 50 * MIB, 0);
	add_wait(job, PID, time_ns, ns, SYS_SENDFILE, CAUSE_DISK_READ);
	found = samples__get(job__samples(job), 0).cause;
	job__free(job);
	return found;
}

static void looks_have_to_be_around_the_wait(void **state)
{
	assert_int_equal(cause_between(10 * S, 11 * S, 10 * S + S / 2, S / 5, true), CAUSE_DISK_WRITE);
	/* a long wait, with looks just before and after */
	assert_int_equal(cause_between(10 * S, 40 * S, 39 * S, 28 * S, true), CAUSE_DISK_WRITE);
	/* too far, none before, none after, none at all, and waits that lie */
	assert_int_equal(cause_between(10 * S, 20 * S, 14 * S, S / 5, true), CAUSE_DISK_READ);
	assert_int_equal(cause_between(10 * S, 11 * S, 10 * S + S / 10, S / 5, true), CAUSE_DISK_READ);
	assert_int_equal(cause_between(10 * S, 11 * S, 12 * S, S / 5, true), CAUSE_DISK_READ);
	assert_int_equal(cause_between(10 * S, 0, 10 * S + S / 2, S / 5, false), CAUSE_DISK_READ);
	assert_int_equal(cause_between(0, 0, 10 * S, S / 5, false), CAUSE_DISK_READ);
	assert_int_equal(cause_between(10 * S, 11 * S, 10 * S + S / 2, UINT64_MAX, true), CAUSE_DISK_READ);
	assert_int_equal(cause_between(10 * S, UINT64_MAX, UINT64_MAX, 1, true), CAUSE_DISK_READ);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_call_leaves_open_the_bytes_decide),
		cmocka_unit_test(a_close_writes_only_what_was_written),
		cmocka_unit_test(a_fault_of_a_mapped_file_may_wait_for_writes),
		cmocka_unit_test(what_the_call_says_stays),
		cmocka_unit_test(a_ring_has_what_nothing_else_waits_for),
		cmocka_unit_test(looks_have_to_be_around_the_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
