/* The map: a row for each rank, or for each host, and a column for each time. Where a line of pixels has several rows, it shows the worst of them. */

const byCode = (value) => Float32Array.from({length: 256}, (_, code) => value(code));
const within = (value, most) => Math.max(-1, Math.min(1, value / most));

/*
 * plane: the bytes that it reads. strength: by code, 0 as usual to 1 (-1: the other way). bad: the colour of 1. empty: code 0 says that
 * nothing was seen. scale: texts below the legend.
 */
const MEASURES = {
  own: {
    title: 'own time', plane: 'own', bad: '--more', good: '--less', empty: true, scale: ['−10 %', 'as the others', '+10 % of a step'],
    about: 'What a rank does itself in a step, without the time in collectives, against the median rank of that time. Who is longer is whom the others wait for.',
    strength: byCode((code) => within(ownOf(code), 0.1)),
  },
  alone: {
    title: 'own without GPU', plane: 'alone', bad: '--more', good: '--less', empty: true, scale: ['−10 %', 'as the others', '+10 % of a step'],
    about: 'The same without waits for the GPU, too: where collectives run on the GPU, these are also waits for other ranks. What is left is the host’s.',
    strength: byCode((code) => within(ownOf(code), 0.1)),
  },
  comm: {
    title: 'comm wait', plane: 'comm', bad: '--wait', empty: true, scale: ['0 %', '', '50 % of a usual step'],
    about: 'Time in collectives. Where one rank is slow, all others wait in them: the slow one is pale among them.',
    strength: byCode((code) => within(phaseOf(code), 0.5)),
  },
  data: {
    title: 'data wait', plane: 'data', bad: '--more', empty: true, scale: ['0 %', '', '30 % of a usual step'],
    about: 'Time until a step has its batch.',
    strength: byCode((code) => within(phaseOf(code), 0.3)),
  },
  clock: {
    title: 'GPU clock', plane: 'mhz', bad: '--more', good: '--less', empty: true, scale: ['+20 %', 'as usual', '−20 %'],
    about: 'The clock of the GPU against the median of the job: one that is throttled is slower.',
    strength: byCode((code) => within(1 - code / 100, 0.2)),
  },
  stalls: {
    title: 'longest step', plane: 'longest', bad: '--more', empty: true, scale: ['a usual step', '', '16 times as long, or more'],
    about: 'The longest step of each time. A column: all ranks stood still; who made them wait shows in “own time”.',
    strength: byCode((code) => within(Math.log2(longestOf(code)), 4)),
  },
  seen: {
    title: 'not seen', plane: 'seen', bad: '--less', scale: ['recorded', '', 'not at all'],
    about: 'How much of each time was not recorded: a rank that was not attached yet, had ended, or was left alone for a budget. Nothing else on this page knows of it.',
    strength: byCode((code) => 1 - code / 200),
  },
};

const GUTTER = 84; // left, for names
const BADGES = 26; // right, for the numbers of findings
const PACE = 46; // above
const AXIS = 20; // below

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

class Heat {
  constructor(box, canvas, data) {
    Object.assign(this, {box, canvas, data, lines: [], top: 0, shown: 1, marked: -1, cursor: null});
  }

  /* lines: arrays of rows; a line of the map each. */
  arrange(lines) {
    this.lines = lines;
    this.lineOf = new Int32Array(this.data.rows);
    lines.forEach((rows, line) => rows.forEach((row) => (this.lineOf[row] = line)));
    this.all();
  }

  all() {
    this.view(0, this.lines.length);
  }

  view(top, shown) {
    this.shown = Math.max(Math.min(8, this.lines.length), Math.min(this.lines.length, shown));
    this.top = Math.max(0, Math.min(this.lines.length - this.shown, top));
  }

  /* Zooms by a factor, around a line. */
  zoom(factor, line) {
    const share = (line - this.top) / this.shown;
    const shown = Math.max(Math.min(8, this.lines.length), Math.min(this.lines.length, this.shown * factor));
    this.view(line - share * shown, shown);
  }

  /* Makes a line visible. */
  reach(line) {
    if (line < this.top) this.view(line, this.shown);
    if (line + 1 > this.top + this.shown) this.view(line + 1 - this.shown, this.shown);
  }

