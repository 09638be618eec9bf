-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Totals of a job's actions: of each process and recording the last count, and the steps that were seen of these processes.
WITH last AS (
    SELECT host, pid, since, kind, name, max(until) AS until FROM actions GROUP BY host, pid, since, kind, name
), t AS (
    SELECT DISTINCT t.host, t.pid, t.since, t.kind, t.name, t.n, t.self_ns, t.total_ns
    FROM actions t JOIN last l ON t.host = l.host AND t.pid = l.pid AND t.since = l.since AND t.until = l.until AND t.kind = l.kind AND t.name = l.name
)
SELECT kind, name, sum(n) AS n, sum(self_ns) AS self, sum(total_ns) AS total FROM t GROUP BY kind, name ORDER BY self DESC, kind, name LIMIT 2000
