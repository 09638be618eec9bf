// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The ring of GPU activities: the input is the control words that a target writes (seen: right for an even first byte),
 * then the ring's bytes from where its window starts. What is read becomes records.
 */
#include <fcntl.h>

#include "tests/fuzz/fuzz.h"
#include "user/session/sources/gpu_reader.h"
#include "user/session/sources/gpu_ring.h"
#include "user/session/state.h"

#define BYTES (GPU_RING_CONTROL + GPU_RING_BYTES)

static struct gpu_ring_control *control;
static uint8_t *bytes;
static int shared = -1;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	shared = memfd_create(GPU_RING_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	FUZZ_CHECK(shared >= 0 && !ftruncate(shared, BYTES));
	control = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
	FUZZ_CHECK(control != MAP_FAILED && !fcntl(shared, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
	bytes = (uint8_t *)control + GPU_RING_CONTROL;
	return 0;
}

static int check_record(const struct rec_hdr *record, void *ctx)
{
	FUZZ_CHECK(record->size >= sizeof(*record) && record->size % 8 == 0);
	return 0;
}

struct input {
	uint8_t unseen, pad[3];
	uint32_t state;
	uint64_t start, length, full;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct session session = {.sink = check_record};
	struct target target = {.process = {.pid = 1, .nspid = 1}};
	struct gpu_window window = {.requested_ns = 1, .begun_ns = 1};
	struct gpu_reader reader = {0};
	struct gpu_ring_status status;
	struct gpu_ring *ring;
	struct input input;

	if (size < sizeof(input))
		return 0;
	memcpy(&input, data, sizeof(input));
	*control = (struct gpu_ring_control){.magic = GPU_RING_MAGIC,
					     .version = GPU_RING_VERSION,
					     .pid = 1,
					     .ring_bytes = GPU_RING_BYTES,
					     .state = input.state,
					     .full = input.full,
					     .start = input.start,
					     .head = input.start + size - sizeof(input)};
	if (input.unseen & 2)
		control->head = input.start + input.length;
	for (size_t i = sizeof(input); i < size; i++)
		bytes[(input.start + i - sizeof(input)) & (GPU_RING_BYTES - 1)] = data[i];
	FUZZ_CHECK(!gpu_ring__of_file(fcntl(shared, F_DUPFD_CLOEXEC, 0), 1, &ring));
	gpu_ring__start(ring, ~0u, 1);
	control->seen = control->wanted - (input.unseen & 1);
	gpu_ring__status(ring, &status);
	gpu_reader__drain(&reader, &session, &target, ring, &window);
	gpu_reader__finish(&reader, &session, &target, &window);
	gpu_reader__release(&reader);
	gpu_ring__free(ring);
	return 0;
}
