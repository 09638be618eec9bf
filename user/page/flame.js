/*
 * Draws the flame on its canvas: frames as boxes, callers above. The canvas is as large as its
 * visible part; scrolling draws the rest. In a sandwich, the callers of a function grow upwards
 * from it, and its callees downwards.
 */

const ROW = 20;
const LEAST = 0.4; /* narrower boxes are not drawn */

class Flame {
  /* events: hover(box or null, event), pick(box), focus(box) */
  constructor(scroller, canvas, spacer, colours, events) {
    Object.assign(this, {scroller, canvas, spacer, colours, events});
    this.rows = [];
    this.hovered = this.focused = null;
    this.widths = new Map();
    scroller.addEventListener('scroll', () => this.draw());
    canvas.addEventListener('pointermove', (event) => this.hover(this.at(event), event));
    canvas.addEventListener('pointerleave', () => this.hover(null));
    canvas.addEventListener('click', (event) => {
      const box = this.at(event);
      if (box) this.events.pick(box, event);
    });
    canvas.addEventListener('keydown', (event) => this.key(event));
  }

  /*
   * trees: one tree, or for a sandwich the callers and the callees.
   * view: {zoom, matches, changed, whole, steps, title, squeeze}
   */
  show(trees, view) {
    Object.assign(this, {trees, view});
    this.layout();
    const same = this.focused && this.boxes().find((b) => b.key === this.focused.key && b.row === this.focused.row);
    this.focused = same ?? null;
    this.hovered = null;
    this.draw();
  }

  boxes() {
    return this.rows.flat();
  }

  layout() {
    const [first, second] = this.trees;
    this.space = this.scroller.clientWidth;
    this.names = new Map();
    this.placed = new Map();
    if (second) {
      /* In both trees, the root's child is the function itself. */
      this.place(first, 0, 2, (depth) => -depth);
      this.place(second, 0, 1, (depth) => depth - 2);
    } else {
      const above = [];
      for (let node = this.view.zoom; node; node = first.parent[node]) above.unshift(first.parent[node]);
      for (let i = above.length - 1; i > 0; i--) if (this.isLink(first, above[i - 1], above[i])) above.splice(i - 1, 1);
      above.forEach((node, row) => this.add(first, node, 0, this.space, row));
      this.place(first, this.view.zoom, 0, (depth) => depth + above.length);
    }
    const top = Math.min(...this.placed.keys());
    this.rows = [];
    for (const [row, boxes] of this.placed) {
      this.rows[row - top] = boxes;
      for (const box of boxes) box.row = row - top;
    }
    /* Where the page is narrow, the box is as high as it has to be. */
    this.spacer.style.height = 0;
    this.spacer.style.height = Math.max(this.rows.length * ROW + 8, this.scroller.clientHeight - 1) + 'px';
  }

  add(tree, node, x, width, row, hidden = 0) {
    if (!this.placed.has(row)) this.placed.set(row, []);
    this.placed.get(row).push({tree, node, x, width, hidden, key: tree.key[node]});
  }

  /*
   * Is the child the next link of a chain: a Python frame that has nearly all the time of the frame
   * above it? Only the last frame of a chain is drawn.
   */
  isLink(tree, node, child) {
    const isPython = (n) => n && tree.data.kindOf[tree.functionOf(n)] === 'python';
    const {squeeze, matches} = this.view;
    return squeeze && !matches?.[tree.functionOf(node)] && isPython(node) && isPython(child) && tree.width[child] >= 0.995 * tree.width[node];
  }

  /*
   * Places the boxes from a node down until they are too narrow. Draws only those at depth `from`
   * or deeper.
   */
  place(tree, top, from, rowOf) {
    const scale = tree.width[top] ? this.space / tree.width[top] : 0;
    let level = [{node: top, x: 0}];
    for (let depth = 0; level.length; depth++) {
      const next = [];
      for (const {node, x, hidden} of level) {
        if (depth >= from) this.add(tree, node, x, tree.width[node] * scale, rowOf(depth), hidden);
        let at = x;
        for (const child of tree.childrenOf(node)) {
          const width = tree.width[child] * scale;
          /* Children are sorted by width, except for phases, so the rest is narrower. */
          if (width < LEAST && node) break;
          let last = child;
          let links = 0;
          for (let [below] = tree.childrenOf(last); below && this.isLink(tree, last, below); [below] = tree.childrenOf(last)) {
            last = below;
            links++;
          }
          if (width >= LEAST) next.push({node: last, x: at, hidden: links});
          at += width;
        }
      }
      level = next;
    }
  }

  draw() {
    const height = this.scroller.clientHeight;
    const context = fitCanvas(this.canvas, this.space, height);
    const top = this.scroller.scrollTop;
    const first = Math.max(0, Math.floor((top - ROW) / ROW));
    this.paint(context, first, Math.ceil((top + height) / ROW), 0, 4 - top);
    this.outline(context, this.hovered, top, 1.5);
    this.outline(context, this.focused, top, 2.5);
  }

  /* Draws rows from `first` to before `end`; (left, top): where the first of all rows begins. */
  paint(context, first, end, left, top) {
    context.font = '12px ' + css('--font');
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    this.hatch ??= this.makeHatch(this.canvas.getContext('2d'));
    for (let row = first; row < this.rows.length && row < end; row++)
      for (const box of this.rows[row] ?? []) this.drawBox(context, box, left, row * ROW + top);
  }

