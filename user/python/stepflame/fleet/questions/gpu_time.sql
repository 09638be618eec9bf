-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- How a job's GPUs spent the time that CUPTI saw: at work, or idle, and for what they waited. A window that went on from one import to the next has
-- a row for each: the last one has all of it.
WITH last AS (
    SELECT host, pid, device, since, name, max_by(ns, until) AS ns FROM gpu WHERE kind = 'time' GROUP BY host, pid, device, since, name
)
SELECT name, sum(ns) AS ns FROM last GROUP BY name HAVING sum(ns) > 0 ORDER BY name
