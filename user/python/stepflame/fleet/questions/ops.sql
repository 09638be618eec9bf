-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Operators and autograd nodes by the time that they take themselves, in all jobs; of each process and recording the last count. Hours: of the processes that have any.
WITH last AS (
    SELECT cluster, job, host, pid, since, kind, name, action, max(until) AS until FROM ops WHERE kind <> 'label' GROUP BY cluster, job, host, pid, since, kind, name, action
), o AS (
    SELECT o.cluster, o.job, o.host, o.pid, o.kind, o.name, o.n, o.total_ns, o.self_ns
    FROM ops o JOIN last l ON o.cluster = l.cluster AND o.job = l.job AND o.host = l.host AND o.pid = l.pid AND o.since = l.since AND o.until = l.until
        AND o.kind = l.kind AND o.name = l.name AND coalesce(o.action, '') = coalesce(l.action, '')
)
SELECT kind, name, count(DISTINCT concat(cluster, ' ', job)) AS jobs, count(DISTINCT concat(job, ' ', host, ' ', pid)) AS processes, sum(n) AS n, sum(total_ns) AS total,
    sum(self_ns) AS self
FROM o GROUP BY kind, name ORDER BY self DESC, kind, name LIMIT $limit
