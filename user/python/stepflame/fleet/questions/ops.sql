-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Operators and autograd nodes by the time that they take themselves, in all jobs; of each process and recording the last count. $twice: recordings
-- that are not counted, since others of the process counted at that time, too. Hours: of the processes that have any.
WITH twice (cluster, job, host, pid, since_us) AS (
    VALUES $twice
), o AS (
    SELECT cluster, job, host, pid, kind, name, max_by(n, until) AS n, max_by(total_ns, until) AS total_ns, max_by(self_ns, until) AS self_ns
    FROM ops WHERE kind <> 'label' AND NOT EXISTS (
        SELECT 1 FROM twice t WHERE ops.cluster = t.cluster AND ops.job = t.job AND ops.host = t.host AND ops.pid = t.pid AND $since_us = t.since_us
    )
    GROUP BY cluster, job, host, pid, since, kind, name, action
)
SELECT kind, name, count(DISTINCT concat(cluster, ' ', job)) AS jobs, count(DISTINCT concat(job, ' ', host, ' ', pid)) AS processes, sum(n) AS n, sum(total_ns) AS total,
    sum(self_ns) AS self
FROM o GROUP BY kind, name ORDER BY self DESC, kind, name LIMIT $limit
