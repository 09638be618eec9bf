// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/live/lag.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct block {
	uint64_t steps, own_ns, comm_ns;
	uint64_t first_ns, first_step; /* end of its first step, and the index of that */
};

struct lag_member {
	uint32_t pid;
	bool told;
	bool trains; /* it has made a step: others, like a launcher, are of the job without being ranks */
	char name[sizeof(((struct rec_job *)0)->name)], meets[sizeof(((struct rec_job *)0)->meets)];
	uint64_t begin_ns; /* of this block, the same for all of a job; 0: it has made no step in it */
	uint32_t block_cnt;
	struct block now, blocks[LAG_BLOCKS]; /* each at its number modulo that */
};

static struct lag_member *find_member(const struct lag *lag, uint32_t pid)
{
	struct lag_member *all = lag->members.items;

	for (size_t i = 0; i < lag->members.cnt; i++)
		if (all[i].pid == pid)
			return &all[i];
	return NULL;
}

static bool are_of_one_job(const struct lag_member *a, const struct lag_member *b)
{
	return !memcmp(a->name, b->name, sizeof(a->name)) && !memcmp(a->meets, b->meets, sizeof(a->meets));
}

/* Who comes or goes changes what the others are compared with. */
static void begin_again(struct lag *lag, const struct lag_member *of)
{
	struct lag_member *all = lag->members.items;

	for (size_t i = 0; i < lag->members.cnt; i++) {
		if (!are_of_one_job(&all[i], of))
			continue;
		all[i].now = (struct block){};
		all[i].begin_ns = all[i].block_cnt = 0;
	}
}

int lag__add_process(struct lag *lag, const struct rec_job *job)
{
	struct lag_member *member = find_member(lag, job->pid), new = {.pid = job->pid};

	memcpy(new.name, job->name, sizeof(new.name));
	memcpy(new.meets, job->meets, sizeof(new.meets));
	if (member && are_of_one_job(member, &new))
		return 0;
	lag__end_process(lag, job->pid);
	if (!new.name[0])
		return 0;
	member = array__add(&lag->members, sizeof(*member));
	if (!member)
		return -ENOMEM;
	*member = new;
	return 0;
}

void lag__end_process(struct lag *lag, uint32_t pid)
{
	struct lag_member *all = lag->members.items, *member = find_member(lag, pid), gone;

	if (!member)
		return;
	gone = *member;
	*member = all[--lag->members.cnt];
	if (gone.trains)
		begin_again(lag, &gone);
}

/* ---- a block has ended ---- */

/* What a rank does per step, and what the others do. */
struct comparison {
	double own_ns, comm_ns, others_own_ns, others_comm_ns;
	size_t others;
};

static struct block sum_of(const struct lag_member *member, size_t from, size_t to)
{
	struct block sum = {};

	for (size_t i = from; i < to; i++) {
		const struct block *block = &member->blocks[i % LAG_BLOCKS];

		sum.steps += block->steps;
		sum.own_ns += block->own_ns;
		sum.comm_ns += block->comm_ns;
	}
	return sum;
}

/* In some of its blocks. A process that is in no collective is one that nobody waits for. */
static struct comparison compare_blocks(const struct lag *lag, const struct lag_member *member, size_t from, size_t to)
{
	const struct lag_member *all = lag->members.items;
	struct block own = sum_of(member, from, to);
	struct comparison result = {.own_ns = (double)own.own_ns / own.steps,
				    .comm_ns = (double)own.comm_ns / own.steps};

	for (size_t i = 0; i < lag->members.cnt; i++) {
		struct block sum;

		if (&all[i] == member || !are_of_one_job(&all[i], member) || all[i].block_cnt != member->block_cnt)
			continue;
		sum = sum_of(&all[i], from, to);
		if (!sum.comm_ns || !sum.steps)
			continue;
		result.others_own_ns += (double)sum.own_ns / sum.steps;
		result.others_comm_ns += (double)sum.comm_ns / sum.steps;
		result.others++;
	}
	result.others_own_ns /= result.others ?: 1;
	result.others_comm_ns /= result.others ?: 1;
	return result;
}

