-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- The minutes in which even that rank of a host which waits least in a collective waits longer there than the ranks of other hosts do: a
-- straggler of that host itself would not. By the line of the program that waits: `waits` has one line for all collectives of a minute, samples each.
-- A rank that has samples, and none of that line, does not wait there. apart: how much longer the host's steps are than all hosts' in that minute of
-- its clock. Ranks that wait for each other have equal ones, so by that much the host is at other steps than they: its clock is another one.
WITH steps AS (
    SELECT host, who, m, sum(steps) AS steps, sum(step_ns) / sum(steps) AS step, max(CASE WHEN oncpu_ns IS NULL THEN 0 ELSE 1 END) AS sampled
    FROM windows WHERE steps > 0 GROUP BY host, who, m
), per_host AS (
    SELECT host, m, median(step) AS step, sum(sampled) AS sampled FROM steps GROUP BY host, m
), usual AS (
    SELECT m, median(step) AS step FROM per_host GROUP BY m
), names AS (
    SELECT stack, min(leaf) AS place FROM stacks GROUP BY stack
), at_stack AS (
    SELECT host, who, m, stack, sum(weight_ns) AS ns FROM samples WHERE main AND phase = 'comm' GROUP BY host, who, m, stack
), at_place AS (
    SELECT a.host, a.who, a.m, n.place, sum(a.ns) AS ns FROM at_stack a JOIN names n ON a.stack = n.stack GROUP BY a.host, a.who, a.m, n.place
), by_host AS (
    SELECT p.host, p.m, p.place, CASE WHEN count(*) < max(h.sampled) THEN 0 ELSE min(p.ns / s.steps) END AS wait, max(h.step) AS step,
        max(h.step) - max(u.step) AS apart, sum(s.steps) AS steps
    FROM at_place p JOIN steps s ON p.host = s.host AND p.who = s.who AND p.m = s.m JOIN per_host h ON p.host = h.host AND p.m = h.m
        JOIN usual u ON p.m = u.m
    GROUP BY p.host, p.m, p.place
), middle AS (
    SELECT m, place, median(wait) AS wait, count(*) AS hosts FROM by_host GROUP BY m, place HAVING count(*) > 2
), far AS (
    SELECT b.host, b.m, b.place, b.step, b.apart, b.steps, middle.hosts, middle.wait AS others_wait, b.wait, b.wait - middle.wait AS excess
    FROM by_host b JOIN middle ON b.m = middle.m AND b.place = middle.place
), spread AS (
    SELECT m, place, 1.4826 * median(abs(excess)) AS deviation FROM far GROUP BY m, place
)
SELECT far.host, far.m, far.place, far.step, far.apart, far.steps, far.hosts, far.wait, far.others_wait, far.excess
FROM far JOIN spread ON far.m = spread.m AND far.place = spread.place
WHERE far.step > 0 AND far.excess > $share * far.step AND far.excess > $deviations * spread.deviation
ORDER BY far.place, far.host, far.m
