-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- How far the own time of the ranks of a job that is furthest from the median rank's is below and above it, as shares of a step: over all of the
-- time, so that chance is small.
WITH w AS (
    SELECT host, who, m, sum(step_ns) / sum(steps) AS step, (sum(step_ns) - sum(comm_ns)) / sum(steps) AS own
    FROM windows WHERE steps > 0 GROUP BY host, who, m
), middle AS (
    SELECT m, median(own) AS own, median(step) AS step FROM w GROUP BY m HAVING count(*) > 1 AND median(step) > 0
), per_rank AS (
    SELECT w.host, w.who, median((w.own - middle.own) / middle.step) AS excess
    FROM w JOIN middle ON w.m = middle.m GROUP BY w.host, w.who
)
SELECT coalesce(min(excess), 0) AS below, coalesce(max(excess), 0) AS above FROM per_rank
