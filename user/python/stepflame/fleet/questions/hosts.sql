-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Each host in each job that had several: how much longer the own time of its ranks was than that of the job's others, and how much longer the
-- others were in collectives, as shares of a step. Of two hosts the faster one is the usual one, as in slow.sql.
WITH w AS (
    SELECT cluster, job, host, who, m, sum(steps) AS steps, sum(step_ns) / sum(steps) AS step, (sum(step_ns) - sum(comm_ns)) / sum(steps) AS own,
        sum(comm_ns) / sum(steps) AS comm
    FROM windows WHERE steps > 0 GROUP BY cluster, job, host, who, m
), by_host AS (
    SELECT cluster, job, m, host, median(own) AS own, median(comm) AS comm FROM w GROUP BY cluster, job, m, host
), low AS (
    SELECT cluster, job, m, min(own) AS own, min_by(comm, own) AS comm, count(*) AS hosts FROM by_host GROUP BY cluster, job, m
), middle AS (
    SELECT w.cluster, w.job, w.m, median(w.step) AS step, CASE WHEN min(low.hosts) = 2 THEN min(low.own) ELSE median(w.own) END AS own,
        CASE WHEN min(low.hosts) = 2 THEN min(low.comm) ELSE median(w.comm) END AS comm
    FROM w JOIN low ON w.cluster = low.cluster AND w.job = low.job AND w.m = low.m
    WHERE low.hosts > 1 GROUP BY w.cluster, w.job, w.m HAVING median(w.step) > 0
), ranks AS (
    SELECT w.cluster, w.job, w.host, w.who, median((w.own - middle.own) / middle.step) AS excess,
        median((middle.comm - w.comm) / middle.step) AS waited, sum(w.steps * middle.step) AS ns, count(*) AS minutes, min(w.m) AS first_m
    FROM w JOIN middle ON w.cluster = middle.cluster AND w.job = middle.job AND w.m = middle.m
    GROUP BY w.cluster, w.job, w.host, w.who
), per_host AS (
    SELECT cluster, job, host, median(excess) AS excess, max(excess) AS worst, median(waited) AS waited,
        max_by(waited, excess) AS worst_waited, count(*) AS ranks, sum(ns) / 3.6e12 AS hours, min(first_m) AS first_m
    FROM ranks GROUP BY cluster, job, host
), middle_host AS (
    SELECT cluster, job, median(excess) AS excess, count(*) AS hosts FROM per_host GROUP BY cluster, job
), spread AS (
    SELECT p.cluster, p.job, 1.4826 * median(abs(p.excess - h.excess)) AS deviation
    FROM per_host p JOIN middle_host h ON p.cluster = h.cluster AND p.job = h.job GROUP BY p.cluster, p.job
)
SELECT p.cluster, p.job, p.host, p.excess, p.worst, p.waited, p.worst_waited, p.ranks, p.hours, p.first_m, h.hosts, s.deviation
FROM per_host p JOIN middle_host h ON p.cluster = h.cluster AND p.job = h.job JOIN spread s ON p.cluster = s.cluster AND p.job = s.job
ORDER BY p.host, p.cluster, p.job
