-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- The minutes in which the GPU of a rank ran at a lower clock than those of the job's other ranks that have such a GPU. One with little to do lowers
-- its clock by itself: only minutes count in which it was busy.
WITH model AS (
    SELECT cluster, job, host, pid, max(gpu) AS gpu FROM ranks GROUP BY cluster, job, host, pid
), w AS (
    SELECT w.host, w.who, w.m, coalesce(max(g.gpu), '') AS gpu, avg(w.gpu_mhz) AS mhz, sum(w.steps) AS steps
    FROM windows w LEFT JOIN model g ON w.cluster = g.cluster AND w.job = g.job AND w.host = g.host AND w.pid = g.pid
    WHERE w.gpu_mhz > 0 AND w.steps > 0 AND coalesce(w.gpu_busy, 1) >= 0.5 GROUP BY w.host, w.who, w.m
), middle AS (
    SELECT m, gpu, median(mhz) AS mhz, count(*) AS ranks FROM w GROUP BY m, gpu HAVING count(*) > 2
), spread AS (
    SELECT w.m, w.gpu, 1.4826 * median(abs(w.mhz - middle.mhz)) AS deviation
    FROM w JOIN middle ON w.m = middle.m AND w.gpu = middle.gpu GROUP BY w.m, w.gpu
)
SELECT w.host, w.who, w.m, w.steps, w.mhz, middle.mhz AS others
FROM w JOIN middle ON w.m = middle.m AND w.gpu = middle.gpu JOIN spread ON w.m = spread.m AND w.gpu = spread.gpu
WHERE middle.mhz - w.mhz > 0.1 * middle.mhz AND middle.mhz - w.mhz > $deviations * spread.deviation
ORDER BY w.who, w.host, w.m
