-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Ranks that several processes were at the same time, each of them for more than two minutes: two jobs of one name. A rank that began anew was not,
-- however often it did: each of its processes has a minute in common with the one before it, and one with the next.
WITH twofold AS (
    SELECT cluster, job, who, m, count(DISTINCT concat(host, ' ', pid)) AS processes
    FROM windows WHERE rank IS NOT NULL GROUP BY cluster, job, who, m HAVING count(DISTINCT concat(host, ' ', pid)) > 1
), shared AS (
    SELECT w.cluster, w.job, w.who, count(DISTINCT w.m) AS minutes, max(t.processes) AS processes, min(w.m) AS first_m
    FROM windows w JOIN twofold t ON w.cluster = t.cluster AND w.job = t.job AND w.who = t.who AND w.m = t.m
    GROUP BY w.cluster, w.job, w.who, w.host, w.pid HAVING count(DISTINCT w.m) > 2
)
SELECT cluster, job, count(DISTINCT who) AS ranks, max(minutes) AS minutes, max(processes) AS processes, min(first_m) AS first_m
FROM shared GROUP BY cluster, job ORDER BY cluster, job
