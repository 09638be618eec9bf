-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- The minutes in which the GPU of a rank ran at a lower clock than those of the job's other ranks.
WITH w AS (
    SELECT host, who, m, avg(gpu_mhz) AS mhz, sum(steps) AS steps FROM windows WHERE gpu_mhz > 0 AND steps > 0 GROUP BY host, who, m
), middle AS (
    SELECT m, median(mhz) AS mhz, count(*) AS ranks FROM w GROUP BY m HAVING count(*) > 2
), spread AS (
    SELECT w.m, 1.4826 * median(abs(w.mhz - middle.mhz)) AS deviation FROM w JOIN middle ON w.m = middle.m GROUP BY w.m
)
SELECT w.host, w.who, w.m, w.steps, w.mhz, middle.mhz AS others
FROM w JOIN middle ON w.m = middle.m JOIN spread ON w.m = spread.m
WHERE middle.mhz - w.mhz > 0.1 * middle.mhz AND middle.mhz - w.mhz > $deviations * spread.deviation
ORDER BY w.who, w.host, w.m
