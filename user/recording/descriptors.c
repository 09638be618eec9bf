// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The fields of each record type, and the tables made of them. */
#include "user/recording/descriptors.h"

#include "user/recording/dropped_steps.h"
#include "user/recording/recording.h"
#include "user/recording/step_blocks.h"

/* X(field, kind) for a value and A(field, kind) for an array, in the order of the struct. */

/* clang-format off */
#define REC_HOST_FIELDS(X, A) \
	X(monotonic_ns, TIME) X(realtime_ns, NUMBER) X(cpus, NUMBER) X(pad, PAD) X(version, TEXT) \
	X(hostname, TEXT) X(kernel, TEXT)
#define REC_TARGET_FIELDS(X, A) \
	X(pid, PID) X(nspid, NUMBER) X(role, NUMBER) X(rank, SIGNED) X(parent_pid, PID) X(pad, PAD) \
	X(python, TEXT) X(torch, TEXT) X(jax, TEXT) X(command, TEXT)
#define REC_NAME_FIELDS(X, A) \
	X(id, ID) X(encoding, NUMBER) X(cut, NUMBER) X(bytes, NUMBER) X(whole_bytes, NUMBER)
#define REC_PROC_FIELDS(X, A) \
	X(time_ns, TIME) X(event, NUMBER) X(pid, PID) X(parent_pid, PID) X(exit_code, SIGNED) X(comm, TEXT)
#define REC_WINDOW_FIELDS(X, A) \
	X(start_ns, TIME) X(end_ns, TIME) X(steps, NUMBER) X(step_rule, NUMBER) X(pad, PAD)
#define REC_AGG_FIELDS(X, A) \
	X(key.pid, PID) X(key.kind, NUMBER) X(key.name, ID) X(key.parent, ID) X(val.calls, NUMBER) \
	X(val.total_ns, NUMBER) X(val.self_ns, NUMBER) X(val.min_ns, NUMBER) X(val.max_ns, NUMBER) \
	X(val.first_ns, TIME) A(val.hist, NUMBER)
#define REC_COUNTER_FIELDS(X, A) \
	X(value, NUMBER) X(name, TEXT)
#define REC_COST_FIELDS(X, A) \
	X(hits, NUMBER) X(busiest_hits, NUMBER) X(hit_ns, NUMBER) X(attach_ns, NUMBER) X(detach_ns, NUMBER) \
	X(own_cpu_ns, NUMBER) X(own_rss_bytes, NUMBER) X(busiest_sampler_ns, NUMBER) \
	X(busiest_calls, NUMBER) X(call_ns, NUMBER)
#define REC_NOTE_FIELDS(X, A) \
	X(bytes, NUMBER) X(pad, PAD)
#define REC_OP_FIELDS(X, A) \
	X(key.pid, PID) X(key.kind, NUMBER) X(key.name, ID) X(key.action, ID) X(key.group, ID) \
	X(val.calls, NUMBER) X(val.total_ns, NUMBER) X(val.self_ns, NUMBER) A(val.self_bytes, SIGNED) \
	A(val.total_bytes, SIGNED)
#define REC_OP_GROUP_FIELDS(X, A) \
	X(id, ID) X(source, ID) X(module, ID) X(word_cnt, NUMBER) X(source_offset, NUMBER)
#define REC_OP_WINDOW_FIELDS(X, A) \
	X(pid, PID) X(index, NUMBER) X(first_step, NUMBER) X(steps, NUMBER) X(start_ns, TIME) \
	X(end_ns, TIME) X(cut, NUMBER)
#define REC_SPANS_FIELDS(X, A) \
	X(pid, PID) X(tid, TID) X(span_cnt, NUMBER) X(bytes, NUMBER) X(base_ns, TIME)
#define REC_SPAN_FIELDS(X, A) \
	X(pid, PID) X(tid, TID) X(start_ns, TIME) X(duration_ns, NUMBER) X(name, ID) X(group, ID) \
	X(sequence, SIGNED) X(kind, NUMBER) X(depth, NUMBER) X(pad, PAD)
