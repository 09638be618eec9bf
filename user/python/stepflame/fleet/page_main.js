/* The page: what is shown, and the events that change it. */

const KEYS = [
  ['← → ↑ ↓', 'move on the map; Page up and Page down by a screen, Home and End to the first and the last time'],
  ['Enter', 'show what is there'],
  ['+ −', 'zoom; the wheel does so, too, and a drag moves'],
  ['Esc', 'all ranks'],
  ['1 … 9', 'go to what was found'],
  ['m', 'colour by the next measure'],
  ['o', 'the next order'],
  ['h', 'a row for each host, or for each rank'],
  ['/', 'go to a rank or a host'],
  ['t', 'light or dark'],
  ['?', 'this'],
];
const ORDERS = ['rank', 'host', 'slowest'];

class App {
  constructor(data) {
    this.data = data;
    this.state = {measure: 'own', order: 'rank', group: false, theme: '', marked: -1};
    this.heat = new Heat(byId('heat-box'), byId('heat'), data);
    this.badness = Float64Array.from({length: data.rows}, (_, row) => data.badness(row));
    this.fill();
    this.wire();
    this.arrange();
  }

  /* ---- what does not change ---- */

  fill() {
    const {data} = this;
    const end = data.time(data.count, true);
    byId('subject').textContent = `job ${visible(data.job)} · cluster ${visible(data.cluster)} · ${plural(data.rows, 'rank')} on ${plural(data.hosts.length, 'host')} · ${data.time(0, true)} to ${end} UTC · seen ${percent(data.seen_share)} of it`;
    /* What no rank has is not offered. */
    this.measures = Object.keys(MEASURES).filter((name) => name === 'own' || data.bytes.has(MEASURES[name].plane));
    byId('measure').replaceChildren(...this.measures.map((name) => element('button', {onclick: () => this.set({measure: name})}, MEASURES[name].title)));
    const found = data.findings.map((finding, number) => {
      const button = element('button', {onclick: () => this.mark(number)}, element('span', {className: 'number'}, String(number + 1)), element('span', {}, visible(finding.said)));
      const because = element('ul', {className: 'because', hidden: true}, ...finding.because.map((text) => element('li', {}, visible(text))));
      return element('li', {}, button, because);
    });
    byId('findings').replaceChildren(...(found.length ? found : data.nothing.map((text) => element('li', {className: 'dim'}, visible(text)))));
    if (data.left_out.length) byId('found').append(element('h3', {}, 'Left out'), ...data.left_out.map((text) => element('p', {className: 'dim'}, visible(text))));
    byId('worst-rows').replaceChildren(...data.worst.filter((row) => this.badness[row] > 0).map((row) => this.worstRow(row)));
    byId('keys').replaceChildren(...KEYS.flatMap(([key, text]) => [element('dt', {}, element('kbd', {}, key)), element('dd', {}, text)]));
  }

  worstRow(row) {
    let at = 0;
    for (let column = 1; column < this.data.count; column++) if (this.data.excess(row, column) > this.data.excess(row, at)) at = column;
    const cells = [this.data.nameOf(row), this.data.hostOf(row), this.data.time(at), excess(this.data.excess(row, at)), excess(this.badness[row])];
    const go = () => this.go(row, at);
    const name = element('td', {}, element('button', {onclick: (event) => (event.stopPropagation(), go())}, cells[0]));
    return element('tr', {onclick: go}, name, ...cells.slice(1).map((text) => element('td', {}, text)));
  }

  /* ---- state ---- */

  set(changes) {
    Object.assign(this.state, changes);
    if ('order' in changes || 'group' in changes) this.arrange();
    else this.draw();
  }

