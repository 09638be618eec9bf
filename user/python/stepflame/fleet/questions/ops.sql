-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Operators and autograd nodes by the time that they take themselves, in all jobs; of each process and recording the last count. Hours: of the processes that have any.
WITH o AS (
    SELECT cluster, job, host, pid, kind, name, max_by(n, until) AS n, max_by(total_ns, until) AS total_ns, max_by(self_ns, until) AS self_ns
    FROM ops WHERE kind <> 'label' GROUP BY cluster, job, host, pid, since, kind, name, action
)
SELECT kind, name, count(DISTINCT concat(cluster, ' ', job)) AS jobs, count(DISTINCT concat(job, ' ', host, ' ', pid)) AS processes, sum(n) AS n, sum(total_ns) AS total,
    sum(self_ns) AS self
FROM o GROUP BY kind, name ORDER BY self DESC, kind, name LIMIT $limit
