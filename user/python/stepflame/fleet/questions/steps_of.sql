-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- How many steps were seen of the ranks that places.sql and stacks.sql hold against each other.
SELECT CASE WHEN who IN ($ranks) AND host IN ($hosts) THEN 1 ELSE 0 END AS it, sum(steps) AS steps
FROM windows WHERE host IN ($hosts, $others) AND m IN ($minutes)
GROUP BY CASE WHEN who IN ($ranks) AND host IN ($hosts) THEN 1 ELSE 0 END ORDER BY it
