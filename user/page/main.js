/* The page: its state, which its address holds too, and the events that change the state. */

const DEFAULTS = {a: 'all', b: '', track: '', threads: 'steps', phase: '', view: 'icicle', fn: '', lines: '1', squeeze: '1', width: 'both', zoom: '', q: '', theme: ''};

const KEYS = [
  ['/', 'search; Esc leaves it'],
  ['f', 'go to the flame; then arrows move from frame to frame, Enter zooms'],
  ['Esc', 'back to all'],
  ['⌫', 'zoom out by one frame'],
  ['1 … 9', 'select the steps that are slow by the first cause, the second, …'],
  ['d', 'compare the slowest 5 steps with the ordinary ones'],
  ['i', 'bottom up: from where the time went up to who called it'],
  ['s', 'one function: callers and callees of the frame at hand'],
  ['o', 'one step over time: the slowest of those that are selected'],
  ['l', 'per line, or a function as one'],
  ['k', 'chains of Python frames with nothing between them as one box, or in full'],
  ['a b', 'what a drag on the steps selects; Shift-drag is always B'],
  ['[ ]', 'move what is selected a step back or forth'],
  ['{ }', 'make it a step shorter or longer'],
  ['x', 'swap A and B'],
  ['c', 'clear: all steps'],
  ['w', 'the whole time, also outside of steps'],
  ['t', 'light or dark'],
  ['?', 'this'],
];

class App {
  constructor(data) {
    this.data = data;
    this.colours = new Colours();
    this.brush = 'a';
    this.two = data.head.recordings.length > 1;
    this.defaults = {...DEFAULTS, b: this.two ? 'all' : '', ...this.begin()};
    this.state = {...this.defaults};
    this.flame = new Flame(byId('flame-box'), byId('flame'), byId('flame-spacer'), this.colours, {
      hover: (box, event) => this.hover(box, event),
      pick: (box, event) => this.pick(box, event),
      focus: (box) => this.say(box),
    });
    this.table = new Table(byId('table-head'), byId('table-body'), (wanted) => this.set({view: 'sandwich', fn: String(wanted)}));
    this.lanes = new Lanes(byId('lanes-box'), byId('lanes'), this.colours, {
      hover: (item, event) => this.hoverItem(item, event),
      pick: (wanted) => this.set({view: 'sandwich', fn: String(wanted)}),
      focus: (item) => this.sayText(this.lanes.describe(item).flat().join(' · ')),
    });
    this.answer = new Answer(byId('answer'), byId('causes'), (recording, cause, against) => this.pickCause(recording, cause, against));
    this.overviews = [];
    this.wire();
    this.readAddress();
  }

  /* The state that the command line asked for. */
  begin() {
    const {steps, number, pid, all_threads: allThreads} = this.data.head.choice;
    const out = {track: String(this.data.tracks.findIndex((t) => t.recording === 0 && (pid ? t.pid === pid : t.first)))};
    if (pid && out.track === '-1') Object.assign(out, {track: String(this.data.tracks.findIndex((t) => t.recording === 0)), threads: `pid:${pid}`});
    if (allThreads) out.threads = pid ? `pid:${pid}` : 'all';
    if (steps === 'step') out.a = `${number}-${number}`;
    if (steps === 'slowest') out.a = `slow:${number}`;
    return out;
  }

  /* ---- state ---- */

  readAddress() {
    const said = new URLSearchParams(location.hash.slice(1));
    this.state = {...this.defaults};
    for (const key of Object.keys(DEFAULTS)) if (said.has(key)) this.state[key] = said.get(key);
    this.holdAlike();
    this.update();
  }

  set(changes) {
    if (('view' in changes && changes.view !== this.state.view) || 'fn' in changes || 'lines' in changes) changes.zoom ??= '';
    Object.assign(this.state, changes);
    this.holdAlike();
    const said = new URLSearchParams();
    for (const [key, value] of Object.entries(this.state)) if (value !== this.defaults[key]) said.set(key, value);
    this.address = String(said) && '#' + said;
    // The address of a page in srcdoc, as in a notebook, leads to the page around it.
    if (location.protocol !== 'about:' && location.hash !== this.address) location.replace(this.address || '#');
    this.update();
  }

