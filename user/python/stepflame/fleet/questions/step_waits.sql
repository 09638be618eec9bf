-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- What all ranks of a job wait for, by phase, cause and line.
SELECT phase, cause, place, sum(ns) AS ns, sum(n) AS n FROM waits GROUP BY phase, cause, place ORDER BY ns DESC, phase, cause, place LIMIT 2000
