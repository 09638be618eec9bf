-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- The recordings of a process that counted operators while another recording of it did, too.
WITH s AS (
    SELECT cluster, job, host, pid, since, max(until) AS until FROM ops GROUP BY cluster, job, host, pid, since
)
SELECT a.cluster, a.job, a.host, a.pid, a.since, a.until FROM s a
WHERE EXISTS (
    SELECT 1 FROM s b WHERE a.cluster = b.cluster AND a.job = b.job AND a.host = b.host AND a.pid = b.pid
        AND a.since <> b.since AND a.since < b.until AND b.since < a.until
)
ORDER BY a.cluster, a.job, a.host, a.pid, a.since
