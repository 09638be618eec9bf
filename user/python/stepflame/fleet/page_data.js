/* Unpacks what page.py packed, and makes figures of its bytes. Texts come from programs of others: the page shows them as text, never as markup. */

const STEPS = ['forward', 'backward', 'optimizer', 'data', 'comm', 'checkpoint', 'validation', 'transfer', 'await', 'jit', 'compile', 'other'];

/* Shows characters that could steer the display as escapes. */
const visible = (text) =>
  String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, (c) => {
    const code = c.codePointAt(0);
    return code < 0x100 ? '\\x' + code.toString(16).padStart(2, '0') : '\\u' + code.toString(16);
  });

const whole = (count) => Math.round(count).toLocaleString('en').replaceAll(',', '\u2009');
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? '' : 's'}`;
/* Three significant digits. */
const digits = (value) => {
  const size = Math.abs(value);
  return size >= 99.95 ? whole(value) : value.toFixed(size >= 9.995 ? 1 : size >= 0.9995 || !size ? 2 : 3);
};
const duration = (ns) => (Math.abs(ns) >= 1e9 ? digits(ns / 1e9) + ' s' : Math.abs(ns) >= 1e6 || !ns ? digits(ns / 1e6) + ' ms' : digits(ns / 1e3) + ' µs');
const signed = (ns) => (ns > 0 ? '+' : ns < 0 ? '−' : '±') + duration(Math.abs(ns));
const percent = (share) => (share < 0 ? '−' : '') + Math.abs(100 * share).toFixed(1) + ' %';
const excess = (share) => (share > 0 ? '+' : '') + percent(share);

/* element('b', {className: 'x', onclick}, 'text', child): texts become text nodes. */
function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}
const byId = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* What page.py's _folded folded. */
const unfolded = (code, knee, steps) => (code <= steps ? (code / steps) * knee : knee * 2 ** ((code - steps) / 6));
const ownOf = (code) => Math.sign(code - 128) * unfolded(Math.abs(code - 128), 0.2, 80);
const phaseOf = (code) => unfolded(code, 1, 200);
const longestOf = (code) => 2 ** ((code - 1) / 8);

async function unpack(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  const plain = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = new DataView(plain.buffer).getUint32(0, true);
  return new Data(JSON.parse(new TextDecoder().decode(plain.subarray(4, 4 + size))), plain.subarray(4 + size));
}

class Data {
  constructor(head, bytes) {
    Object.assign(this, head);
    this.rows = this.ranks.length;
    this.bytes = new Map();
    this.none = new Uint8Array(this.rows * this.count);
    let at = 0;
    for (const [name, size] of head.planes) {
      this.bytes.set(name, bytes.subarray(at, at + size));
      at += size;
    }
    this.withDetails = new Set(head.details.rows);
  }

  /* Bytes of a figure, rank by rank. */
  plane(name) {
    return this.bytes.get(name) ?? this.none;
  }

  hostOf(row) {
    return visible(this.hosts[this.host[row]]);
  }

  /* "rank 7", or "process 123" of one that has no rank. */
  nameOf(row) {
    return this.ranks[row] < 0 ? `process ${-this.ranks[row]}` : `rank ${this.ranks[row]}`;
  }

  /* "10:20", with the day where it is asked for. */
  time(column, day = false) {
    return new Date((this.first + column * this.width) * 60000).toISOString().slice(day ? 0 : 11, 16).replace('T', ' ');
  }

  seen(row, column) {
    return this.plane('own')[row * this.count + column] > 0;
  }

  /* Nanoseconds of a step by phase, of a rank and of the median rank: [[phase, its, median]]. */
  phases(row, column) {
    const at = row * this.count + column;
    const all = STEPS.map((phase) => [phase, phaseOf(this.plane(phase)[at]) * this.usual, this.usualPhases[phase]?.[column] ?? 0]);
    return all.filter(([, its, usual]) => its || usual);
  }

  own(row, column) {
    return this.usualOwn[column] + this.excess(row, column) * this.usualStep[column];
  }

  excess(row, column) {
    const code = this.plane('own')[row * this.count + column];
    return code && ownOf(code);
  }

  /* By how much a rank is above the others, over all times. */
  badness(row) {
    let sum = 0;
    for (let column = 0; column < this.count; column++) sum += Math.max(0, this.excess(row, column));
    return sum / this.count;
  }

  /* [[phase, cause, place, ns]] of a step, longest first; [[path, share]] */
  waits(row, column) {
    const {waits, texts} = this.details;
    return this.pick(waits, row, column).map((i) => [texts[waits[2][i]], texts[waits[3][i]], texts[waits[4][i]], waits[5][i] * 1000]);
  }

  stacks(row, column) {
    const {stacks, texts} = this.details;
    return this.pick(stacks, row, column).map((i) => [texts[stacks[2][i]], stacks[3][i] / 1000]);
  }

  /* [[machine, path, pid]] of what was recorded of a rank at that time, the latest first. */
  recordingsOf(row, column) {
    const {rows, texts} = this.recordings;
    const [from, to] = [this.first + column * this.width, this.first + (column + 1) * this.width];
    const out = [];
    for (let i = 0; i < (rows[0]?.length ?? 0); i++) if (rows[0][i] === row && rows[4][i] < to && rows[5][i] >= from) out.push([texts[rows[2][i]], texts[rows[3][i]], rows[1][i]]);
    return out;
  }

  pick(columns, row, column) {
    const out = [];
    for (let i = 0; i < (columns[0]?.length ?? 0); i++) if (columns[0][i] === row && columns[1][i] === column) out.push(i);
    return out;
  }
}
