/* Chooses steps and threads, and weighs them, by the rules of user/analysis/flame/flame.c. */

/* The last step that starts at or before an instant; -1: no step. `near`: where to look first. */
function findStep(track, time, near) {
  let step = near;
  for (let moves = 0; moves < 8; moves++) {
    if (step >= 0 && track.start[step] > time) step--;
    else if (step + 1 < track.count && track.start[step + 1] <= time) step++;
    else return step;
  }
  let low = 0;
  for (let high = track.count; low < high; ) {
    const middle = (low + high) >> 1;
    if (track.start[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/* Finds, once, the steps in which each row of a thread ends and starts. */
function rowSteps(thread, track) {
  if (thread.step) return;
  thread.step = new Int32Array(thread.count);
  thread.firstStep = new Int32Array(thread.count);
  for (let i = 0, at = -1; i < thread.count; i++) {
    at = thread.step[i] = findStep(track, thread.end[i], at);
    thread.firstStep[i] = thread.span[i] ? findStep(track, Math.max(0, thread.end[i] - thread.span[i]), at) : at;
  }
}

/* Percentiles by nearest rank, as in user/lib/percentile.h. */
const rankOf = (count, percent) => Math.max(0, Math.ceil((count * percent) / 100) - 1);
const percentile = (track, percent) => (track.count ? track.durations[track.order[rankOf(track.count, percent)]] : 0);

/*
 * Chooses steps of a track by a word of the address: "all", "10-20" (by their numbers), "slow:5",
 * "cause:0" (slow by the first cause), "mid" (the middle half by duration: ordinary steps); or "time":
 * the whole time, also outside of steps, which is all that a recording without steps has.
 */
function chooseSteps(track, word) {
  const range = /^(\d+)-(\d+)$/.exec(word);
  const slowest = /^slow:(\d+)$/.exec(word);
  const cause = track?.answer?.causes[/^cause:(\d+)$/.exec(word)?.[1]];
  if (word === 'time') return {word: 'time', track, wholeTime: true, count: 0, name: 'the whole time, also outside of steps'};
  const steps = new Uint8Array(track.count);
  let every = false;
  let name = 'ordinary steps (the middle half by duration)';
  if (range) {
    const [first, last] = [Number(range[1]), Number(range[2])];
    for (let i = 0; i < track.count; i++) steps[i] = track.index[i] >= first && track.index[i] <= last;
    name = first === last ? `step ${first}` : `steps ${first} to ${last}`;
  } else if (slowest) {
    for (const step of track.order.slice(-Number(slowest[1]))) steps[step] = 1;
    name = slowest[1] === '1' ? 'the slowest step' : `the slowest ${slowest[1]} steps`;
  } else if (cause) {
    const wanted = new Set(cause.steps);
    for (let i = 0; i < track.count; i++) steps[i] = wanted.has(track.index[i]);
    name = `slow by ${cause.how}`;
  } else if (word !== 'mid') {
    steps.fill(1);
    every = true;
    name = 'all steps';
  } else {
    for (const step of track.order.slice(Math.floor(track.count / 4), Math.ceil((3 * track.count) / 4))) steps[step] = 1;
  }
  const before = new Float64Array(track.count);
  let total = 0;
  let count = 0;
  for (let i = 0; i < track.count; i++) {
    before[i] = total;
    if (!steps[i]) continue;
    total += track.durations[i];
    count++;
  }
  return {word, track, steps, every, before, total, count, name};
}

/* Chosen time before an instant. step: the last step that starts at or before the instant. */
function chosenBefore(set, step, time) {
  if (step < 0) return 0;
  if (!set.steps[step]) return set.before[step];
  return set.before[step] + Math.min(time, set.track.end[step]) - set.track.start[step];
}

/* The weight of a thread's row in a set of steps. */
function weighRow(thread, i, set) {
  if (set.wholeTime) return thread.weight[i];
  const step = thread.step[i];
  const span = thread.span[i];
  const end = thread.end[i];
  if (!span) return step >= 0 && set.steps[step] && end < set.track.end[step] ? thread.weight[i] : 0;
  const inside = chosenBefore(set, step, end) - chosenBefore(set, thread.firstStep[i], Math.max(0, end - span));
  return (thread.weight[i] * inside) / span;
}

/*
 * Computes, by node, its own nanoseconds and the square of their error. Waits are measured; a
 * sample of a timer, or of waits too short to separate, is one draw, whose error is as large as its
 * weight (Poisson). phase: an index into head.phases; -1: all.
 */
function weigh(data, threads, set, phase) {
  const weights = [new Float64Array(data.nodes.count), new Float64Array(data.nodes.count)];
  for (const thread of threads) {
    if (!set.wholeTime) {
      if (thread.track !== data.tracks.indexOf(set.track)) continue;
      rowSteps(thread, set.track);
    }
    for (let i = 0; i < thread.count; i++) {
      const node = thread.node[i];
      const weight = phase < 0 || data.phaseOf[node] === phase ? weighRow(thread, i, set) : 0;
      weights[0][node] += weight;
      if (!thread.span[i]) weights[1][node] += weight * weight;
    }
  }
  return weights;
}

/*
 * Chooses threads of a recording that work for a track (-1: for any). word: "steps", "all", "pid:7"
 * or "tid:7/8".
 */
function chooseThreads(data, recording, track, word) {
  const of = data.threads.filter((t) => t.recording === recording && (track < 0 || t.track === track));
  const [kind, which] = word.split(':');
  if (kind === 'all') return of;
  if (kind === 'pid') return of.filter((t) => String(t.pid) === which);
  if (kind === 'tid') return of.filter((t) => `${t.pid}/${t.tid}` === which);
  return of.filter((t) => (track < 0 ? t.main : t.steps));
}