#define REC_CODE_FIELDS(X, A) \
	X(id, ID) X(file, ID) X(name, ID) X(line_table, NUMBER) X(pid, PID) X(first_line, NUMBER) \
	X(line_cnt, NUMBER) X(table_bytes, SIGNED)
#define REC_STACK_FIELDS(X, A) \
	X(id, ID) X(frame_cnt, NUMBER) X(cut, NUMBER)
#define REC_PATH_FIELDS(X, A) \
	X(id, ID) X(span_cnt, NUMBER) X(pad, PAD)
#define REC_SAMPLE_FIELDS(X, A) \
	X(time_ns, TIME) X(weight_ns, NUMBER) X(stack, ID) X(path, ID) X(native, ID) X(kernel, ID) \
	X(pid, PID) X(tid, TID) X(step, NUMBER) X(waits, NUMBER) X(syscall, SIGNED) X(kind, NUMBER) \
	X(cause, NUMBER) X(waker_pid, PID) X(waker_tid, TID) X(ran_pid, PID) X(file, ID)
#define REC_INTERVAL_FIELDS(X, A) \
	X(pid, PID) X(tid, TID) X(start_ns, TIME) X(duration_ns, NUMBER) X(name, ID) X(kind, NUMBER) \
	X(depth, NUMBER) X(step, NUMBER) X(rule, NUMBER)
#define REC_MODULES_FIELDS(X, A) \
	X(id, ID) X(pid, PID) X(module_cnt, NUMBER)
#define REC_CALLS_FIELDS(X, A) \
	X(pid, PID) X(pad, PAD) X(code, ID) X(path, ID) X(calls, NUMBER) X(primitive_calls, NUMBER) \
	X(self_ns, NUMBER) X(total_ns, NUMBER)
#define REC_STEP_FIELDS(X, A) \
	X(time_ns, TIME) X(index, NUMBER) X(pid, PID) X(rule, NUMBER) X(tid, TID) X(serial, NUMBER) \
	X(forward_ns, NUMBER) A(phase_ns, NUMBER)
#define REC_SYSCALL_FIELDS(X, A) \
	X(key.pid, PID) X(key.number, SIGNED) X(val.calls, NUMBER) X(val.errors, NUMBER) \
	X(val.total_ns, NUMBER) X(val.bytes, NUMBER) X(val.unfinished, NUMBER)
#define FILE_KEY_FIELDS(X) \
	X(key.pid, PID) X(key.dev, NUMBER) X(key.inode, NUMBER)
#define REC_FILE_FIELDS(X, A) \
	FILE_KEY_FIELDS(X) X(val.name, ID) X(val.reads, NUMBER) X(val.writes, NUMBER) \
	X(val.read_bytes, NUMBER) X(val.written_bytes, NUMBER) X(val.total_ns, NUMBER) \
	X(val.disk_reads, NUMBER) X(val.faults, NUMBER) X(val.disk_bytes, NUMBER) X(val.last_ns, TIME) \
	X(val.flags, NUMBER) X(val.pad, PAD)
#define REC_PIPE_FIELDS(X, A) \
	FILE_KEY_FIELDS(X) X(val.writes, NUMBER) X(val.messages, NUMBER) X(val.first_ns, TIME) \
	X(val.last_ns, TIME) X(val.active_ns, NUMBER) X(val.active_cnt, NUMBER) X(val.rows, NUMBER)
#define REC_AROUND_FIELDS(X, A) \
	X(name, ID) X(stack, ID) X(kind, NUMBER) X(nested, NUMBER)
#define REC_DROPPED_FIELDS(X, A) \
	X(time_ns, TIME) X(events, NUMBER) X(states, NUMBER)
#define REC_DROPPED_STEPS_FIELDS(X, A) \
	X(pid, PID) X(tid, TID) X(rule, NUMBER) X(serial, NUMBER) X(index, NUMBER) X(time_ns, TIME) \
	X(steps, NUMBER) X(total_ns, NUMBER) X(min_ns, NUMBER) X(max_ns, NUMBER) A(phase_ns, NUMBER) \
	A(open_ns, NUMBER) X(open_cut, NUMBER) X(pad, PAD) A(cnt, NUMBER)
