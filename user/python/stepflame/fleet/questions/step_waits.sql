-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- What all ranks of a job wait for, by phase and cause.
SELECT phase, cause, sum(ns) AS ns FROM waits GROUP BY phase, cause ORDER BY phase, cause
