-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- How long a step took on each host in each minute of its clock: ranks that train together take the same time.
SELECT host, m, sum(step_ns) / sum(steps) AS step FROM windows WHERE steps > 0 AND step_ns > 0 GROUP BY host, m ORDER BY host, m
