/*
 * What was used over time, by looks that are a second apart: resident memory of the process that makes
 * the steps, and of all processes together; CPU of that process (a line) and of all (an area); and how
 * busy each GPU was. Takes the curves of user/analysis/resources/curves.h, as data.js reads them. What is 0 all the time has no row.
 */

const USE_ROW = 28;
const GPU_ROWS = 2; /* of more GPUs, one row has the mean */

const bytes = (value) => (value >= 1e9 ? digits(value / 1e9) + ' GB' : digits(value / 1e6) + ' MB');
const percents = (value) => digits(value / 1000) + ' %';

/* The last point up to an instant, or -1. */
function pointAt({time, count}, at) {
  let low = 0;
  for (let high = count; low < high; ) {
    const middle = (low + high) >> 1;
    if (time[middle] <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/* The mean between two instants; undefined: nobody had looked yet. */
function meanBetween(use, from, to) {
  let at = pointAt(use, from);
  if (at < 0 && !(use.time[0] < to)) return undefined;
  if (at < 0) from = use.time[(at = 0)];
  if (from >= to) return use.value[at];
  let sum = 0;
  for (let i = at; i < use.count && use.time[i] < to; i++) sum += use.value[i] * (Math.min(to, use.time[i + 1] ?? to) - Math.max(from, use.time[i]));
  return sum / (to - from);
}

/* Memory is what the last look saw: the report has the same of a step. */
const valueBetween = (use, from, to) => (use.kind === MEMORY ? use.value[pointAt(use, to)] : meanBetween(use, from, to));

const MEMORY = 0;
const CPU = 1;
const GPU = 2;

function meanOf(uses) {
  const [{recording, time, count}] = uses;
  const value = Float64Array.from(time, (at) => uses.reduce((sum, use) => sum + (use.value[Math.max(0, pointAt(use, at))] ?? 0), 0) / uses.length);
  return {recording, kind: GPU, time, count, value};
}

/* Of a recording: [{name, text, own, all, low, high}]; own: of a process, or undefined, as all is of one process alone. */
function usesOf(data, recording, pid) {
  const of = (kind, wanted) => data.uses.find((u) => u.recording === recording && u.kind === kind && u.pid === wanted && u.count);
  const gpus = data.uses.filter((u) => u.recording === recording && u.kind === GPU && u.count);
  const rows = [
    /* Each has a scale of its own: the growth of one process is little of all. */
    {name: 'memory', text: bytes, own: of(MEMORY, pid)},
    {name: of(MEMORY, pid) ? 'memory, all' : 'memory', text: bytes, all: of(MEMORY, 0)},
    {name: 'CPU', text: percents, own: of(CPU, pid), all: of(CPU, 0)},
    ...(gpus.length > GPU_ROWS ? [{name: `${gpus.length} GPUs`, text: percents, all: meanOf(gpus)}] : gpus.map((use) => ({name: `GPU ${use.device}`, text: percents, all: use}))),
  ].filter(({own, all}) => own || all);
  for (const row of rows) {
    const values = [row.own, row.all].flatMap((use) => (use ? [use.value] : []));
    const most = Math.max(...values.map((v) => v.reduce((x, y) => Math.max(x, y), 0)));
    const least = Math.min(...values.map((v) => v.reduce((x, y) => Math.min(x, y), Infinity)));
    /* Memory that hardly changes is a line in the middle of little, not a cliff. */
    row.low = row.text === bytes ? Math.max(0, Math.min(least, most * 0.98)) : 0;
    row.high = row.name.includes('GPU') ? 100000 : most;
  }
  return rows;
}

/* What was used between two instants: [['CPU', '97.0 %', 'all processes 184 %']] */
function usesBetween(rows, from, to) {
  return rows
    .map(({name, text, own, all}) => {
      const [one, sum] = [own, all].map((use) => use && valueBetween(use, from, to));
      const shown = (value) => (value === undefined ? '' : text(value));
      return own ? [name, shown(one), sum === undefined ? '' : `all processes ${shown(sum)}`] : [name, shown(sum), ''];
    })
    .filter(([, one, sum]) => one || sum);
}

/* The height of each column of pixels, of a row that is USE_ROW high; undefined: not known. */
function heightsOf({low, high}, use, width, timeAt) {
  const room = USE_ROW - 7;
  return Array.from({length: Math.floor(width)}, (_, x) => {
    const value = valueBetween(use, timeAt(x), timeAt(x + 1));
    return value === undefined ? undefined : Math.round((2 * room * Math.max(0, value - low)) / (high - low || 1)) / 2;
  });
}

/* Rectangles alone, which images can have too. */
function paintUse(pen, heights, left, bottom, filled) {
  for (let x = 0, end; x < heights.length; x = end) {
    const height = heights[x];
    for (end = x + 1; end < heights.length && heights[end] === height; ) end++;
    if (height === undefined) continue;
    if (filled) {
      pen.fillRect(left + x, bottom - height, end - x, height);
      continue;
    }
    pen.fillRect(left + x, bottom - height - 0.75, end - x, 1.5);
    const next = heights[end];
    if (next !== undefined) pen.fillRect(left + end - 0.75, bottom - Math.max(height, next), 1.5, Math.abs(height - next));
  }
}

function paintUseRow(pen, row, {left, top, width, colours, timeAt}) {
  const bottom = top + USE_ROW - 3;
  const all = heightsOf(row, row.all ?? row.own, width, timeAt);
  pen.fillStyle = colours.dim;
  pen.globalAlpha = 0.3;
  paintUse(pen, all, left, bottom, true);
  pen.globalAlpha = 1;
  pen.fillStyle = colours.ink;
  paintUse(pen, row.own && row.all ? heightsOf(row, row.own, width, timeAt) : all, left, bottom, false);
  pen.fillStyle = colours.line;
  pen.fillRect(left, bottom, width, 1);
}

/* Rows below each other, with their names and ranges in the axis. */
function paintUses(pen, rows, {top, width, colours, timeAt}) {
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  rows.forEach((row, i) => {
    const y = top + i * USE_ROW;
    pen.font = '11px ' + css('--font');
    pen.fillStyle = colours.ink;
    pen.fillText(row.name, LEFT - 6, y + 8);
    pen.fillStyle = colours.dim;
    pen.fillText(rangeText(row), LEFT - 6, y + 20);
    paintUseRow(pen, row, {left: LEFT, top: y, width, colours, timeAt});
  });
}

/* "0–153 %", "0.71–1.28 GB": short, for the axis. */
function rangeText({low, high, text}) {
  const unit = text(high).split(' ').pop();
  const scale = {GB: 1e9, MB: 1e6}[unit] ?? 1000;
  const short = (value) => (value / scale).toFixed(value / scale < 10 && unit === 'GB' ? 2 : 0);
  return `${low ? short(low) : 0}–${short(high)}\u2009${unit}`;
}

/* Of a step: {use, items}; an item is a part of it in which a value held. */
function useLanesOf(data, track, step) {
  const [start, end] = [track.start[step], track.end[step]];
  return usesOf(data, track.recording, track.pid).map((use) => {
    const {time, count} = use.own ?? use.all;
    const items = [];
    for (let i = Math.max(0, pointAt({time, count}, start)); i < count && time[i] < end; i++) items.push({from: Math.max(start, time[i]), to: Math.min(end, time[i + 1] ?? end)});
    return {use, items};
  });
}

/* "CPU 97.0 %, all processes 184 %" */
const useLaneName = (row, from, to) => usesBetween([row], from, to).map(([name, one, sum]) => `${name} ${one}${sum ? `, ${sum}` : ''}`)[0] ?? row.name;

/* Of a recording without steps: the same rows, from its begin to its end. */
class UseStrip {
  constructor(canvas, rows, colours, hover) {
    Object.assign(this, {canvas, rows, colours});
    const uses = rows.flatMap(({own, all}) => [own, all].filter(Boolean));
    this.end = Math.max(1, ...uses.map((use) => use.time[use.count - 1]));
    const show = (event) => {
      const x = event.clientX - canvas.getBoundingClientRect().left - LEFT;
      const at = this.timeAt(Math.max(0, Math.min(this.width - 1, x)));
      hover(`at ${duration(at * 1000)}`, usesBetween(rows, at, at), event);
    };
    canvas.addEventListener('pointermove', show);
    canvas.addEventListener('pointerleave', () => hover('', [], null));
  }

  get width() {
    return Math.max(50, this.canvas.parentElement.clientWidth - LEFT);
  }

  timeAt(x) {
    return (x * this.end) / this.width;
  }

  draw() {
    const {width, colours, rows} = this;
    const pen = fitCanvas(this.canvas, width + LEFT, rows.length * USE_ROW + 18);
    paintUses(pen, rows, {top: 0, width, colours, timeAt: (x) => this.timeAt(x)});
    const ticks = Math.max(1, Math.min(8, Math.floor(width / 130)));
    pen.fillStyle = colours.dim;
    for (let i = 0; i <= ticks; i++) {
      pen.textAlign = i === 0 ? 'left' : i === ticks ? 'right' : 'center';
      pen.fillText(duration(((this.end * i) / ticks) * 1000), LEFT + (width * i) / ticks, rows.length * USE_ROW + 9);
    }
  }
}