#define REC_RESOURCES_FIELDS(X, A) \
	X(time_ns, TIME) X(pid, PID) X(known, NUMBER) X(user_ns, NUMBER) X(system_ns, NUMBER) \
	X(minor_faults, NUMBER) X(major_faults, NUMBER) X(rss_bytes, NUMBER) X(shared_bytes, NUMBER) \
	X(swap_bytes, NUMBER) X(read_bytes, NUMBER) X(written_bytes, NUMBER) X(received_bytes, NUMBER) \
	X(sent_bytes, NUMBER) X(left_bytes, NUMBER)
#define REC_MACHINE_FIELDS(X, A) \
	X(time_ns, TIME) X(pid, PID) X(processors, NUMBER) X(busy_ns, NUMBER) X(idle_ns, NUMBER) \
	X(memory_bytes, NUMBER) X(available_bytes, NUMBER) X(swap_bytes, NUMBER) X(swap_free_bytes, NUMBER)
#define REC_LIMITS_FIELDS(X, A) \
	X(pid, PID) X(processors, NUMBER) X(memory_bytes, NUMBER) X(milli_cpus, NUMBER)
#define REC_SHORTAGE_FIELDS(X, A) \
	X(pid, PID) X(known, NUMBER) X(cgroup_kills, NUMBER) X(machine_kills, NUMBER) X(shm_bytes, NUMBER) \
	X(shm_free_bytes, NUMBER)
#define REC_REST_FIELDS(X, A) \
	X(pid, PID) X(cnt, NUMBER) X(before_ns, NUMBER) X(from_ns, TIME) X(to_ns, TIME) \
	X(budget_micros, NUMBER) X(pad, PAD)
#define REC_RECORDED_FIELDS(X, A) \
	X(pid, PID) X(pad, PAD) X(from_ns, TIME) X(to_ns, TIME)
#define REC_OVERHEAD_FIELDS(X, A) \
	X(pid, PID) X(pairs, NUMBER) X(accounted_micros, NUMBER) X(measured_micros, NUMBER) \
	X(error_micros, NUMBER) X(rest_micros, NUMBER)
#define REC_JOB_FIELDS(X, A) \
	X(pid, PID) X(uid, NUMBER) X(since_ns, TIME) X(launcher, NUMBER) X(local_rank, SIGNED) \
	X(world_size, SIGNED) X(restarts, SIGNED) X(name, TEXT) X(id, TEXT) X(meets, TEXT) X(cgroup, TEXT)
#define REC_THROTTLE_FIELDS(X, A) \
	X(time_ns, TIME) X(pid, PID) X(above, NUMBER) X(group, NUMBER) X(milli_cpus, NUMBER) \
	X(periods, NUMBER) X(throttled, NUMBER) X(throttled_ns, NUMBER)
#define REC_COPIED_FIELDS(X, A) \
	X(time_ns, TIME) X(pid, PID) X(pages, NUMBER) X(copied, NUMBER) X(pad, PAD) X(each_bytes, NUMBER)
#define REC_INSTALLED_FIELDS(X, A) X(path, ID)
#define REC_AWAITED_FIELDS(X, A) \
	X(pid, PID) X(offset, NUMBER) X(code, ID) X(on, NUMBER) X(pad, PAD) X(name, ID)
#define REC_STEPS_FIELDS(X, A) \
	X(pid, PID) X(tid, TID) X(rule, NUMBER) X(serial, NUMBER) X(index, NUMBER) X(base_ns, TIME) \
	X(step_cnt, NUMBER) X(parts, NUMBER) X(rest, NUMBER) X(bytes, NUMBER)
#define REC_GPU_FIELDS(X, A) \
	X(pid, PID) X(tier, NUMBER) X(cupti_ns, NUMBER) X(lost, NUMBER) X(cupti_version, NUMBER) \
	X(pad, PAD) X(why, TEXT)
#define GPU_CALLS_KEY_FIELDS(X) \
	X(key.pid, PID) X(key.api, NUMBER) X(key.direction, NUMBER) X(key.dtype, NUMBER) X(key.action, ID) \
	X(key.op, ID) X(key.object, ID)
#define REC_GPU_CALLS_FIELDS(X, A) \
	GPU_CALLS_KEY_FIELDS(X) X(val.calls, NUMBER) X(val.total_ns, NUMBER) X(val.max_ns, NUMBER) \
	X(val.bytes, NUMBER)