  /* Time per second cannot be held against time per step. */
  holdAlike() {
    const {a, b} = this.state;
    if (this.changed && (a === 'time') !== (b === 'time')) Object.assign(this.state, a === 'time' ? {a: 'all'} : {b: 'all'});
  }

  /*
   * Returns the cached result of make; calls make again when the key, which stands for its inputs,
   * has changed.
   */
  cached(name, key, make) {
    this.cache ??= {};
    if (this.cache[name]?.key !== key) this.cache[name] = {key, value: make()};
    return this.cache[name].value;
  }

  get changed() {
    return this.state.b !== '';
  }

  update() {
    const {state, data} = this;
    document.documentElement.dataset.theme = state.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
    this.colours.refresh();
    this.flame.hatch = null;
    const trackA = data.tracks[state.track] ?? null;
    const trackB = this.two ? (data.tracks.find((t) => t.recording === 1 && t.rank === trackA?.rank) ?? data.tracks.find((t) => t.recording === 1) ?? null) : trackA;
    this.tracks = [trackA, trackB];
    const words = this.tracks.every((track) => track?.count) ? [state.a, state.b] : ['time', 'time'];
    const sets = [this.cached('a', [words[0], state.track], () => chooseSteps(trackA, words[0])), this.changed && this.cached('b', [words[1], state.track], () => chooseSteps(trackB, words[1]))];
    this.sets = sets;
    this.phase = data.head.phases.indexOf(state.phase);
    const numberOf = (track) => (track ? data.tracks.indexOf(track) : -1);
    this.threads = [chooseThreads(data, 0, numberOf(trackA), state.threads), chooseThreads(data, this.two ? 1 : 0, numberOf(trackB), state.threads)];
    const weighed = [state.a, state.b, state.track, state.threads, state.phase].join('&');
    this.weights = this.cached('weights', weighed, () => {
      const [a, b] = sets.map((set, i) => (set ? weigh(data, this.threads[i], set, this.phase) : [0, 0].map(() => new Float64Array(data.nodes.count))));
      return [a[0], b[0], a[1], b[1]];
    });
    /* The whole time is seen per second. */
    this.perStep = !sets.some((set) => set?.wholeTime);
    this.steps = sets.map((set, i) => (set ? (this.perStep ? set.count || 1 : this.seconds(i)) : 1));
    this.sums = this.steps.map((steps, i) => this.weights[i].reduce((x, y) => x + y, 0) / steps);
    this.matches = this.cached('matches', state.q, () => this.search());
    this.show(weighed);
  }

  seconds(which) {
    const {seconds} = this.data.head.recordings[this.two ? which : 0];
    if (seconds) return seconds;
    const last = this.threads[which].reduce((end, t) => Math.max(end, t.count ? t.end[t.count - 1] : 0), 0);
    return last / 1e6 || 1;
  }

  widthOf() {
    const [a, b] = this.steps;
    const of = {a: (x) => x / a, b: (x, y) => y / b, both: (x, y) => Math.max(x / a, y / b)};
    return this.changed ? of[this.state.width] ?? of.both : of.a;
  }

  trees(weighed) {
    const {state, data, weights} = this;
    const lines = state.lines === '1';
    const width = this.widthOf();
    const key = [weighed, state.view, state.fn, state.lines, state.width].join('&');
    return this.cached('trees', key, () => {
      if (state.view === 'sandwich') return sandwich(data, weights, Number(state.fn), lines, width);
      return [(state.view === 'inverted' ? inverted : topDown)(data, weights, lines, width)];
    });
  }

