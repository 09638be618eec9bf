-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- The minutes in which all ranks of a job (more than half of them; of two, both) had a step that was much longer than its others.
WITH per_minute AS (
    SELECT m, CASE WHEN count(*) > 2 THEN median(longest_ns) ELSE min(longest_ns) END AS longest, median(step_ns / steps) AS mean, count(*) AS ranks,
        median(checkpoint_ns + validation_ns + compile_ns + jit_ns) AS meant
    FROM windows WHERE steps > 0 GROUP BY m
), usual AS (
    SELECT median(longest) AS longest, median(mean) AS step FROM per_minute
)
SELECT p.m, p.longest - u.step AS lost, u.step, p.ranks, p.meant
FROM per_minute p CROSS JOIN usual u
WHERE p.longest > 2 * u.longest AND p.longest - u.step > 3 * u.step AND p.longest - u.step > 1e9 AND p.meant < 0.5 * (p.longest - u.step)
ORDER BY lost DESC, p.m LIMIT 20
