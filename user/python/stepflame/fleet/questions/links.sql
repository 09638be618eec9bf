-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- The minutes in which even that rank of a host which waits least in a collective waits longer there than the ranks of other hosts do: a
-- straggler of that host itself would not. By the line of the program that waits: `waits` has one line for all collectives of a minute, samples each.
WITH steps AS (
    SELECT host, who, m, sum(steps) AS steps, sum(step_ns) / sum(steps) AS step FROM windows WHERE steps > 0 GROUP BY host, who, m
), names AS (
    SELECT stack, min(leaf) AS place FROM stacks GROUP BY stack
), at_stack AS (
    SELECT host, who, m, stack, sum(weight_ns) AS ns FROM samples WHERE main AND phase = 'comm' GROUP BY host, who, m, stack
), at_place AS (
    SELECT a.host, a.who, a.m, n.place, sum(a.ns) AS ns FROM at_stack a JOIN names n ON a.stack = n.stack GROUP BY a.host, a.who, a.m, n.place
), by_host AS (
    SELECT p.host, p.m, p.place, min(p.ns / s.steps) AS wait, median(s.step) AS step, sum(s.steps) AS steps
    FROM at_place p JOIN steps s ON p.host = s.host AND p.who = s.who AND p.m = s.m GROUP BY p.host, p.m, p.place
), middle AS (
    SELECT m, place, median(wait) AS wait, count(*) AS hosts FROM by_host GROUP BY m, place HAVING count(*) > 2
), far AS (
    SELECT b.host, b.m, b.place, b.step, b.steps, middle.hosts, middle.wait AS others_wait, b.wait, b.wait - middle.wait AS excess
    FROM by_host b JOIN middle ON b.m = middle.m AND b.place = middle.place
), spread AS (
    SELECT m, place, 1.4826 * median(abs(excess)) AS deviation FROM far GROUP BY m, place
)
SELECT far.host, far.m, far.place, far.step, far.steps, far.hosts, far.wait, far.others_wait, far.excess
FROM far JOIN spread ON far.m = spread.m AND far.place = spread.place
WHERE far.step > 0 AND far.excess > $share * far.step AND far.excess > $deviations * spread.deviation
ORDER BY far.place, far.host, far.m