  show(weighed) {
    const {state} = this;
    if (state.view === 'sandwich' && !(Number(state.fn) > 0 && Number(state.fn) < this.data.functions.count)) state.view = 'icicle';
    const trees = this.trees(weighed);
    const keys = state.zoom ? state.zoom.split('.').map(Number) : [];
    this.view = {
      zoom: trees.length > 1 ? 0 : trees[0].find(keys),
      matches: this.matches,
      changed: this.changed,
      squeeze: state.squeeze === '1',
      whole: Math.max(...this.sums),
      steps: this.steps,
      title: `all: ${this.changed ? `A ${duration(this.sums[0])}, B ${duration(this.sums[1])}` : duration(this.sums[0])} ${this.unit}`,
    };
    this.showControls();
    this.answer.show(this.tracks, [state.a, state.b], this.two);
    this.showOverview();
    this.showBody(trees);
    this.table.show(this.data, this.weights, this.view);
    this.say(null);
  }

  /* The step that is drawn over time: the slowest of those that are selected; null: no step. */
  stepOverTime() {
    const set = this.sets[this.changed ? 1 : 0];
    if (!set.track?.count) return null;
    const at = set.track.order.findLast((step) => set.wholeTime || set.steps[step]);
    return at === undefined ? null : {track: set.track, step: at};
  }

  showBody(trees) {
    const timed = this.state.view === 'time' ? this.stepOverTime() : null;
    byId('flame-box').hidden = Boolean(timed);
    byId('lanes-box').hidden = !timed;
    if (!timed) return this.flame.show(trees, this.view);
    Object.assign(this.flame, {trees, view: this.view});
    this.flame.hatch ??= this.flame.makeHatch(byId('flame').getContext('2d'));
    this.lanes.show(this.data, timed.track, timed.step, this.flame.hatch);
  }

  get unit() {
    return this.perStep ? 'per step' : 'per second';
  }

  search() {
    const {texts, functions} = this.data;
    if (!this.state.q) return null;
    let wanted;
    try {
      wanted = new RegExp(this.state.q, 'i');
    } catch {
      wanted = {test: (text) => text.toLowerCase().includes(this.state.q.toLowerCase())};
    }
    return Uint8Array.from(functions.name, (name, i) => (i && (wanted.test(texts[name]) || wanted.test(texts[functions.file[i]])) ? 1 : 0));
  }

  /* For A and for B: the share of the time that is in or below a match. */
  matchedShares() {
    const {nodes, frames} = this.data;
    const inside = new Uint8Array(nodes.count);
    const sums = [0, 0];
    for (let i = 1; i < nodes.count; i++) {
      inside[i] = inside[nodes.parent[i]] | this.matches[frames.function[nodes.frame[i]]];
      if (inside[i]) this.steps.forEach((steps, which) => (sums[which] += this.weights[which][i] / steps));
    }
    return sums.map((sum, which) => (this.sums[which] ? sum / this.sums[which] : 0));
  }

  /* ---- text around the flame ---- */

  showControls() {
    const {state, data} = this;
    for (const button of document.querySelectorAll('[data-view]')) button.setAttribute('aria-pressed', button.dataset.view === state.view);
    for (const button of document.querySelectorAll('[data-brush]')) button.setAttribute('aria-pressed', button.dataset.brush === this.brush);
    this.fillThreads();
    byId('phase').value = state.phase;
    byId('track').value = state.track;
    byId('lines').checked = state.lines === '1';
    byId('squeeze').checked = state.squeeze === '1';
    byId('width').value = state.width;
    byId('width-label').hidden = !this.changed;
    byId('unzoom').disabled = state.view !== 'sandwich' && !this.view.zoom;
    byId('swap').disabled = byId('swap').hidden = this.two || !this.changed;
    if (document.activeElement !== byId('search')) byId('search').value = state.q;
    const shares = this.matches && this.matchedShares();
    byId('matched').textContent = !shares ? '' : this.changed ? `A ${percent(shares[0])}, B ${percent(shares[1])}` : `${percent(shares[0])} matched`;
    byId('chosen').replaceChildren(...this.sets.map((set, i) => set && this.chip(set, i)).filter(Boolean));
    byId('story').replaceChildren(...this.story());
    byId('legend').replaceChildren(...this.legend().map(([kind, name]) => element('span', {}, element('i', {className: 'kind ' + kind}), name)), this.changed ? 'hatched: gone in B' : '');
    document.title = `${data.head.recordings.map((r) => visible(r.file)).join(' → ')} · stepflame`;
  }