  arrange() {
    const {data, state, heat} = this;
    const rows = Array.from({length: data.rows}, (_, row) => row);
    let lines = rows.map((row) => [row]);
    if (state.group) {
      const hosts = new Map();
      for (const row of rows) hosts.set(data.host[row], [...(hosts.get(data.host[row]) ?? []), row]);
      lines = [...hosts.values()];
    }
    const worst = (line) => Math.max(...line.map((row) => this.badness[row]));
    if (state.order === 'slowest') lines.sort((a, b) => worst(b) - worst(a));
    if (state.order === 'host') lines.sort((a, b) => data.host[a[0]] - data.host[b[0]] || data.ranks[a[0]] - data.ranks[b[0]]);
    heat.grouped = state.group;
    heat.byHost = state.group || state.order === 'host';
    heat.cursor = null;
    heat.arrange(lines);
    this.draw();
  }

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.drawNow();
    });
  }

  drawNow() {
    const {state, heat} = this;
    document.documentElement.dataset.theme = state.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
    heat.marked = state.marked;
    heat.draw(state.measure);
    this.measures.forEach((name, i) => (byId('measure').children[i].ariaPressed = String(name === state.measure)));
    byId('order').value = state.order;
    byId('group').checked = state.group;
    byId('about').textContent = MEASURES[state.measure].about;
    [...byId('findings').children].forEach((item, number) => {
      if (!item.querySelector('button')) return;
      item.querySelector('button').ariaPressed = String(number === state.marked);
      item.querySelector('ul').hidden = number !== state.marked;
    });
    this.legend();
  }

  legend() {
    const {scale, good, bad} = MEASURES[this.state.measure];
    const bar = element('canvas', {width: 120, height: 10});
    const context = bar.getContext('2d');
    const colours = context.createLinearGradient(0, 0, 120, 0);
    const stops = good ? [good, '--neutral', bad] : ['--neutral', bad];
    stops.forEach((name, i) => colours.addColorStop(i / (stops.length - 1), css(name)));
    context.fillStyle = colours;
    context.fillRect(0, 0, 120, 10);
    const [low, middle, high] = scale;
    byId('legend').replaceChildren(low, bar, high, ...(middle ? [element('span', {}, `(middle: ${middle})`)] : []));
  }

  /* ---- places ---- */

  /* A finding: its rows are made visible, and marked. */
  mark(number) {
    const finding = this.data.findings[number];
    if (!finding) return;
    const marked = this.state.marked === number ? -1 : number;
    const {heat} = this;
    this.state.marked = marked;
    if (marked >= 0 && finding.rows.length) {
      const [first, end] = heat.runs(finding)[0];
      const shown = Math.min(heat.lines.length, Math.max(40, 3 * (end - first)));
      heat.view((first + end - shown) / 2, shown);
      this.place(first, finding.times[0]?.[0] ?? 0);
    } else heat.all();
    this.draw();
  }

  go(row, column) {
    const line = this.heat.lineOf[row];
    if (this.heat.shown > 200) this.heat.view(line - 20, 40);
    this.place(line, column, row);
    this.show();
  }

  /* Puts the cursor on a line and a column. */
  place(line, column, row = null) {
    const {heat, data} = this;
    heat.cursor = {line: Math.max(0, Math.min(heat.lines.length - 1, line)), column: Math.max(0, Math.min(data.count - 1, column)), row};
    heat.reach(heat.cursor.line);
    byId('status').textContent = this.says(this.row(), heat.cursor.column).join(' · ');
    this.draw();
  }

  row() {
    return this.heat.cursor.row ?? this.heat.worstAt(this.heat.cursor);
  }

  /* One line on a rank at a time. */
  says(row, column) {
    const {data} = this;
    const at = row * data.count + column;
    const out = [data.nameOf(row), data.hostOf(row), data.time(column)];
    if (!data.seen(row, column)) return [...out, data.plane('seen')[at] ? 'no step ended' : data.plane('rested')[at] ? 'left alone for a budget' : 'not seen'];
    out.push(`own time ${duration(data.own(row, column))} of a step (${excess(data.excess(row, column))} against the others)`);
    out.push(`in collectives ${duration(phaseOf(data.plane('comm')[at]) * data.usual)}`, `longest step ${duration(longestOf(data.plane('longest')[at]) * data.usual)}`);
    const mhz = data.plane('mhz')[at];
    if (mhz) out.push(`GPU ${Math.round((mhz / 100) * data.mhz)} MHz`);
    if (data.plane('rested')[at]) out.push(`left alone for ${percent(data.plane('rested')[at] / 200)} of it`);
    return out;
  }

  /* Details of the place at hand. */
  show() {
    const {data, heat} = this;
    if (!heat.cursor) return;
    const row = this.row();
    const {column} = heat.cursor;
    const parts = [element('h2', {}, `${data.nameOf(row)} on ${data.hostOf(row)} at ${data.time(column, true)}`)];
    parts.push(element('p', {className: 'dim'}, this.says(row, column).slice(3).join(' · ')));
    parts.push(...this.opens(row, column));
    if (data.seen(row, column)) parts.push(...this.figures(row, column));
    byId('details').replaceChildren(...parts);
    byId('details').scrollIntoView({block: 'nearest'});
  }

  figures(row, column) {
    const {data} = this;
    const phases = data.phases(row, column).map(([phase, its, usual]) => {
      const far = Math.abs(its - usual) > 0.01 * data.usual;
      const change = element('td', {className: far ? (its > usual ? 'more' : 'less') : ''}, far ? signed(its - usual) : '–');
      return element('tr', {}, element('td', {}, phase), element('td', {}, duration(its)), element('td', {}, duration(usual)), change);
    });
    const head = (...names) => element('tr', {}, ...names.map((name) => element('th', {scope: 'col'}, name)));
    const out = [element('h3', {}, 'A step, by phase'), element('table', {}, head('', 'it', 'median rank', ''), ...phases)];
    if (!data.withDetails.has(row)) return [...out, element('p', {className: 'dim'}, 'Waits and stacks of this rank are not in the page: it has those of what was found, and of the slowest.')];
    const waits = data.waits(row, column);
    const texts = (...cells) => element('tr', {}, ...cells.map((text, i) => element('td', {className: i ? 'text' : ''}, visible(text))));
    if (waits.length) out.push(element('h3', {}, 'Waits in a step'), element('table', {}, ...waits.slice(0, 8).map(([phase, cause, place, ns]) => texts(duration(ns), `${cause} in ${phase}`, place))));
    const stacks = data.stacks(row, column);
    if (stacks.length) {
      out.push(element('h3', {}, 'Where its samples are'));
      for (const [path, share] of stacks) {
        const frames = visible(path).split(' > ');
        out.push(element('p', {className: 'stack', title: frames.join('\n')}, `${percent(share)} `, element('b', {}, frames.at(-1)), element('span', {className: 'dim'}, ' < ' + frames.slice(0, -1).reverse().join(' < '))));
      }
    }
    return out;
  }

  /* The commands that open the recordings of that time. */
  opens(row, column) {
    const found = this.data.recordingsOf(row, column);
    if (!found.length) return [];
    const quoted = (text) => (/^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
    const shown = found.slice(0, 5).map(([machine, path, pid]) => element('p', {}, visible(`${machine}: `), element('code', {}, visible(`stepflame flame ${quoted(path)} -p ${pid}`))));
    const more = found.length > shown.length ? [element('p', {className: 'dim'}, `and ${found.length - shown.length} more`)] : [];
    return [element('h3', {}, 'Recordings that had it when they were imported'), ...shown, ...more];
  }

  /* ---- events ---- */

  wire() {
    const canvas = byId('heat');
    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    new ResizeObserver(() => this.draw()).observe(byId('heat-box'));
    canvas.addEventListener('pointermove', (event) => this.move(event, point(event)));
    canvas.addEventListener('pointerleave', () => (byId('tip').hidden = true));
    canvas.addEventListener('pointerdown', (event) => {
      this.drag = {y: point(event)[1], top: this.heat.top, far: false};
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointerup', (event) => {
      const place = this.heat.at(...point(event));
      if (place && this.drag && !this.drag.far) {
        this.place(place.line, place.column, this.heat.worstAt(place));
        this.show();
      }
      this.drag = null;
    });
    canvas.addEventListener('wheel', (event) => {
      const place = this.heat.at(...point(event));
      if (!place) return;
      event.preventDefault();
      this.heat.zoom(event.deltaY < 0 ? 0.8 : 1.25, place.line);
      this.draw();
    }, {passive: false});
    canvas.addEventListener('keydown', (event) => this.key(event));
    byId('order').onchange = (event) => this.set({order: event.target.value});
    byId('group').onchange = (event) => this.set({group: event.target.checked});
    byId('whole').onclick = () => this.whole();
    byId('theme').onclick = () => this.turn();
    byId('help-open').onclick = () => byId('help').showModal();
    byId('search').addEventListener('keydown', (event) => event.key === 'Enter' && this.search(event.target.value.trim()));
    document.addEventListener('keydown', (event) => this.shortcut(event));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
  }

  whole() {
    this.state.marked = -1;
    this.heat.all();
    this.draw();
  }

  turn() {
    this.set({theme: document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'});
  }

  move(event, [x, y]) {
    const tip = byId('tip');
    if (this.drag && Math.abs(y - this.drag.y) > 4) this.drag.far = true;
    if (this.drag?.far) {
      this.heat.view(this.drag.top - ((y - this.drag.y) / this.heat.area.height) * this.heat.shown, this.heat.shown);
      tip.hidden = true;
      return this.draw();
    }
    const place = this.heat.at(x, y);
    tip.hidden = !place;
    if (!place) return;
    const [name, host, time, ...texts] = this.says(this.heat.worstAt(place), place.column);
    tip.replaceChildren(element('h3', {}, `${name} · ${host} · ${time}`), ...texts.map((text) => element('p', {}, text)));
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = (event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18) + 'px';
  }

  /* Keys of the map. */
  key(event) {
    const {heat, data} = this;
    const {line, column} = heat.cursor ?? {line: Math.floor(heat.top), column: 0};
    /* on a map where a line of pixels stands for several ranks, a step is such a line */
    const step = Math.max(1, Math.round(heat.shown / heat.area.height));
    const page = Math.floor(heat.shown * 0.8);
    const to = {
      ArrowLeft: [line, column - 1], ArrowRight: [line, column + 1], ArrowUp: [line - step, column], ArrowDown: [line + step, column],
      PageUp: [line - page, column], PageDown: [line + page, column], Home: [line, 0], End: [line, data.count - 1],
    }[event.key];
    if (to) this.place(...(heat.cursor ? to : [line, column]));
    else if (event.key === 'Enter' && heat.cursor) this.show();
    else if ('+=-'.includes(event.key)) {
      heat.zoom(event.key === '-' ? 1.25 : 0.8, line + 0.5);
      this.draw();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  shortcut(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId('help').open) return;
    if (/^(INPUT|SELECT)$/.test(event.target.tagName)) {
      if (event.key === 'Escape') byId('heat').focus();
      return;
    }
    const next = (all, now) => all[(all.indexOf(now) + 1) % all.length];
    const does = {
      '/': () => byId('search').focus(), '?': () => byId('help').showModal(), t: () => this.turn(), Escape: () => this.whole(),
      m: () => this.set({measure: next(this.measures, this.state.measure)}), o: () => this.set({order: next(ORDERS, this.state.order)}),
      h: () => this.set({group: !this.state.group}),
    }[event.key];
    if (does) does();
    else if (/^[1-9]$/.test(event.key)) this.mark(Number(event.key) - 1);
    else return;
    event.preventDefault();
  }

  search(text) {
    const {data} = this;
    const number = Number(text.replace(/^rank\s*/i, ''));
    let row = text && Number.isInteger(number) ? data.ranks.indexOf(number) : -1;
    if (row < 0 && text) row = data.host.findIndex((host) => data.hosts[host] === text);
    if (row < 0 && text) row = data.host.findIndex((host) => data.hosts[host].includes(text));
    if (row < 0) byId('status').textContent = `no rank or host ${visible(text)}`;
    else {
      this.go(row, this.heat.cursor?.column ?? 0);
      byId('heat').focus();
    }
  }
}

let app;
byId('wait').hidden = false;
unpack(byId('data').textContent).then((data) => {
  byId('wait').hidden = true;
  byId('app').hidden = false;
  app = new App(data);
});
