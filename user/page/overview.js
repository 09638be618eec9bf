/*
 * Draws the steps of a recording: a strip of their durations, and below it a heat map of what the
 * chosen threads did in each step (downwards: time since the step's start), and the lines of uses.js.
 * The reader brushes ranges on all of it.
 */

const STRIP = 76;
const HEAT = 112;
const GAP = 16; /* between strip and heat map: lanes for the chosen steps, A above B */
const LEFT = 84; /* width of the axis */
const USES_TOP = STRIP + GAP + HEAT + 22; /* below the numbers of the steps: what was used */
const CELL = 4; /* of the heat map, in pixels */
const PAINTS_MAX = 3e7; /* in a forged recording, overlapping waits could take forever */
const ACTIVITIES = ['python', 'op', 'native', 'kernel', 'wait'];

class Overview {
  /* events: brush(first, last, event), with indexes of steps; hover(step or -1, event), move(by, grow) */
  constructor(canvas, data, track, colours, events) {
    Object.assign(this, {canvas, data, track, colours, events, sets: []});
    this.uses = usesOf(data, track.recording, track.pid);
    this.grid = element('canvas');
    const longest = percentile(track, 100);
    /* Longer steps are cut off at this duration, and marked. */
    this.top = Math.min(longest, Math.max(percentile(track, 99) * 1.15, percentile(track, 50) * 4)) * 1.04 || 1;
    canvas.addEventListener('pointerdown', (event) => this.begin(event));
    canvas.addEventListener('pointermove', (event) => this.move(event));
    canvas.addEventListener('pointerup', (event) => this.end(event));
    canvas.addEventListener('pointercancel', () => (this.from = undefined));
    canvas.addEventListener('pointerleave', () => this.events.hover(-1));
    canvas.addEventListener('keydown', (event) => this.key(event));
  }

  get width() {
    return Math.max(50, this.canvas.parentElement.clientWidth - LEFT);
  }

  /* Arrows move the choice, and with Shift its end. */
  key(event) {
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    this.events.move(event.shiftKey ? 0 : by, event.shiftKey ? by : 0);
    event.preventDefault();
  }

  stepAt(event) {
    const x = event.clientX - this.canvas.getBoundingClientRect().left - LEFT;
    return Math.max(0, Math.min(this.track.count - 1, Math.floor((x * this.track.count) / this.width)));
  }

  get height() {
    return USES_TOP + this.uses.length * USE_ROW;
  }

  /* The instant at a place from the left edge of the first step. */
  timeAt(x) {
    const {track, width} = this;
    const step = Math.min(track.count - 1, Math.floor((x * track.count) / width));
    return track.start[step] + Math.min(1, (x * track.count) / width - step) * track.durations[step];
  }

  xOf(step) {
    return LEFT + (step * this.width) / this.track.count;
  }

  begin(event) {
    if (event.button) return;
    this.from = this.to = this.stepAt(event);
    this.canvas.setPointerCapture(event.pointerId);
    this.draw();
  }

  move(event) {
    const step = this.stepAt(event);
    this.events.hover(step, event);
    if (this.from === undefined) return;
    this.to = step;
    this.draw();
  }

  end(event) {
    if (this.from === undefined) return;
    const range = [this.from, this.to].sort((x, y) => x - y);
    this.from = undefined;
    this.events.brush(...range, event);
  }

  /* By column of pixels: [median, longest, slow] of the durations of its steps. */
  columns() {
    const {track, width} = this;
    const count = Math.min(track.count, Math.floor(width));
    if (this.made?.length === count) return this.made;
    return (this.made = Array.from({length: count}, (_, column) => {
      const first = Math.floor((column * track.count) / count);
      const last = Math.max(first + 1, Math.floor(((column + 1) * track.count) / count));
      const sorted = track.durations.slice(first, last).sort();
      return [sorted[rankOf(sorted.length, 50)], sorted[sorted.length - 1], track.slow.subarray(first, last).includes(1)];
    }));
  }