  /* [kind, name]: each colour of the page means one thing. */
  legend() {
    const {data} = this;
    const present = this.cached('present', 'kinds', () => new Set([...data.kindOf.slice(1).map((kind) => (kind === 'waker' ? 'wait' : kind)), ...(data.lanes.some((s) => s.kind === STREAM) ? ['kernel'] : [])]));
    const out = KINDS.filter(([kind]) => present.has(kind));
    if (data.tracks.some((t) => t.slow.includes(1))) out.push(['slow', 'slow step']);
    if (this.changed) out.push(['less', 'shorter in B'], ['neutral', 'as long'], ['more', 'longer in B']);
    return out;
  }

  chip(set, which) {
    const letter = element('b', {className: 'letter ' + 'ab'[which]}, 'AB'[which]);
    const text = set.wholeTime ? set.name : `${set.name}: ${plural(set.count, 'step')}, ${duration((set.total / set.count || 0) * 1000)} each`;
    return element('span', {}, letter, ' ' + text);
  }

  /*
   * Says in a sentence what took longer; without a comparison, how much of the time the samples
   * cover.
   */
  story() {
    const strong = (text) => element('b', {}, text);
    const [a, b] = this.sums;
    const timed = this.state.view === 'time' && this.stepOverTime();
    if (timed) return this.storyOfStep(timed);
    if (!this.data.tracks.some((t) => t.recording === 0)) return ['No steps were found in this recording: this is its whole time as one range, ', strong(duration(a)), ' per second.'];
    if (!this.changed) return ['By samples ', strong(duration(a)), ` ${this.unit}`, this.phase >= 0 ? ` in ${this.state.phase}` : ''];
    const {own} = sumFunctions(this.data, this.weights);
    const changes = Array.from(own[0], (_, f) => ({f, ...compare(own, f, this.steps)}));
    const most = changes.filter(({change, error}) => Math.abs(change) > Math.max(2 * error, Math.abs(b - a) * 0.05)).sort((x, y) => Math.abs(y.change) - Math.abs(x.change));
    const parts = most.slice(0, 3).flatMap(({f, change}, i) => [i ? ', ' : ': ', element('bdi', {}, this.data.texts[this.data.functions.name[f]]), ' ', strong(signed(change))]);
    return ['B ', strong(duration(b)), ', A ', strong(duration(a)), ` ${this.unit}: `, strong(signed(b - a)), ...parts];
  }

  /* Phases are exact sums: when in the step they were, only samples say. */
  storyOfStep({track, step}) {
    const spanned = spanLanesOf(this.data, track, step).length;
    const phases = this.data.head.phases.map((name, i) => [name, track.phases[i][step]]).filter(([, us]) => us).sort((x, y) => y[1] - x[1]);
    const parts = phases.map(([name, us]) => `${name} ${duration(us * 1000)}`).join(', ');
    return [element('b', {}, `step ${track.index[step]}: ${duration(track.durations[step] * 1000)}`), ` over time (${parts}). ${spanned ? 'Bars were measured' : 'Bars are waits, measured'}; lines are samples.${gpuUnseen(this.data, track, step)}`];
  }

  fillThreads() {
    const track = this.tracks[0];
    const of = this.data.threads.filter((t) => t.recording === 0 && (!track || t.track === this.data.tracks.indexOf(track)));
    const option = (value, text) => element('option', {value}, text);
    const who = (t) => `pid ${t.pid} (${t.role}${t.rank >= 0 ? `, rank ${t.rank}` : ''})`;
    const processes = [...new Map(of.map((t) => [t.pid, t])).values()];
    byId('threads').replaceChildren(
      option('steps', track ? `that makes the steps (${track.pid}/${track.tid})` : 'of main processes'),
      option('all', 'all'),
      ...processes.map((t) => option(`pid:${t.pid}`, `all of ${who(t)}`)),
      ...of.map((t) => option(`tid:${t.pid}/${t.tid}`, `${who(t)}, thread ${t.tid}`)),
    );
    byId('threads').value = this.state.threads;
  }

