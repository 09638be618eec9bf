-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- What the same ranks wait for outside of collectives, by phase, cause and line, against ranks of others.
SELECT CASE WHEN who IN ($ranks) AND host IN ($hosts) THEN 1 ELSE 0 END AS it, phase, cause, place, sum(ns) AS ns
FROM waits WHERE phase <> 'comm' AND host IN ($hosts, $others) AND m IN ($minutes)
GROUP BY CASE WHEN who IN ($ranks) AND host IN ($hosts) THEN 1 ELSE 0 END, phase, cause, place ORDER BY it, phase, cause, place
