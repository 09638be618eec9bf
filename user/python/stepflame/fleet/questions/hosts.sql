-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Each host in each job that had several: how much longer the own time of its ranks was than that of the job's others, as a share of a step.
WITH w AS (
    SELECT cluster, job, host, who, m, sum(steps) AS steps, sum(step_ns) / sum(steps) AS step, (sum(step_ns) - sum(comm_ns)) / sum(steps) AS own
    FROM windows WHERE steps > 0 GROUP BY cluster, job, host, who, m
), middle AS (
    SELECT cluster, job, m, CASE WHEN count(*) > 2 THEN median(own) ELSE min(own) END AS own, median(step) AS step
    FROM w GROUP BY cluster, job, m HAVING count(DISTINCT host) > 1
), ranks AS (
    SELECT w.cluster, w.job, w.host, w.who, median((w.own - middle.own) / middle.step) AS excess, sum(w.steps * middle.step) AS ns, count(*) AS minutes, min(w.m) AS first_m
    FROM w JOIN middle ON w.cluster = middle.cluster AND w.job = middle.job AND w.m = middle.m
    GROUP BY w.cluster, w.job, w.host, w.who
), per_host AS (
    SELECT cluster, job, host, median(excess) AS excess, max(excess) AS worst, count(*) AS ranks, sum(ns) / 3.6e12 AS hours, min(first_m) AS first_m
    FROM ranks GROUP BY cluster, job, host
), middle_host AS (
    SELECT cluster, job, median(excess) AS excess, count(*) AS hosts FROM per_host GROUP BY cluster, job
), spread AS (
    SELECT p.cluster, p.job, 1.4826 * median(abs(p.excess - h.excess)) AS deviation
    FROM per_host p JOIN middle_host h ON p.cluster = h.cluster AND p.job = h.job GROUP BY p.cluster, p.job
)
SELECT p.cluster, p.job, p.host, p.excess, p.worst, p.ranks, p.hours, p.first_m, h.hosts, s.deviation
FROM per_host p JOIN middle_host h ON p.cluster = h.cluster AND p.job = h.job JOIN spread s ON p.cluster = s.cluster AND p.job = s.job
ORDER BY p.host, p.cluster, p.job