  showOverview() {
    this.data.head.recordings.forEach((_, recording) => {
      const track = this.tracks[recording];
      const canvas = byId('strip-' + recording);
      const uses = track ? [] : this.cached(`uses-${recording}`, 'rows', () => usesOf(this.data, recording, -1));
      canvas.parentElement.hidden = !track && !uses.length;
      if (uses.length) this.cached(`use-strip-${recording}`, 'strip', () => new UseStrip(canvas, uses, this.colours, (...said) => this.hoverUse(...said))).draw();
      if (!track) return;
      if (this.overviews[recording]?.track !== track) {
        this.overviews[recording] = new Overview(canvas, this.data, track, this.colours, {
          brush: (first, last, event) => this.brushed(recording, first, last, event),
          hover: (step, event) => this.hoverStep(track, step, event),
          move: (by, grow) => this.moveRange(by, grow),
        });
      }
      const overview = this.overviews[recording];
      const painted = [this.state.threads, this.state.phase, this.state.track, overview.width, document.documentElement.dataset.theme].join('&');
      const drawn = [painted, this.state.a, this.state.b].join('&');
      if (overview.painted !== painted) overview.paint(this.threads[recording], this.phase);
      const sets = [['A', this.sets[0]], ['B', this.sets[1]]];
      if (overview.drawn !== drawn) overview.draw(this.two ? [sets[recording]] : sets);
      Object.assign(overview, {painted, drawn});
    });
    const hidden = (recording) => byId('strip-' + recording).parentElement.hidden;
    byId('overview').hidden = hidden(0) && hidden(1);
    byId('steps-bar').hidden = !this.tracks[0] && !this.tracks[1];
  }

  details(tree, node) {
    const {change, error, errors} = compare(tree.total, node, this.steps);
    const rows = [];
    this.sets.forEach((set, i) => {
      if (!set) return;
      const total = tree.total[i][node] / this.steps[i];
      const own = tree.own[i][node] / this.steps[i];
      const exact = errors[i] < total / 1000;
      rows.push([this.changed ? 'AB'[i] : 'time', `${duration(total)}${exact ? '' : ` ± ${duration(errors[i])}`} ${this.unit}`, this.sums[i] ? percent(total / this.sums[i]) : '', own ? `own ${duration(own)}` : '']);
    });
    if (this.changed) rows.push(['B − A', signed(change), Math.abs(change) > 2 * error ? '' : 'within the error of sampling', '']);
    return rows;
  }

  name(tree, node) {
    if (!node) return ['all', '', ''];
    const wanted = tree.functionOf(node);
    const {file, line} = sourceOf(tree, node);
    return [this.data.texts[this.data.functions.name[wanted]], file && file + (line ? ':' + line : ''), this.data.kindOf[wanted]];
  }

  say(box) {
    const text = box ? [...this.name(box.tree, box.node).filter(Boolean), ...this.details(box.tree, box.node).map((row) => row.filter(Boolean).join(' '))].join(' · ') : '';
    this.sayText(text);
  }

  sayText(text) {
    byId('status').replaceChildren(element('bdi', {}, text));
  }

  hoverItem(item, event) {
    if (!item || !event) return this.tip(null);
    const [title, lines] = this.lanes.describe(item);
    this.tip(event, element('h3', {}, element('bdi', {}, title)), ...lines.map((line) => element('p', {className: 'where'}, element('bdi', {}, line))));
  }