#define REC_GPU_CALL_FIELDS(X, A) \
	X(start_ns, TIME) X(duration_ns, NUMBER) GPU_CALLS_KEY_FIELDS(X) X(bytes, NUMBER) X(path, ID) \
	X(tid, TID) X(step, NUMBER)
#define REC_GPU_STEP_FIELDS(X, A) \
	X(time_ns, TIME) X(from_ns, TIME) X(pid, PID) X(pad, PAD) X(launches, NUMBER) X(copies, NUMBER) \
	X(copied_bytes, NUMBER) X(api_ns, NUMBER) X(sync_ns, NUMBER)
#define REC_GPU_ACTIVITY_FIELDS(X, A) \
	X(start_ns, TIME) X(duration_ns, NUMBER) X(name, ID) X(bytes, NUMBER) X(pid, PID) X(tid, TID) \
	X(correlation, NUMBER) X(kind, NUMBER) X(direction, NUMBER) X(device, NUMBER) X(context, NUMBER) \
	X(stream, NUMBER) X(pad, PAD) A(detail, NUMBER)
#define REC_GPU_DEVICE_FIELDS(X, A) \
	X(pid, PID) X(device, NUMBER) X(memory_bytes, NUMBER) X(multiprocessors, NUMBER) X(compute, NUMBER) \
	X(name, TEXT)
#define REC_GPU_USAGE_FIELDS(X, A) \
	X(time_ns, TIME) X(memory_used_bytes, NUMBER) X(memory_bytes, NUMBER) X(device, NUMBER) \
	X(busy_percent, NUMBER) X(memory_busy_percent, NUMBER) X(power_mw, NUMBER) X(temperature_c, NUMBER) \
	X(sm_mhz, NUMBER) X(name, TEXT)
#define REC_GPU_USER_FIELDS(X, A) X(pid, PID) X(device, NUMBER)
#define REC_GPU_OBJECT_FIELDS(X, A) \
	X(pid, PID) X(api, NUMBER) X(object, ID)
#define REC_GPU_WINDOW_FIELDS(X, A) \
	X(pid, PID) X(index, NUMBER) X(start_ns, TIME) X(end_ns, TIME) X(end, NUMBER) X(error, NUMBER)
/* clang-format on */

#define BYTES(field)       sizeof(((record *)0)->field)
#define PLUS(field, kind)  +BYTES(field)
#define VALUE(field, kind) {#field, offsetof(record, field), BYTES(field), 1, FIELD_##kind},
#define ARRAY(field, kind) \
	{#field, offsetof(record, field), BYTES(field[0]), BYTES(field) / BYTES(field[0]), FIELD_##kind},

#define DESCRIBE(type, struct_name, reader, rule, kept, key)                                             \
	static const struct record_descriptor *describe_##type(void)                                     \
	{                                                                                                \
		typedef struct struct_name record;                                                       \
		static const struct record_field fields[] = {REC_##type##_FIELDS(VALUE, ARRAY)};         \
		static const struct record_descriptor descriptor = {#type,                               \
								    sizeof(record),                      \
								    MERGE_##rule,                        \
								    KEEP_##kept,                         \
								    key,                                 \
								    fields,                              \
								    sizeof(fields) / sizeof(*fields)};   \
                                                                                                         \
		_Static_assert(sizeof(struct rec_hdr) REC_##type##_FIELDS(PLUS, PLUS) == sizeof(record), \
			       "a field of struct " #struct_name " is not described");                   \
		return &descriptor;                                                                      \
	}

STEPFLAME_RECORDS(DESCRIBE)

static const struct record_descriptor *(*const describe[])(void) = {
#define X(type, ...) [REC_##type] = describe_##type,
	STEPFLAME_RECORDS(X)
#undef X
};

#define X(type, ...) +1
_Static_assert(0 STEPFLAME_RECORDS(X) == REC__COUNT - 1, "a record type is not described");
#undef X

const struct record_descriptor *record_descriptor__of(uint16_t type)
{
	return type && type < REC__COUNT ? describe[type]() : NULL;
}
