-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Ranks that several processes were at the same time, for more than two minutes: two jobs of one name. A rank that began anew was not.
WITH twofold AS (
    SELECT cluster, job, who, m, count(DISTINCT concat(host, ' ', pid)) AS processes
    FROM windows WHERE rank IS NOT NULL GROUP BY cluster, job, who, m HAVING count(DISTINCT concat(host, ' ', pid)) > 1
)
SELECT cluster, job, count(DISTINCT who) AS ranks, count(DISTINCT m) AS minutes, max(processes) AS processes, min(m) AS first_m
FROM twofold GROUP BY cluster, job HAVING count(DISTINCT m) > 2 ORDER BY cluster, job