  hover(box, event) {
    if (!box || !event) return this.tip(null);
    const [name, where, kind] = this.name(box.tree, box.node);
    const title = element('h3', {}, element('bdi', {}, name));
    const hidden = [];
    for (let node = box.node, i = 0; i < box.hidden; i++) hidden.unshift(this.name(box.tree, (node = box.tree.parent[node]))[0]);
    this.say(box);
    this.tip(event, element('p', {className: 'where'}, element('bdi', {}, hidden.map((text) => text + ' › ').join(''))), title, element('p', {className: 'where'}, kind && (KINDS.find(([k]) => k === kind)?.[1] ?? ''), where ? ' · ' : '', element('bdi', {}, where)), this.rowsTable(this.details(box.tree, box.node)));
  }

  hoverStep(track, step, event) {
    if (step < 0 || !event) return this.tip(null);
    const took = track.durations[step] * 1000;
    const usual = percentile(track, 50) * 1000;
    const rows = this.data.head.phases.map((name, i) => [name, track.phases[i][step] * 1000]).filter(([, ns]) => ns).sort((x, y) => y[1] - x[1]);
    const cells = rows.map(([name, ns]) => [name, duration(ns), percent(ns / took)]);
    if (track.gc[step]) cells.push(['garbage collection', duration(track.gc[step] * 1000), 'of the above']);
    cells.push(...usesBetween(this.overviews[track.recording].uses, track.start[step], track.end[step]));
    const against = `${duration(took)}, ${usual ? (took / usual).toFixed(2) : '?'} × median${track.slow[step] ? ': slow' : ''}`;
    this.tip(event, element('h3', {}, `step ${track.index[step]}`), element('p', {className: 'where'}, against), this.rowsTable(cells));
  }

  hoverUse(title, rows, event) {
    this.tip(event, element('h3', {}, title), this.rowsTable(rows));
  }

  rowsTable(rows) {
    return element('table', {}, ...rows.map((row) => element('tr', {}, ...row.map((text) => element('td', {}, text)))));
  }