  /* For an image: all rows. */
  get body() {
    return {width: this.space, height: this.rows.length * ROW, paint: (pen, x, y) => this.paint(pen, 0, Infinity, x, y)};
  }

  makeHatch(context) {
    const tile = element('canvas', {width: 8, height: 8});
    const pen = tile.getContext('2d');
    pen.strokeStyle = this.colours.text;
    pen.globalAlpha = 0.22;
    for (const shift of [-8, 0, 8]) {
      pen.moveTo(shift, 8);
      pen.lineTo(shift + 8, 0);
    }
    pen.stroke();
    return context.createPattern(tile, 'repeat');
  }

  drawBox(context, box, left, y) {
    const {tree, node} = box;
    const {colours, view} = this;
    const x = left + box.x;
    const wanted = tree.functionOf(node);
    const kind = node ? tree.data.kindOf[wanted] : 'phase';
    const {a, b, error} = compare(tree.total, node, view.steps);
    const width = Math.max(box.width - (box.width > 3 ? 1 : 0), 0.5);
    const shade = ((tree.data.functions.file[wanted] * 2654435761) % 7) / 3 - 1;
    context.globalAlpha = view.matches && !view.matches[wanted] ? 0.28 : 1;
    context.fillStyle = view.changed ? colours.change(a, b, error, view.whole) : colours.frame(kind, kind === 'python' ? shade : 0);
    context.fillRect(x, y, width, ROW - 1);
    if (view.changed ? !b : kind === 'wait' || kind === 'waker') {
      context.fillStyle = this.hatch;
      context.fillRect(x, y, width, ROW - 1);
    }
    if (view.matches?.[wanted] && node) {
      context.fillStyle = colours.match;
      context.fillRect(x, y + ROW - 4, width, 3);
    }
    if (width > 22) this.label(context, box, width - 8, x + 4, y + ROW / 2 - 0.5);
    context.globalAlpha = 1;
  }

  label(context, box, room, x, y) {
    const {name: alone, where} = this.nameOf(box);
    const name = box.hidden ? `⋯${box.hidden} › ${alone}` : alone;
    context.fillStyle = this.colours.text;
    const shown = this.fit(context, name, room);
    context.fillText(shown, x, y);
    if (shown !== name || !where) return;
    const used = this.measure(context, name) + 8;
    if (room - used < 40) return;
    context.globalAlpha *= 0.62;
    context.fillText(this.fit(context, where, room - used), x + used, y);
  }

  nameOf({tree, node}) {
    const id = tree.functionOf(node) * 2 ** 21 + (tree.lines && node ? tree.data.frames.line[tree.key[node]] : 0);
    if (!node) return {name: this.view.title, where: ''};
    if (!this.names.has(id)) {
      const {file, line} = sourceOf(tree, node);
      const short = file.slice(file.lastIndexOf('/') + 1);
      this.names.set(id, {name: tree.data.texts[tree.data.functions.name[tree.functionOf(node)]], where: file && short + (line ? ':' + line : '')});
    }
    return this.names.get(id);
  }

  measure(context, text) {
    let width = this.widths.get(text);
    if (width === undefined) {
      if (this.widths.size > 20000) this.widths.clear();
      this.widths.set(text, (width = context.measureText(text).width));
    }
    return width;
  }

  fit(context, text, room) {
    return fitText(text, room, (shown) => this.measure(context, shown));
  }

  outline(context, box, top, thickness) {
    if (!box) return;
    context.strokeStyle = this.colours.ink;
    context.lineWidth = thickness;
    context.strokeRect(box.x + thickness / 2, box.row * ROW - top + 4 + thickness / 2, Math.max(box.width - thickness, 1), ROW - 1 - thickness);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const row = Math.floor((event.clientY - box.top + this.scroller.scrollTop - 4) / ROW);
    return this.rows[row]?.find((b) => x >= b.x && x < b.x + Math.max(b.width, 1)) ?? null;
  }

  hover(box, event) {
    if (box !== this.hovered) {
      this.hovered = box;
      this.draw();
    }
    this.events.hover(box, event);
  }

  focus(box) {
    if (!box) return;
    this.focused = box;
    const y = box.row * ROW;
    const {scrollTop, clientHeight} = this.scroller;
    if (y < scrollTop || y + ROW > scrollTop + clientHeight) this.scroller.scrollTop = y - clientHeight / 2;
    this.draw();
    this.events.focus(box);
  }

  /* Moves from box to box: up and down to callers and callees, sideways along a row. */
  key(event) {
    const from = this.focused;
    const moves = {ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
    if (event.key === 'Enter' && from) this.events.pick(from, event);
    else if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    else if (!from) this.focus(this.rows[0]?.[0]);
    else {
      const [down, right] = moves[event.key];
      const row = this.rows[from.row + down] ?? [];
      if (right) this.focus(row[row.indexOf(from) + right]);
      else this.focus(this.nearest(row, from));
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /* The widest box of a row among those directly above or below the box `from`. */
  nearest(row, from) {
    const touching = row.filter((b) => b.x < from.x + from.width && from.x < b.x + b.width);
    return touching.reduce((best, b) => (!best || b.width > best.width ? b : best), null);
  }
}

/* File and line of a node; where lines are merged, the line at which its function begins. */
function sourceOf(tree, node) {
  const {data} = tree;
  const wanted = tree.functionOf(node);
  const line = tree.lines ? data.frames.line[tree.key[node]] : data.functions.firstLine[wanted];
  return {file: data.texts[data.functions.file[wanted]], line};
}
