-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- How a job's GPUs spent the time that CUPTI saw: at work, or idle, and for what they waited.
SELECT name, sum(ns) AS ns FROM gpu WHERE kind = 'time' GROUP BY name HAVING sum(ns) > 0 ORDER BY name