  /* Paints what the threads did; runs once for each choice of threads. */
  paint(threads, phase) {
    const {track, data} = this;
    const columns = Math.min(track.count, Math.floor(this.width));
    const rows = Math.floor(HEAT / CELL);
    const cells = new Float32Array(columns * rows * ACTIVITIES.length);
    const activity = Int8Array.from({length: data.nodes.count}, (_, node) => {
      const kind = data.kindOf[data.frames.function[data.nodes.frame[node]]];
      return phase >= 0 && data.phaseOf[node] !== phase ? -1 : Math.max(0, ACTIVITIES.indexOf(kind === 'waker' ? 'wait' : kind));
    });
    const grid = {cells, columns, rows, left: PAINTS_MAX};
    for (const thread of threads) this.paintThread(thread, activity, grid);
    this.cells = {cells, columns, rows};
    this.colour();
  }

  paintThread(thread, activity, grid) {
    const {track} = this;
    rowSteps(thread, track);
    for (let i = 0, before = 0; i < thread.count; i++) {
      const end = thread.end[i];
      const what = activity[thread.node[i]];
      /*
       * A timer's sample stands for as much time before it as it weighs, but not beyond the
       * previous sample.
       */
      const start = Math.max(0, thread.span[i] ? end - thread.span[i] : Math.max(before, end - thread.weight[i] / 1000));
      before = Math.max(before, end);
      if (what < 0) continue;
      const first = thread.span[i] ? thread.firstStep[i] : thread.step[i];
      for (let step = Math.max(0, first); step <= thread.step[i] && grid.left-- > 0; step++)
        this.paintSpan(step, Math.max(start, track.start[step]) - track.start[step], Math.min(end, track.end[step]) - track.start[step], what, grid);
    }
  }

  /*
   * The time at which a row of cells begins. Rows further down cover more time, so that the slowest
   * steps leave room for the usual durations.
   */
  rowStart(row, rows) {
    return this.top * (row / rows) ** 2;
  }

  paintSpan(step, from, to, what, {cells, columns, rows}) {
    const column = Math.floor((step * columns) / this.track.count);
    for (let row = Math.floor(Math.sqrt(from / this.top) * rows); row < rows && this.rowStart(row, rows) < to; row++) {
      const covered = Math.min(to, this.rowStart(row + 1, rows)) - Math.max(from, this.rowStart(row, rows));
      if (covered > 0) cells[(column * rows + row) * ACTIVITIES.length + what] += covered;
    }
  }

  /* Hue: what took the most time. Strength: how much of the time is known. */
  colour() {
    const {cells, columns, rows} = this.cells;
    const {colours} = this;
    const perColumn = Math.max(1, this.track.count / columns);
    Object.assign(this.grid, {width: columns, height: rows});
    const context = this.grid.getContext('2d');
    const image = context.createImageData(columns, rows);
    for (let at = 0; at < columns * rows; at++) {
      const part = cells.subarray(at * ACTIVITIES.length, (at + 1) * ACTIVITIES.length);
      const sum = part.reduce((x, y) => x + y, 0);
      if (!sum) continue;
      const rgb = [0, 0, 0];
      part.forEach((value, what) => colours.kinds[ACTIVITIES[what]].forEach((c, i) => (rgb[i] += (c * value) / sum)));
      const row = at % rows;
      const full = (this.rowStart(row + 1, rows) - this.rowStart(row, rows)) * perColumn;
      const pixel = 4 * (Math.floor(at / rows) + row * columns);
      image.data.set([...rgb, 70 + 185 * Math.min(1, sum / full)], pixel);
    }
    context.putImageData(image, 0, 0);
  }

  /* sets: the sets of steps to mark, each [name, chosen steps]; A is drawn solid and B dashed. */
  draw(sets = this.sets) {
    this.sets = sets;
    const {colours, track, width} = this;
    const context = fitCanvas(this.canvas, width + LEFT, this.height);
    context.font = '11px ' + css('--font');
    context.textBaseline = 'middle';
    const scale = STRIP / this.top;
    const columns = this.columns();
    const columnWidth = width / columns.length;
    columns.forEach(([median, longest, slow], i) => {
      const x = LEFT + i * columnWidth;
      const bar = Math.max(columnWidth - (columnWidth > 3 ? 1 : 0), 0.7);
      const height = (value) => Math.min(STRIP, value * scale);
      context.fillStyle = slow ? colours.slow : colours.dim;
      context.globalAlpha = 0.35;
      context.fillRect(x, STRIP - height(longest), bar, height(longest));
      context.globalAlpha = slow ? 1 : 0.75;
      const solid = columns.length === track.count ? longest : median;
      context.fillRect(x, STRIP - height(solid), bar, height(solid));
      context.globalAlpha = 1;
      if (longest > this.top) context.fillRect(x, 0, Math.max(bar, 2), 3);
    });
    context.imageSmoothingEnabled = false;
    context.drawImage(this.grid, LEFT, STRIP + GAP, width, HEAT);
    this.drawAxes(context, scale);
    paintUses(context, this.uses, {top: USES_TOP, width, colours, timeAt: (x) => this.timeAt(x)});
    sets.forEach(([name, set], lane) => set && !set.wholeTime && !set.every && this.drawSet(context, lane, name, set));
    if (this.from !== undefined) this.drawBand(context, Math.min(this.from, this.to), Math.max(this.from, this.to) + 1, []);
  }

