-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- The recordings that have a job's ranks, the latest $most of each: of a file that was imported several times, such as a ring, what it had the last
-- time. Hosts: of these alone, unless $all.
WITH last AS (
    SELECT machine, path, max(modified) AS modified FROM recordings GROUP BY machine, path
), r AS (
    SELECT r.host, r.who, r.pid, r.machine, r.path, r.since, r.until,
        row_number() OVER (PARTITION BY r.host, r.who ORDER BY r.until DESC, r.machine, r.path, r.pid) AS place
    FROM recordings r JOIN last ON r.machine = last.machine AND r.path = last.path AND r.modified = last.modified
    WHERE $all OR r.host IN ($hosts)
)
SELECT host, who, pid, machine, path, since, until FROM r WHERE place <= $most ORDER BY who, host, place