  /* The place below a point of the canvas: {line, column}, or null. */
  at(x, y) {
    const {left, top, width, height} = this.area;
    if (x < left || x >= left + width || y < top || y >= top + height) return null;
    return {line: Math.min(this.lines.length - 1, Math.floor(this.top + ((y - top) / height) * this.shown)), column: Math.floor(((x - left) / width) * this.data.count)};
  }

  /* Of the rows that a pixel stands for, the worst at that time. */
  worstAt({line, column}) {
    const plane = this.data.plane(this.measure.plane);
    const perPixel = Math.max(1, Math.ceil(this.shown / this.area.height));
    let best = this.lines[line][0];
    for (let i = line; i < Math.min(line + perPixel, this.lines.length); i++)
      for (const row of this.lines[i]) if (this.weight[plane[row * this.data.count + column]] > this.weight[plane[best * this.data.count + column]]) best = row;
    return best;
  }

  /* Colours by code, as a canvas has them in memory, and which of two codes a shared pixel shows. */
  prepare(measure) {
    this.measure = MEASURES[measure];
    const {strength, bad, good, empty} = this.measure;
    const [neutral, most, least, none] = ['--neutral', bad, good ?? bad, '--none'].map((name) => rgb(css(name)));
    this.colours = new Uint32Array(256);
    this.weight = new Float32Array(256);
    for (let code = 0; code < 256; code++) {
      const to = strength[code] < 0 ? least : most;
      const share = Math.abs(strength[code]);
      const mixed = empty && !code ? none : neutral.map((value, i) => Math.round(value + (to[i] - value) * share));
      this.colours[code] = (255 << 24) | (mixed[2] << 16) | (mixed[1] << 8) | mixed[0];
      this.weight[code] = empty && !code ? -2 : strength[code] < 0 ? strength[code] / 1000 : strength[code];
    }
  }

