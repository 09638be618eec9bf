-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Totals of a job's actions, or operators ($table; $group: of which there is one row), and the steps that these are of. They are sums since a recording
-- began, so: of each process the longest recording alone, for several can be of the same time, and only where the windows of all its time are there.
WITH last AS (
    SELECT host, pid, since, kind, name, max_by(n, until) AS n, max_by(self_ns, until) AS self, max_by(total_ns, until) AS total
    FROM $table GROUP BY $group
), spans AS (
    SELECT host, pid, since, max(until) AS until FROM $table GROUP BY host, pid, since
), longest AS (
    SELECT host, pid, since, until, row_number() OVER (PARTITION BY host, pid ORDER BY until - since DESC, since) AS place FROM spans
), whole AS (
    SELECT l.host, l.pid, l.since, sum(w.steps) AS steps
    FROM longest l JOIN windows w ON l.host = w.host AND l.pid = w.pid AND w.minute >= date_trunc('minute', l.since) AND w.minute <= l.until
    WHERE l.place = 1 GROUP BY l.host, l.pid, l.since, l.until
    HAVING min(w.minute) <= l.since AND max(w.minute) >= l.until - INTERVAL 1 MINUTE AND count(DISTINCT w.m) > 0.9 * (max(w.m) - min(w.m))
)
SELECT t.kind, t.name, sum(t.n) AS n, sum(t.self) AS self, sum(t.total) AS total, (SELECT sum(steps) FROM whole) AS steps
FROM last t JOIN whole w ON t.host = w.host AND t.pid = w.pid AND t.since = w.since GROUP BY t.kind, t.name ORDER BY self DESC, t.kind, t.name LIMIT 2000
