/*
 * Unpacks the data that user/page/data.c packed: numbers (LEB128) and texts, column by column, in
 * gzip.
 */

async function unpack(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

const unfold = (value) => (value % 2 ? -(value + 1) / 2 : value / 2);

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
    this.decoder = new TextDecoder();
  }

  number() {
    let byte = this.bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127;
    for (let factor = 128; byte > 127; factor *= 128) {
      byte = this.bytes[this.at++];
      value += (byte & 127) * factor;
    }
    return value;
  }

  signed() {
    return unfold(this.number());
  }

  text() {
    const length = this.number();
    this.at += length;
    return this.decoder.decode(this.bytes.subarray(this.at - length, this.at));
  }

  column(count, Type) {
    const column = new Type(count);
    for (let i = 0; i < count; i++) column[i] = this.number();
    return column;
  }
}

function readTree(reader) {
  const raw = Array.from({length: reader.number()}, () => reader.text());
  let count = reader.number();
  const functions = {
    count,
    kind: reader.column(count, Uint8Array),
    name: reader.column(count, Uint32Array),
    file: reader.column(count, Uint32Array),
    firstLine: reader.column(count, Uint32Array),
  };
  count = reader.number();
  const frames = {count, function: reader.column(count, Uint32Array), line: reader.column(count, Uint32Array)};
  count = reader.number();
  const parent = reader.column(count, Uint32Array);
  for (let i = 0; i < count; i++) parent[i] = i - parent[i];
  return {raw, texts: raw.map(visible), functions, frames, nodes: {count, parent, frame: reader.column(count, Uint32Array)}};
}

function readTrack(reader, phaseCount) {
  const track = {recording: reader.number(), pid: reader.number(), tid: reader.number(), rank: reader.number() - 1, rule: reader.text()};
  const count = (track.count = reader.number());
  const gaps = new Float64Array(count);
  for (let i = 0; i < count; i++) gaps[i] = reader.signed();
  const durations = reader.column(count, Float64Array);
  track.start = new Float64Array(count);
  track.end = new Float64Array(count);
  for (let i = 0, end = 0; i < count; i++) {
    track.start[i] = end + gaps[i];
    end = track.end[i] = track.start[i] + durations[i];
  }
  track.durations = durations;
  track.index = new Float64Array(count);
  for (let i = 0, index = 0; i < count; i++) track.index[i] = index += reader.signed();
  track.gc = reader.column(count, Float64Array);
  track.phases = Array.from({length: phaseCount}, () => reader.column(count, Float64Array));
  track.slow = new Uint8Array(count);
  for (let i = reader.number(), step = 0; i > 0; i--) track.slow[(step += reader.signed())] = 1;
  track.order = Uint32Array.from(durations, (_, i) => i).sort((a, b) => durations[a] - durations[b] || b - a);
  return track;
}

const ROLES = ['main', 'child', 'worker'];

function readThread(reader) {
  const thread = {recording: reader.number(), pid: reader.number(), tid: reader.number(), role: ROLES[reader.number()] ?? 'process'};
  thread.rank = reader.number() - 1;
  thread.track = reader.number() - 1;
  const flags = reader.number();
  thread.steps = Boolean(flags & 1);
  thread.main = Boolean(flags & 2);
  const count = (thread.count = reader.number());
  thread.end = new Float64Array(count);
  for (let i = 0, end = 0; i < count; i++) thread.end[i] = end += reader.signed();
  thread.weight = reader.column(count, Float64Array);
  thread.span = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    const code = reader.number();
    if (code) thread.span[i] = Math.floor(thread.weight[i] / 1000) + unfold(code - 1);
  }
  thread.node = reader.column(count, Uint32Array);
  return thread;
}

/* Times in microseconds; reach: until when what came so far lasts. */
function readLane(reader) {
  const lane = {recording: reader.number(), kind: reader.number(), pid: reader.number(), tid: reader.number(), device: reader.number(), context: reader.number(), stream: reader.number()};
  const count = (lane.count = reader.number());
  const gaps = Array.from({length: count}, () => reader.signed());
  const durations = reader.column(count, Float64Array);
  for (const name of ['from', 'to', 'reach', 'busy']) lane[name] = new Float64Array(count);
  for (let i = 0, end = 0, reach = 0; i < count; i++) {
    lane.from[i] = (end + gaps[i]) / 1000;
    end += gaps[i] + durations[i];
    lane.to[i] = end / 1000;
    lane.reach[i] = reach = Math.max(reach, lane.to[i]);
    lane.busy[i] = (durations[i] - reader.number()) / 1000;
  }
  lane.merged = reader.column(count, Uint32Array);
  lane.what = reader.column(count, Uint32Array);
  return lane;
}

/* Times in microseconds; a value holds until the next one. */
function readUse(reader) {
  const use = {recording: reader.number(), kind: reader.number(), pid: reader.number(), device: reader.number()};
  use.count = reader.number();
  for (const name of ['time', 'value']) {
    use[name] = new Float64Array(use.count);
    for (let i = 0, at = 0; i < use.count; i++) use[name][i] = at += reader.signed();
  }
  return use;
}

/* The interpreter's own code counts as Python. */
const INTERPRETER = /\((lib)?python[\w.]*\)$/;

/*
 * Derives the kind as which each function is drawn, and the phase of each node (an index into
 * head.phases).
 */
function derive(data) {
  const {functions, frames, nodes, texts, head} = data;
  data.kindOf = Array.from(functions.kind, (kind, i) => {
    const name = head.kinds[kind] ?? 'mark';
    return name === 'native' && INTERPRETER.test(texts[functions.name[i]]) ? 'python' : name;
  });
  data.phaseOf = new Uint8Array(nodes.count);
  for (let i = 1; i < nodes.count; i++) {
    const name = texts[functions.name[frames.function[nodes.frame[i]]]];
    data.phaseOf[i] = nodes.parent[i] ? data.phaseOf[nodes.parent[i]] : head.phases.indexOf(name);
  }
}

async function readData(base64) {
  const reader = new Reader(await unpack(base64));
  const head = JSON.parse(reader.text());
  const data = {head, ...readTree(reader)};
  data.tracks = Array.from({length: reader.number()}, () => readTrack(reader, head.phases.length));
  data.threads = Array.from({length: reader.number()}, () => readThread(reader));
  data.laneTexts = Array.from({length: reader.number()}, () => visible(reader.text()));
  data.lanes = Array.from({length: reader.number()}, () => readLane(reader));
  data.uses = Array.from({length: reader.number()}, () => readUse(reader));
  derive(data);
  attachAnswers(data);
  return data;
}
