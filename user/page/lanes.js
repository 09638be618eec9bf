/*
 * One step over time: a lane for each thread of which something is known in it, and the lanes of
 * spans.js. A bar is a wait, a phase or work of a GPU, whose begin and end were measured; a line is
 * a sample, taken at that instant. Where nothing is drawn, nothing is known: the thread ran between
 * two samples, or its waits were too short.
 */

const LANE = 40;
const LANE_BAR = 19;
const AXIS = 22;
const BEYOND_MAX = 2000; /* rows looked at behind the step; a sound recording has its waits among the first */

/* The first row of a thread that ends after an instant. */
function firstRowAfter(thread, time) {
  let low = 0;
  for (let high = thread.count; low < high; ) {
    const middle = (low + high) >> 1;
    if (thread.end[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/*
 * What a thread did between two instants, in order: {from, to, rows, wait}, in microseconds. Rows
 * that are parts of one wait (what the GPU did in it) are one item.
 */
function itemsBetween(thread, start, end) {
  const items = [];
  for (let i = firstRowAfter(thread, start), beyond = 0; i < thread.count && beyond < BEYOND_MAX; i++) {
    const to = thread.end[i];
    const from = Math.max(0, to - thread.span[i]);
    if (to > end) beyond++;
    if (thread.span[i] ? from >= end : to >= end) continue;
    const last = items[items.length - 1];
    if (last?.wait && thread.span[i] && last.to === to && last.from === from) last.rows.push(i);
    else items.push({from, to, rows: [i], wait: thread.span[i] > 0});
  }
  return items;
}

/*
 * Of a step's recording: its phases; the thread that makes it; streams of its process; main threads of
 * its workers; what was used; threads that make the steps of other ranks, and streams of other processes; all
 * others. Last come threads that only waited.
 */
function lanesOf(data, track, step) {
  const at = data.tracks.indexOf(track);
  const [start, end] = [track.start[step], track.end[step]];
  const slept = ({items}) => items.length === 1 && items[0].wait && items[0].from <= start && items[0].to >= end;
  const rank = ({thread}) => (thread.track === at && thread.steps ? 1 : thread.track === at && thread.pid !== track.pid && thread.pid === thread.tid ? 3 : thread.steps ? 4 : 5);
  const rankOfSpans = ({kind, pid}) => (kind === PHASES ? 0 : pid === track.pid ? 2 : 4);
  const order = (lane) => (lane.use ? 3.5 : lane.source ? rankOfSpans(lane.source) : rank(lane) + (rank(lane) > 1 && slept(lane) ? 5 : 0));
  const of = (lane) => lane.thread ?? {pid: 0, ...lane.source, tid: Infinity};
  const threads = data.threads
    .filter((t) => t.recording === track.recording && (t.track === at || t.steps))
    .map((thread) => ({thread, items: itemsBetween(thread, start, end)}))
    .filter(({items}) => items.length);
  /* Streams are in order already, and a sort keeps it. */
  return [...threads, ...spanLanesOf(data, track, step), ...useLanesOf(data, track, step)].sort((x, y) => order(x) - order(y) || of(x).pid - of(y).pid || (of(x).tid === of(y).tid ? 0 : of(x).tid - of(y).tid));
}

class Lanes {
  /* events: as of Flame, with items in place of boxes; pick(node) */
  constructor(scroller, canvas, colours, events) {
    Object.assign(this, {scroller, canvas, colours, events, lanes: []});
    canvas.addEventListener('pointermove', (event) => this.events.hover(this.at(event), event));
    canvas.addEventListener('pointerleave', () => this.events.hover(null));
    canvas.addEventListener('click', (event) => this.pick(this.at(event)));
    canvas.addEventListener('keydown', (event) => this.key(event));
  }

  /* hatch: the pattern of waits */
  show(data, track, step, hatch) {
    Object.assign(this, {data, track, step, hatch, focused: null});
    this.start = track.start[step];
    this.took = track.end[step] - this.start;
    this.lanes = lanesOf(data, track, step);
    this.lanes.forEach((lane, number) => lane.items.forEach((item) => Object.assign(item, {lane, number})));
    this.draw();
  }

  get body() {
    return {width: this.space, height: this.height, paint: (pen, x, y) => this.paint(pen, x, y)};
  }

  get height() {
    return AXIS + this.lanes.length * LANE + 6;
  }

  draw() {
    this.space = this.scroller.clientWidth;
    const context = fitCanvas(this.canvas, this.space, this.height);
    this.paint(context, 0, 0);
    if (!this.focused) return;
    const [x, width] = this.placeOf(this.focused);
    context.strokeStyle = this.colours.ink;
    context.lineWidth = 2;
    context.strokeRect(x - 1, AXIS + this.focused.number * LANE + 15, width + 2, LANE_BAR + 2);
  }

  /* An item's left edge and width, within the step. */
  placeOf({from, to, wait, lane}) {
    const scale = (this.space - 16) / this.took;
    const left = 8 + (Math.max(from, this.start) - this.start) * scale;
    if (!wait && lane.thread) return [left - 1, 2];
    return [left, Math.max(1, 8 + (Math.min(to, this.start + this.took) - this.start) * scale - left)];
  }

  paint(pen, left, top) {
    const {colours} = this;
    pen.textBaseline = 'middle';
    pen.textAlign = 'left';
    pen.font = '11px ' + css('--font');
    pen.fillStyle = colours.dim;
    const ticks = Math.max(2, Math.min(8, Math.floor(this.space / 150)));
    for (let i = 0; i <= ticks; i++) {
      const text = duration(((this.took * i) / ticks) * 1000);
      const x = 8 + ((this.space - 16) * i) / ticks;
      const width = pen.measureText(text).width;
      pen.fillText(text, left + Math.max(0, Math.min(this.space - width, x - width / 2)), top + 9);
    }
    this.lanes.forEach((lane, i) => this.paintLane(pen, lane, left, top + AXIS + i * LANE));
  }

  paintLane(pen, lane, left, top) {
    const {colours} = this;
    const {items} = lane;
    pen.globalAlpha = 1;
    pen.font = '11px ' + css('--font');
    pen.fillStyle = colours.dim;
    const fit = (text, room) => fitText(text, room, (shown) => pen.measureText(shown).width);
    pen.fillText(fit(this.nameOf(lane), this.space - 16), left + 8, top + 7);
    pen.fillStyle = colours.line;
    pen.fillRect(left + 8, top + 16 + LANE_BAR, this.space - 16, 1);
    pen.font = '12px ' + css('--font');
    if (lane.use) return paintUseRow(pen, lane.use, {left: left + 8, top: top + LANE - USE_ROW, width: this.space - 16, colours, timeAt: (x) => this.start + (x * this.took) / (this.space - 16)});
    if (lane.source) return this.paintSpans(pen, lane, left, top + 16, fit);
    for (const item of items) {
      const [x, width] = this.placeOf(item);
      pen.fillStyle = colours.frame(item.wait ? 'wait' : this.kindOf(this.nodeOf(item)), 0);
      pen.fillRect(left + x, top + 16, width, LANE_BAR);
      if (!item.wait) continue;
      pen.fillStyle = this.hatch;
      pen.fillRect(left + x, top + 16, width, LANE_BAR);
      pen.fillStyle = colours.text;
      if (width > 40) pen.fillText(fit(this.textOf(item), width - 8), left + x + 4, top + 16 + LANE_BAR / 2);
    }
  }

  /* Bars narrower than a pixel share it: it is as high as the part of its time that they fill. */
  paintSpans(pen, lane, left, top, fit) {
    const {colours} = this;
    const {source, items, gaps} = lane;
    const filled = new Float64Array(Math.ceil(this.space) + 1);
    const kind = source.kind === PHASES ? 'phase' : 'kernel';
    for (const [from, to] of gaps) {
      const [x, width] = this.placeOf({from, to, lane});
      pen.fillStyle = colours.line;
      pen.fillRect(left + x, top, width, LANE_BAR);
      pen.fillStyle = colours.dim;
      if (width > 90) pen.fillText('not recorded', left + x + 4, top + LANE_BAR / 2);
    }
    const scale = (this.space - 16) / this.took;
    for (const item of items) {
      const [x, width] = this.placeOf(item);
      if ((item.to - item.from) * scale < 1) {
        filled[Math.floor(x)] += source.busy[item.at] * scale;
        continue;
      }
      pen.fillStyle = colours.frame(kind, (((source.what[item.at] * 3) % 5) / 4) * (kind === 'phase' ? -1 : 1));
      pen.fillRect(left + x, top, Math.max(1, width - (width > 4 ? 1 : 0)), LANE_BAR);
      pen.fillStyle = colours.text;
      if (width > 40) pen.fillText(fit(this.textOf(item), width - 8), left + x + 4, top + LANE_BAR / 2);
    }
    pen.fillStyle = colours.frame(kind, 1);
    filled.forEach((share, x) => {
      const height = Math.min(1, share) * (LANE_BAR - 4) + 4;
      if (share) pen.fillRect(left + x, top + LANE_BAR - height, 1, height);
    });
  }

  nameOf(lane) {
    const {thread} = lane;
    if (lane.use) return useLaneName(lane.use, this.start, this.start + this.took);
    if (lane.source) return spanLaneName(this.data, this.track, this.step, lane);
    const who = thread.track !== this.data.tracks.indexOf(this.track) ? `rank ${thread.rank}, ` : '';
    if (thread.steps) return `${who}thread ${thread.tid}, which makes the steps`;
    return `${thread.role === 'main' ? '' : `${thread.role} ${thread.pid}, `}thread ${thread.tid}`;
  }

  nodeOf({lane, rows}) {
    return lane.thread.node[rows[0]];
  }

  functionOf(node) {
    return this.data.frames.function[this.data.nodes.frame[node]];
  }

  kindOf(node) {
    const kind = this.data.kindOf[this.functionOf(node)];
    return kind === 'waker' ? 'wait' : this.colours.kinds[kind] ? kind : 'mark';
  }

  /* Names from a node up to its phase: [kind, name, node]. */
  path(node) {
    const out = [];
    for (let at = node; at; at = this.data.nodes.parent[at]) out.push([this.data.kindOf[this.functionOf(at)], this.data.texts[this.data.functions.name[this.functionOf(at)]], at]);
    return out;
  }

  /* "{waiting: sleep} in Rows.load", "gemm (libmkl.so) in Linear.forward". */
  textOf(item) {
    const {source} = item.lane;
    if (source) return spanName(this.data, source, item.at) + (source.merged[item.at] > 1 ? ` and ${source.merged[item.at] - 1} more` : '');
    const path = this.path(this.nodeOf(item));
    const [, what] = path.find(([kind]) => !item.wait || kind === 'wait') ?? path[0];
    const python = path.find(([kind]) => kind === 'python');
    return python && python[1] !== what ? `${what} in ${python[1]}` : what;
  }

  /* Lines that describe an item: [title, details]. */
  describe(item) {
    const ms = (time) => duration(Math.max(0, time - this.start) * 1000);
    const {thread, source, use} = item.lane;
    if (use) return [useLaneName(use, item.from, item.to), [`${ms(item.from)} to ${ms(Math.min(item.to, this.start + this.took))}, by looks a second apart`]];
    const whole = `${ms(item.from)} to ${ms(Math.min(item.to, this.start + this.took))}, `;
    if (source) {
      const merged = source.merged[item.at] > 1 ? [`${plural(source.merged[item.at], 'piece')} of work, busy ${duration(source.busy[item.at] * 1000)}; the longest is named`] : [];
      return [this.textOf(item), [`${whole}${source.kind === PHASES ? 'a phase' : 'work of the GPU'} of ${duration((item.to - item.from) * 1000)}`, ...merged, this.nameOf(item.lane)]];
    }
    const path = this.path(this.nodeOf(item));
    const short = this.kindOf(this.nodeOf(item)) === 'wait' ? `waits too short to tell apart, ${duration(thread.weight[item.rows[0]])} in all` : 'a sample';
    const when = item.wait ? `${whole}a wait of ${duration((item.to - item.from) * 1000)}` : `at ${ms(item.to)}, ${short}`;
    const ended = path.find(([kind]) => kind === 'waker');
    const parts = item.rows.length > 1 ? item.rows.map((row) => `${this.path(thread.node[row])[0][1]} ${duration(thread.weight[row])}`) : [];
    return [this.textOf(item), [`${when}, in ${path[path.length - 1][1]}`, ...(ended ? [ended[1]] : []), ...parts, this.nameOf(item.lane)]];
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const lane = this.lanes[Math.floor((event.clientY - box.top - AXIS) / LANE)];
    const under = (slack) => lane?.items.findLast((item) => this.placeOf(item)[0] - slack <= x && x <= this.placeOf(item)[0] + this.placeOf(item)[1] + slack);
    return under(0) ?? under(3) ?? null;
  }

  pick(item) {
    if (!item) return;
    const {source, use} = item.lane;
    if (use) return;
    if (source) {
      const name = spanName(this.data, source, item.at) + (source.kind === STREAM ? ' (GPU)' : '');
      const wanted = this.data.functions.name.findIndex((text, i) => i && this.data.texts[text] === name);
      if (wanted > 0) this.events.pick(wanted);
      return;
    }
    const path = this.path(this.nodeOf(item));
    this.events.pick(this.functionOf((path.find(([kind]) => kind === 'python') ?? path[0])[2]));
  }

  focus(item) {
    if (!item) return;
    this.focused = item;
    const y = AXIS + item.number * LANE;
    const {scrollTop, clientHeight} = this.scroller;
    if (y < scrollTop || y + LANE > scrollTop + clientHeight) this.scroller.scrollTop = y - clientHeight / 2;
    this.draw();
    this.events.focus(item);
  }

  /* Sideways along a lane; up and down to what another thread did at that time. */
  key(event) {
    const from = this.focused;
    const moves = {ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
    if (event.key === 'Enter' && from) this.pick(from);
    else if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    else if (!from) this.focus(this.lanes[0]?.items[0]);
    else {
      const [down, right] = moves[event.key];
      const items = this.lanes[from.number + down]?.items ?? [];
      const distance = (item) => Math.max(0, item.from - from.to, from.from - item.to);
      this.focus(right ? items[items.indexOf(from) + right] : items.reduce((best, item) => (best && distance(best) <= distance(item) ? best : item), null));
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