  tip(event, ...children) {
    const tip = byId('tip');
    tip.hidden = !event;
    if (!event) return;
    tip.replaceChildren(...children);
    const {width, height} = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8)) + 'px';
    tip.style.top = (event.clientY + 18 + height < innerHeight ? event.clientY + 18 : Math.max(4, event.clientY - height - 12)) + 'px';
  }

  /* ---- input ---- */

  pick(box, event) {
    this.tip(null);
    if (this.state.view === 'sandwich' || event.altKey) return this.set({view: 'sandwich', fn: String(box.tree.functionOf(box.node))});
    this.set({zoom: box.tree.path(box.node).join('.')});
    this.flame.focus(this.flame.boxes().find((b) => b.node === box.node));
  }

  brushed(recording, first, last, event) {
    const which = this.two ? 'ab'[recording] : event.shiftKey ? 'b' : this.brush;
    const {index} = this.tracks[this.two ? recording : 0];
    this.set({[which]: `${index[first]}-${index[last]}`});
  }

  /* by: how many steps to move the range; grow: make it longer instead. */
  moveRange(by, grow) {
    const which = this.brush;
    const track = this.tracks[which === 'b' ? 1 : 0];
    if (!track) return;
    const range = /^(\d+)-(\d+)$/.exec(this.state[which]);
    const bounded = (step) => Math.max(track.index[0], Math.min(track.index[track.count - 1], step));
    const [first, last] = range ? [Number(range[1]), Number(range[2])] : [track.index[0] - by, track.index[0] - by];
    const start = bounded(first + by);
    this.set({[which]: `${start}-${Math.max(start, bounded(last + by + grow))}`});
  }

  /* Chooses the steps of a cause; a second time, all steps again. against: compares them with ordinary steps. */
  pickCause(recording, cause, against) {
    const word = `cause:${cause}`;
    const which = this.two ? 'ab'[recording] : 'a';
    if (against) this.set({a: 'mid', b: word});
    else this.set({...(this.two ? {} : {b: ''}), [which]: this.state[which] === word ? 'all' : word});
    document.querySelector(`[data-cause="${recording}:${cause}"]`)?.focus();
  }

  clear() {
    this.set({a: 'all', b: this.two ? 'all' : ''});
  }

  wholeTime() {
    this.set({a: 'time', b: this.two ? 'time' : ''});
  }

  swap() {
    if (this.changed && !this.two) this.set({a: this.state.b, b: this.state.a});
  }

  slowest() {
    if (this.tracks[0]) this.set(this.two ? {a: 'slow:5', b: 'slow:5'} : {a: 'mid', b: 'slow:5'});
  }

  toSandwich() {
    const box = this.flame.focused ?? this.flame.hovered;
    const wanted = box?.node ? box.tree.functionOf(box.node) : this.heaviest();
    this.set({view: 'sandwich', fn: String(wanted)});
  }

  /* The function with the most time of its own. */
  heaviest() {
    const own = sumFunctions(this.data, this.weights).own[this.changed ? 1 : 0];
    return own.reduce((best, ns, f) => (f && ns > own[best] ? f : best), 0);
  }

  turnTheme() {
    this.set({theme: document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'});
  }

  setBrush(which) {
    this.brush = which;
    this.showControls();
  }

  /* The same text as `stepflame flame --folded` writes. */
  folded() {
    const {nodes, frames, functions, raw} = this.data;
    const clean = (text) => text.replace(/[\u0000-\u0020;\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, '_');
    const texts = Array.from(frames.function, (f, i) => {
      const file = raw[functions.file[f]];
      return file ? `${clean(file.slice(file.lastIndexOf('/') + 1))}:${clean(raw[functions.name[f]])}${frames.line[i] ? ':' + frames.line[i] : ''}` : clean(raw[functions.name[f]]);
    });
    const lines = [];
    for (let i = 1; i < nodes.count; i++) {
      const us = this.sets.map((set, which) => this.weights[which][i] / 1e3);
      if (us[0] < 0.5 && us[1] < 0.5) continue;
      const path = [];
      for (let at = i; at; at = nodes.parent[at]) path.push(texts[nodes.frame[at]]);
      lines.push(`${path.reverse().join(';')} ${us.slice(0, this.changed ? 2 : 1).map((n) => n.toFixed(0)).join(' ')}\n`);
    }
    return lines.join('');
  }

  download() {
    saveAs(new Blob([this.folded()], {type: 'text/plain'}), 'stepflame.folded');
  }

  picture() {
    const head = this.tracks.flatMap((track, i) => (track?.answer && (this.two || !i) ? [`Limited by ${track.answer.verdict.head}`] : []));
    const chosen = [...byId('chosen').children].map((chip) => chip.textContent).join('   ');
    const lines = [...head, byId('subject').textContent, chosen, byId('story').textContent].filter(Boolean);
    const strips = this.data.head.recordings.map((_, i) => byId('strip-' + i)).filter((canvas) => !canvas.parentElement.hidden);
    return new Picture({lines, strips, body: byId('lanes-box').hidden ? this.flame.body : this.lanes.body, legend: this.legend(), colours: this.colours});
  }

  saveSvg() {
    saveAs(this.picture().svg(), 'stepflame.svg');
  }

  async savePng() {
    saveAs(await this.picture().png(), 'stepflame.png');
  }

  key(event) {
    const typing = event.target.matches('input, select');
    if (document.querySelector('dialog[open]') || event.ctrlKey || event.metaKey || event.altKey || (typing && event.key !== 'Escape')) return;
    const {state} = this;
    const parent = state.zoom.split('.').slice(0, -1).join('.');
    const cause = this.tracks[0]?.answer?.causes[Number(event.key) - 1];
    const act = {
      ...(cause ? {[event.key]: () => this.pickCause(0, Number(event.key) - 1, false)} : {}),
      '/': () => byId('search').focus(),
      'o': () => this.set({view: state.view === 'time' ? 'icicle' : 'time'}),
      'f': () => !byId('lanes-box').hidden ? byId('lanes').focus() : this.flame.focus(this.flame.focused ?? this.flame.rows[0]?.[0]) || byId('flame').focus(),
      'Escape': () => (typing ? event.target.blur() : this.set({zoom: '', ...(state.view === 'sandwich' ? {view: 'icicle'} : {})})),
      'Backspace': () => this.set({zoom: parent}),
      'i': () => this.set({view: state.view === 'inverted' ? 'icicle' : 'inverted'}),
      's': () => (state.view === 'sandwich' ? this.set({view: 'icicle'}) : this.toSandwich()),
      'k': () => this.set({squeeze: state.squeeze === '1' ? '' : '1'}),
      'l': () => this.set({lines: state.lines === '1' ? '' : '1'}),
      'd': () => this.slowest(),
      'a': () => this.setBrush('a'),
      'b': () => this.setBrush('b'),
      '[': () => this.moveRange(-1, 0),
      ']': () => this.moveRange(1, 0),
      '{': () => this.moveRange(0, -1),
      '}': () => this.moveRange(0, 1),
      'x': () => this.swap(),
      'c': () => this.clear(),
      'w': () => this.wholeTime(),
      't': () => this.turnTheme(),
      '?': () => byId('help').showModal(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  wire() {
    const {head, tracks} = this.data;
    const on = (id, what, act) => byId(id).addEventListener(what, act);
    addEventListener('keydown', (event) => this.key(event));
    addEventListener('resize', () => this.update());
    addEventListener('hashchange', () => location.hash === this.address || this.readAddress());
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.update());
    on('search', 'input', (event) => this.set({q: event.target.value}));
    on('view', 'click', ({target}) => target.dataset.view && (target.dataset.view === 'sandwich' ? this.toSandwich() : this.set({view: target.dataset.view})));
    on('brush', 'click', ({target}) => this.setBrush(target.closest('button')?.dataset.brush ?? this.brush));
    for (const id of ['threads', 'phase', 'track', 'width']) on(id, 'change', ({target}) => this.set({[id]: target.value}));
    for (const id of ['lines', 'squeeze']) on(id, 'change', ({target}) => this.set({[id]: target.checked ? '1' : ''}));
    for (const id of ['slowest', 'swap', 'clear', 'wholeTime', 'download']) on(id, 'click', () => this[id]());
    on('save-svg', 'click', () => this.saveSvg());
    on('save-png', 'click', () => this.savePng());
    on('theme', 'click', () => this.turnTheme());
    on('unzoom', 'click', () => this.set({zoom: '', ...(this.state.view === 'sandwich' ? {view: 'icicle'} : {})}));
    on('help-open', 'click', () => byId('help').showModal());
    on('about-open', 'click', () => byId('about').showModal());
    byId('keys').append(...KEYS.flatMap(([keys, text]) => [element('dt', {}, ...keys.split(' ').flatMap((k) => [element('kbd', {}, k), ' '])), element('dd', {}, text)]));
    byId('about-text').append(...head.recordings.flatMap((r) => [element('h3', {}, visible(r.file)), element('pre', {}, r.about.split('\n').map(visible).join('\n'))]));
    byId('subject').textContent = head.recordings.map((r) => `${visible(r.file)} · ${r.about.split('\n')[0].replace(/^window: /, '')}`).join('   →   ');
    byId('subject').title = byId('subject').textContent;
    byId('phase').append(element('option', {value: ''}, 'all'), ...head.phases.map((name) => element('option', {value: name}, name)));
    byId('track').append(...tracks.flatMap((t, i) => (t.recording ? [] : [element('option', {value: i}, `${t.rank >= 0 ? `rank ${t.rank}, ` : ''}pid ${t.pid}`)])));
    byId('track').hidden = byId('track').length < 2;
    if (this.two) byId('slowest').textContent = 'compare the slowest 5 of each';
    byId('brush').hidden = this.two;
  }
}

let app; /* global, so that the browser's console can reach it */

async function main() {
  const wait = byId('wait');
  wait.hidden = false;
  try {
    const data = await readData(byId('data').textContent);
    byId('data').remove();
    byId('app').hidden = false;
    app = new App(data);
    wait.remove();
  } catch (error) {
    wait.textContent = `This page cannot be shown: ${error.message}. It needs a browser of 2023 or later.`;
    throw error;
  }
}

main();