  drawAxes(context, scale) {
    const {colours, track, width} = this;
    const levels = [['p50', percentile(track, 50)], ['p99', percentile(track, 99)]];
    let below = Infinity;
    for (const [name, value] of levels) {
      const y = Math.max(0.5, STRIP - value * scale);
      context.strokeStyle = colours.ink;
      context.globalAlpha = 0.55;
      context.setLineDash(name === 'p99' ? [2, 3] : [6, 3]);
      context.beginPath();
      context.moveTo(LEFT, y);
      context.lineTo(LEFT + width, y);
      context.stroke();
      context.setLineDash([]);
      context.globalAlpha = 1;
      context.fillStyle = colours.ink;
      context.textAlign = 'right';
      const text = Math.min(Math.max(6, y), below - 12);
      context.fillText(`${name} ${duration(value * 1000).replace(' ', '\u2009')}`, LEFT - 6, text);
      below = text;
    }
    context.fillStyle = colours.dim;
    const heat = STRIP + GAP;
    context.fillText('0', LEFT - 6, heat + 6);
    for (const time of [percentile(track, 50), this.top])
      context.fillText(duration(time * 1000).replace(' ', '\u2009'), LEFT - 6, heat + Math.min(HEAT - 6, Math.sqrt(time / this.top) * HEAT));
    context.strokeStyle = colours.line;
    context.strokeRect(LEFT - 0.5, heat - 0.5, width + 1, HEAT + 1);
    const labels = Math.max(1, Math.min(8, Math.floor(width / 130), track.count));
    for (let i = 0; i <= labels; i++) {
      const step = Math.min(track.count - 1, Math.round((i * track.count) / labels));
      context.textAlign = i === 0 ? 'left' : i === labels ? 'right' : 'center';
      context.fillText((i === 0 ? 'step ' : '') + track.index[step], this.xOf(i === labels ? track.count : step), heat + HEAT + 10);
    }
  }

  /*
   * Marks the chosen steps in the lane of their set; if they are one run, also across strip and
   * heat map.
   */
  drawSet(context, lane, name, set) {
    const first = set.steps.indexOf(1);
    const last = set.steps.lastIndexOf(1);
    if (first < 0) return;
    if (last - first + 1 === set.count) this.drawBand(context, first, last + 1, name === 'B' ? [4, 3] : []);
    const y = STRIP + 2 + lane * 6.5;
    context.fillStyle = context.strokeStyle = this.colours.ink;
    for (let i = first, from, drawn = 0; i <= last; i++) {
      if (!set.steps[i] || this.xOf(i + 1) < drawn) continue;
      for (from = i; set.steps[i + 1]; ) i++;
      drawn = Math.max(this.xOf(from) + 2, this.xOf(i + 1));
      if (name === 'B' && drawn - this.xOf(from) > 3) context.strokeRect(this.xOf(from) + 0.5, y + 0.5, drawn - this.xOf(from) - 1, 4);
      else context.fillRect(this.xOf(from), y, drawn - this.xOf(from), 5);
    }
    context.textAlign = 'right';
    context.font = 'bold 9px ' + css('--font');
    context.fillText(name, LEFT - 6 - 12 * (1 - lane), STRIP + GAP / 2);
  }

  drawBand(context, first, last, dash) {
    const x = this.xOf(first);
    const width = Math.max(2, this.xOf(last) - x);
    context.fillStyle = context.strokeStyle = this.colours.ink;
    context.globalAlpha = 0.1;
    const height = this.uses.length ? this.height : STRIP + GAP + HEAT;
    context.fillRect(x, 0, width, height);
    context.globalAlpha = 1;
    context.lineWidth = 1;
    context.setLineDash(dash);
    context.strokeRect(x + 0.5, 0.5, width - 1, height - 1);
    context.setLineDash([]);
  }
}
