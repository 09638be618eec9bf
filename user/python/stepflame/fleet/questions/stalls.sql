-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- The minutes in which all ranks of a job (more than half of them; of two, both) had a step that was much longer than its others. By clocks some
-- seconds apart it may be in the next minute of some. Of a minute in which half of the ranks or less were seen nothing is known.
WITH w AS (
    SELECT m, steps, step_ns, longest_ns, checkpoint_ns + validation_ns + compile_ns + jit_ns AS meant_ns,
        max(longest_ns) OVER (PARTITION BY host, who ORDER BY m RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS near
    FROM windows WHERE steps > 0
), per_minute AS (
    SELECT m, least(max(longest_ns), CASE WHEN count(*) > 2 THEN median(near) ELSE min(near) END) AS longest, median(step_ns / steps) AS mean,
        count(*) AS ranks, median(meant_ns) AS meant
    FROM w GROUP BY m
), usual AS (
    SELECT median(longest) AS longest, median(mean) AS step, median(ranks) AS ranks FROM per_minute
)
SELECT p.m, p.longest - u.step AS lost, u.step, p.ranks, p.meant
FROM per_minute p CROSS JOIN usual u
WHERE p.ranks > 0.5 * u.ranks AND p.longest > 2 * u.longest AND p.longest - u.step > 3 * u.step AND p.longest - u.step > 1e9 AND p.meant < 0.5 * (p.longest - u.step)
ORDER BY lost DESC, p.m LIMIT 20
