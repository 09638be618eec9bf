/*
 * What is known in intervals of a step: work of each stream of a GPU, and phases. Takes the lanes of
 * user/analysis/timeline/lanes.h, as data.js reads them, and gives lanes.js those of a step.
 */

const PHASES = 0;
const STREAM = 1;
const WINDOWS = 2;

/* What is under way between two instants, in order: {from, to, at}, in microseconds; at: its index. */
function spansBetween(source, start, end) {
  const items = [];
  let low = 0;
  for (let high = source.count; low < high; ) {
    const middle = (low + high) >> 1;
    if (source.reach[middle] <= start) low = middle + 1;
    else high = middle;
  }
  for (let at = low; at < source.count && source.from[at] < end; at++) if (source.to[at] > start) items.push({from: source.from[at], to: source.to[at], at});
  return items;
}

/* The parts of a step in which CUPTI did not watch a process: [from, to]. Without windows nobody knows. */
function unwatched(data, {recording, pid}, start, end) {
  const windows = data.lanes.find((s) => s.kind === WINDOWS && s.recording === recording && s.pid === pid && s.count);
  const gaps = [];
  if (!windows) return gaps;
  for (const {from, to} of spansBetween(windows, start, end)) {
    if (from > start) gaps.push([start, from]);
    start = Math.max(start, to);
  }
  return start < end ? [...gaps, [start, end]] : gaps;
}

/* Time of items within [start, end), in microseconds; of merged work, that in which it was busy. */
const timeWithin = (source, items, start, end) => items.reduce((sum, {from, to, at}) => sum + ((Math.min(to, end) - Math.max(from, start)) * source.busy[at]) / (to - from), 0);

/* Of a step: {source, items, gaps}. The phases of its thread, and streams of all processes of its recording. */
function spanLanesOf(data, track, step) {
  const [start, end] = [track.start[step], track.end[step]];
  const wanted = (s) => s.recording === track.recording && (s.kind === STREAM || (s.kind === PHASES && s.pid === track.pid && s.tid === track.tid));
  return data.lanes
    .filter(wanted)
    .map((source) => ({source, items: spansBetween(source, start, end), gaps: source.kind === STREAM ? unwatched(data, source, start, end) : []}))
    .filter(({items}) => items.length);
}

/* Why a step has no lane of a GPU that its process used: "", or a sentence. */
function gpuUnseen(data, track, step) {
  const of = (s) => s.kind === STREAM && s.recording === track.recording && s.pid === track.pid;
  const [start, end] = [track.start[step], track.end[step]];
  const [gap] = data.lanes.some(of) ? unwatched(data, track, start, end) : [];
  return gap && gap[0] === start && gap[1] === end ? ' What the GPU did in this step was not recorded.' : '';
}

function spanLaneName(data, track, step, {source, items, gaps}) {
  const [start, end] = [track.start[step], track.end[step]];
  const known = duration(timeWithin(source, items, start, end) * 1000);
  if (source.kind === PHASES) {
    const all = track.phases.reduce((sum, of, i) => sum + (data.head.phases[i] === 'other' ? 0 : of[step]), 0);
    return `phases of thread ${source.tid}${timeWithin(source, items, start, end) < 0.95 * all ? `: ${known} of ${duration(all * 1000)}, of the rest it is not known when` : ''}`;
  }
  const twins = data.lanes.filter((s) => s.kind === STREAM && s.recording === source.recording && s.pid === source.pid && s.device === source.device && s.stream === source.stream).length;
  const {rank} = data.threads.find((t) => t.recording === source.recording && t.pid === source.pid) ?? {rank: -1};
  const who = source.pid === track.pid ? '' : rank < 0 ? `pid ${source.pid}, ` : `rank ${rank}, `;
  const missing = gaps.reduce((sum, [from, to]) => sum + to - from, 0);
  return `${who}GPU ${source.device}, stream ${source.stream}${twins > 1 ? ` of context ${source.context}` : ''}, busy ${known}${missing ? ` of ${duration((end - start - missing) * 1000)} recorded` : ''}`;
}

const spanName = (data, {kind, what}, at) => (kind === PHASES ? data.head.phases[what[at]] : data.laneTexts[what[at]]);