static bool is_above(const struct comparison *compared, double percent)
{
	return compared->others && compared->own_ns * 100 > compared->others_own_ns * (100 + percent);
}

static bool is_straggler(const struct lag *lag, const struct lag_member *member, double percent,
			 struct comparison *together)
{
	size_t to = member->block_cnt, from = to - LAG_BLOCKS;
	double more_ns;

	*together = compare_blocks(lag, member, from, to);
	more_ns = together->own_ns - together->others_own_ns;
	if (!together->comm_ns || !is_above(together, percent) ||
	    more_ns * 200 < percent * (together->own_ns + together->comm_ns) ||
	    (together->others_comm_ns - together->comm_ns) * 2 < more_ns)
		return false;
	for (size_t i = from; i < to; i++) {
		const struct comparison one = compare_blocks(lag, member, i, i + 1);

		if (!is_above(&one, percent / 2))
			return false;
	}
	return true;
}

/* Has each rank of the job done enough for a block? */
static bool is_block_over(const struct lag *lag, const struct lag_member *of, uint64_t now_ns)
{
	const struct lag_member *all = lag->members.items;

	if (now_ns < of->begin_ns + LAG_NS)
		return false;
	for (size_t i = 0; i < lag->members.cnt; i++)
		if (all[i].trains && are_of_one_job(&all[i], of) && all[i].now.steps < LAG_STEPS_MIN)
			return false;
	return true;
}

static void end_block(struct lag *lag, const struct lag_member *of, uint64_t now_ns)
{
	struct lag_member *all = lag->members.items;

	for (size_t i = 0; i < lag->members.cnt; i++) {
		if (!are_of_one_job(&all[i], of))
			continue;
		all[i].blocks[all[i].block_cnt++ % LAG_BLOCKS] = all[i].now;
		all[i].now = (struct block){};
		all[i].begin_ns = now_ns;
	}
}

static bool find_lag(struct lag *lag, const struct lag_member *of, double percent, struct lag_found *found)
{
	struct lag_member *all = lag->members.items;
	bool seen = false;

	for (size_t i = 0; i < lag->members.cnt && of->block_cnt >= LAG_BLOCKS; i++) {
		struct comparison together, last;

		if (!are_of_one_job(&all[i], of))
			continue;
		last = compare_blocks(lag, &all[i], all[i].block_cnt - 1, all[i].block_cnt);
		if (!is_above(&last, percent / 2))
			all[i].told = false;
		if (seen || all[i].told || !is_straggler(lag, &all[i], percent, &together))
			continue;
		seen = all[i].told = true;
		*found = (struct lag_found){.pid = all[i].pid,
					    .since_ns = all[i].blocks[all[i].block_cnt % LAG_BLOCKS].first_ns,
					    .since_step = all[i].blocks[all[i].block_cnt % LAG_BLOCKS].first_step,
					    .own_ns = together.own_ns,
					    .others_ns = together.others_own_ns};
	}
	return seen;
}

bool lag__add_step(struct lag *lag, const struct timed_step *step, uint32_t percent, struct lag_found *found)
{
	struct lag_member *member = find_member(lag, step->pid);
	uint64_t besides_ns = step->besides_ns + step->comm_ns;

	if (!member)
		return false;
	if (!member->trains) {
		member->trains = true;
		begin_again(lag, member);
	}
	if (!member->now.steps++) {
		member->now.first_ns = step->end_ns;
		member->now.first_step = step->index;
	}
	member->begin_ns = member->begin_ns ?: step->end_ns;
	member->now.comm_ns += step->comm_ns;
	member->now.own_ns += step->duration_ns > besides_ns ? step->duration_ns - besides_ns : 0;
	if (!is_block_over(lag, member, step->end_ns))
		return false;
	end_block(lag, member, step->end_ns);
	return find_lag(lag, member, percent, found);
}

void lag__free(struct lag *lag)
{
	free(lag->members.items);
	*lag = (struct lag){};
}
