-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- The minutes in which a rank's own time (a step without its collectives) was longer than the other ranks' of its job: in synchronous training
-- all steps take the same time, and who waits least is whom the others wait for. Rests have no row here: only steps that were seen count.
-- Of two hosts, or two ranks, there is no usual one: the faster one is it, in all figures.
-- on_host: ranks that the host had in that minute. with_sync: without what it waits for its GPU, too, for a GPU waits for others in its collectives.
WITH sync AS (
    SELECT cluster, job, host, who, m, sum(ns) AS ns FROM waits
    WHERE $with_sync AND cause = 'gpu_sync' AND phase <> 'comm' GROUP BY cluster, job, host, who, m
), seen AS (
    SELECT cluster, job, host, who, m, sum(steps) AS steps, sum(step_ns) AS step_ns, sum(comm_ns) AS comm_ns, sum(data_ns) AS data_ns
    FROM windows WHERE steps > 0 GROUP BY cluster, job, host, who, m
), w AS (
    SELECT s.cluster, s.job, s.host, s.who, s.m, s.steps, s.step_ns / s.steps AS step, s.data_ns / s.steps AS data,
        (s.step_ns - s.comm_ns - coalesce(y.ns, 0)) / s.steps AS own, (s.comm_ns + coalesce(y.ns, 0)) / s.steps AS comm
    FROM seen s LEFT JOIN sync y ON s.cluster = y.cluster AND s.job = y.job AND s.host = y.host AND s.who = y.who AND s.m = y.m
), hosts AS (
    SELECT cluster, job, m, host, median(own) AS own, median(data) AS data, median(comm) AS comm, count(*) AS ranks FROM w GROUP BY cluster, job, m, host
), low AS (
    SELECT cluster, job, m, min(own) AS own, min_by(data, own) AS data, min_by(comm, own) AS comm, count(*) AS hosts FROM hosts GROUP BY cluster, job, m
), middle AS (
    SELECT w.cluster, w.job, w.m, median(w.step) AS step, count(*) AS ranks, min(low.hosts) AS hosts,
        CASE WHEN min(low.hosts) = 2 THEN min(low.own) WHEN count(*) > 2 THEN median(w.own) ELSE min(w.own) END AS own,
        CASE WHEN min(low.hosts) = 2 THEN min(low.data) WHEN count(*) > 2 THEN median(w.data) ELSE min_by(w.data, w.own) END AS data,
        CASE WHEN min(low.hosts) = 2 THEN min(low.comm) WHEN count(*) > 2 THEN median(w.comm) ELSE min_by(w.comm, w.own) END AS comm
    FROM w JOIN low ON w.cluster = low.cluster AND w.job = low.job AND w.m = low.m GROUP BY w.cluster, w.job, w.m
    HAVING count(*) > 1 AND median(w.step) > 0
), far AS (
    SELECT w.cluster, w.job, w.host, w.who, w.m, w.steps, middle.step, middle.ranks, hosts.ranks AS on_host, w.own - middle.own AS excess, w.data - middle.data AS data,
        w.comm AS waits, middle.comm AS others_wait,
        abs(w.own - CASE WHEN middle.hosts = 2 THEN hosts.own ELSE middle.own END) AS off
    FROM w JOIN middle ON w.cluster = middle.cluster AND w.job = middle.job AND w.m = middle.m
        JOIN hosts ON w.cluster = hosts.cluster AND w.job = hosts.job AND w.m = hosts.m AND w.host = hosts.host
), spread AS (
    SELECT cluster, job, m, CASE WHEN max(ranks) > 2 THEN 1.4826 * median(off) ELSE 0 END AS deviation FROM far GROUP BY cluster, job, m
)
SELECT far.cluster, far.job, far.host, far.who, far.m, far.steps, far.step, far.ranks, far.on_host, far.excess, far.data, far.waits, far.others_wait
FROM far JOIN spread ON far.cluster = spread.cluster AND far.job = spread.job AND far.m = spread.m
WHERE far.excess > $share * far.step AND far.excess > $deviations * spread.deviation
ORDER BY far.cluster, far.job, far.who, far.host, far.m
