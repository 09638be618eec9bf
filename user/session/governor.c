// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Keeps the interpreter's landmarks from slowing a job that has no use for them: next() and __next__ are called for
 * much else than Lightning's actions. While a process shows no action of Lightning's and pays more than MAX_SHARE of
 * its time for such hits, they are taken away, and tried again now and then, in case Lightning starts later. In: the
 * processes' hit counts. Out: probes put aside, a note in the recording.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "stepflame.skel.h"
#include "user/session/nvtx_probes.h"

#define PERIOD_NS 200000000ULL   /* over which the price is counted, and for which a trial lasts */
#define ASIDE_NS  10000000000ULL /* between trials */
#define MAX_SHARE 0.01           /* of the time of one thread */

static void look_at_target(struct session *s, struct target *t, uint64_t elapsed_ns, uint64_t now)
{
	uint32_t pid = t->process.pid;
	struct proc proc;
	uint64_t idle;

	if (t->gone || bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.procs), &pid, &proc))
		return;
	nvtx_probes__govern(s, t, proc.range_hits - t->nvtx.hits, elapsed_ns);
	t->nvtx.hits = proc.range_hits;
	if (!t->governor.inode)
		return;
	idle = proc.idle_hits - t->governor.idle_hits;
	t->governor.idle_hits = proc.idle_hits;
	if (t->governor.aside_until_ns) {
		if (now < t->governor.aside_until_ns)
			return;
		t->governor.aside_until_ns = 0;
		target__attach_again(s, t);
	} else if (!proc.profile_code && idle * s->selftest.hit_ns > MAX_SHARE * elapsed_ns) {
		target__put_aside(t, t->governor.dev, t->governor.inode);
		t->governor.aside_until_ns = now + ASIDE_NS;
		if (!t->governor.noted)
			session__note(s,
				      "process %u calls next() %.0f times a second and shows no Lightning action: "
				      "stepflame detached those probes, and tries them again every %llu s",
				      pid, idle * 1e9 / elapsed_ns, ASIDE_NS / 1000000000);
		t->governor.noted = true;
	}
}

void governor__tend(struct session *s)
{
	uint64_t now = session__now_ns(), elapsed = now - s->governed_ns;

	if (elapsed < PERIOD_NS)
		return;
	for (size_t i = 0; i < s->target_cnt && s->governed_ns; i++)
		look_at_target(s, s->targets[i], elapsed, now);
	s->governed_ns = now;
}