  draw(measure) {
    this.prepare(measure);
    const [width, height] = [this.box.clientWidth, this.box.clientHeight];
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this.canvas, {width: Math.round(width * ratio), height: Math.round(height * ratio)});
    this.canvas.style.width = width + 'px';
    this.canvas.style.height = height + 'px';
    const context = this.canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.area = {left: GUTTER, top: PACE, width: Math.max(1, width - GUTTER - BADGES), height: Math.max(1, height - PACE - AXIS)};
    this.drawCells(context, Math.round(this.area.height * ratio));
    context.font = '11px ' + css('--font');
    this.drawPace(context);
    this.drawAxis(context);
    this.drawNames(context);
    this.drawFindings(context);
    if (this.cursor) this.outline(context, this.cursor.line, this.cursor.line + 1, this.cursor.column, this.cursor.column + 1, css('--ink'), 2);
  }

  drawCells(context, pixels) {
    const {count} = this.data;
    const height = Math.min(pixels, Math.max(1, Math.ceil(this.shown)) * Math.max(1, Math.floor(pixels / this.shown)));
    const image = new ImageData(count, height);
    const words = new Uint32Array(image.data.buffer);
    const plane = this.data.plane(this.measure.plane);
    for (let y = 0; y < height; y++) {
      const first = Math.floor(this.top + (y / height) * this.shown);
      const end = Math.min(this.lines.length, Math.max(first + 1, Math.floor(this.top + ((y + 1) / height) * this.shown)));
      for (let column = 0; column < count; column++) {
        let code = plane[this.lines[first][0] * count + column];
        for (let line = first; line < end; line++) {
          for (const row of this.lines[line]) {
            const other = plane[row * count + column];
            if (this.weight[other] > this.weight[code]) code = other;
          }
        }
        words[y * count + column] = this.colours[code];
      }
    }
    this.scratch ??= document.createElement('canvas');
    Object.assign(this.scratch, {width: count, height});
    this.scratch.getContext('2d').putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    const {left, top, width, height: tall} = this.area;
    context.drawImage(this.scratch, left, top, width, tall);
  }

  /* The step of the median rank: when the job became slower. */
  drawPace(context) {
    const {left, width} = this.area;
    const {usualStep, count} = this.data;
    const most = Math.max(...usualStep);
    if (!most) return;
    const room = PACE - 10;
    context.fillStyle = css('--dim');
    usualStep.forEach((ns, column) => {
      const tall = (ns / most) * room;
      context.globalAlpha = 0.55;
      context.fillRect(left + (column / count) * width, PACE - 4 - tall, Math.max(1, width / count - (width / count > 4 ? 1 : 0)), tall);
    });
    context.globalAlpha = 1;
    context.textAlign = 'right';
    context.textBaseline = 'top';
    context.fillText('a step', left - 8, 6);
    context.fillText(duration(most), left - 8, 20);
  }

  drawAxis(context) {
    const {left, top, width, height} = this.area;
    const {count} = this.data;
    context.fillStyle = css('--dim');
    context.textAlign = 'center';
    context.textBaseline = 'top';
    const every = [1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 1440].find((minutes) => (minutes / this.data.width / count) * width >= 52) ?? 2880;
    for (let column = 0; column < count; column++) {
      const minute = this.data.first + column * this.data.width;
      if (minute % every >= this.data.width) continue;
      const x = left + ((column + 0.5) / count) * width;
      context.fillRect(x, top + height, 1, 3);
      context.fillText(this.data.time(column), x, top + height + 4);
    }
  }

  /* Names of lines where there is room, else of some. */
  drawNames(context) {
    const {left, top, height} = this.area;
    const tall = height / this.shown;
    const {data} = this;
    const hosts = this.byHost;
    context.fillStyle = css('--dim');
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    let free = -Infinity;
    let last = null;
    for (let line = Math.floor(this.top); line < Math.min(this.lines.length, Math.ceil(this.top + this.shown)); line++) {
      const row = this.lines[line][0];
      const host = data.host[row];
      const y = top + (line - this.top) * tall;
      if (hosts && last !== null && host !== last && tall * 8 > 6) {
        context.fillStyle = css('--panel');
        context.fillRect(left, y - 0.5, this.area.width, 1);
        context.fillStyle = css('--dim');
      }
      const named = !hosts || host !== last || this.grouped;
      last = host;
      const centre = Math.max(y + Math.min(tall / 2, 8), top + 6);
      if (!named || centre < free) continue;
      const text = hosts ? data.hostOf(row) : data.nameOf(row);
      context.fillText(text.length > 13 ? '…' + text.slice(-12) : text, left - 8, centre);
      free = centre + Math.max(14, hosts ? 14 : 0);
    }
  }

  /* Lines of a finding that follow one another: [first, end]. */
  runs(finding) {
    const lines = [...new Set(finding.rows.map((row) => this.lineOf[row]))].sort((a, b) => a - b);
    if (!lines.length) return [[0, this.lines.length]];
    const out = [];
    for (const line of lines) {
      if (out.length && out.at(-1)[1] === line) out.at(-1)[1]++;
      else out.push([line, line + 1]);
    }
    return out;
  }

  drawFindings(context) {
    const colour = css('--mark');
    const taken = [];
    this.data.findings.forEach((finding, number) => {
      const marked = number === this.marked;
      const runs = this.runs(finding);
      for (const [first, end] of runs.slice(0, 200)) {
        for (const [begin, stop] of finding.times) this.outline(context, first, end, begin, stop, colour, marked ? 2.5 : 1, marked ? 1 : 0.75);
      }
      const [first, end] = runs[0];
      const centre = finding.rows.length ? (first + end) / 2 : this.top;
      if (centre < this.top || centre > this.top + this.shown) return;
      const {left, top, width, height} = this.area;
      let y = top + ((centre - this.top) / this.shown) * height;
      while (taken.some((other) => Math.abs(other - y) < 15)) y += 15;
      taken.push(y);
      context.fillStyle = colour;
      context.fillRect(left + width + 5, y - 7, 17, 14);
      context.fillStyle = css('--panel');
      context.textAlign = 'center';
      context.textBaseline = 'middle';
      context.fillText(String(number + 1), left + width + 13.5, y + 0.5);
    });
  }

  /* Around lines and columns; where they are thinner than a line, beside them. */
  outline(context, first, end, begin, stop, colour, thick, alpha = 1) {
    const {left, top, width, height} = this.area;
    const yOf = (line) => top + ((line - this.top) / this.shown) * height;
    const [a, b] = [Math.max(top - 3, yOf(first) - thick / 2), Math.min(top + height + 3, yOf(end) + thick / 2)];
    if (b < top || a > top + height) return;
    const pad = Math.max(0, (7 - (b - a)) / 2);
    const x = left + (begin / this.data.count) * width;
    context.globalAlpha = alpha;
    context.strokeStyle = colour;
    context.lineWidth = thick;
    context.strokeRect(x - thick / 2, a - pad, ((stop - begin) / this.data.count) * width + thick, b - a + 2 * pad);
    context.globalAlpha = 1;
  }
}
