/*
 * Trees to draw: the call tree itself, or one made of it (with lines merged, from the leaves up, or
 * the callers and callees of a function). `own` and `total` hold nanoseconds of A and B, and the
 * squares of their errors; `key` is a frame or, with lines merged, a function.
 */
class Tree {
  constructor(data, lines) {
    this.data = data;
    this.lines = lines;
    this.parent = [0];
    this.key = [0];
    this.children = new Map();
    this.own = [[0], [0], [0], [0]];
  }

  keyOf(frame) {
    return this.lines ? frame : this.data.frames.function[frame];
  }

  functionOf(node) {
    return this.lines ? this.data.frames.function[this.key[node]] : this.key[node];
  }

  child(node, key) {
    /* Both numbers are below 2^26: no browser opens a page with more. */
    const id = node * 67108864 + key;
    let found = this.children.get(id);
    if (found === undefined) {
      found = this.parent.length;
      this.children.set(id, found);
      this.parent.push(node);
      this.key.push(key);
      for (const column of this.own) column.push(0);
    }
    return found;
  }

  /*
   * Computes totals, and sorts children into the order in which they are drawn. width(a, b): the
   * width of a node's own time.
   */
  finish(width) {
    const count = (this.count = this.parent.length);
    const {parent, own} = this;
    this.children = null;
    this.width = new Float64Array(count);
    this.total = own.map((ns) => Float64Array.from(ns));
    for (let i = 0; i < count; i++) this.width[i] = width(own[0][i], own[1][i]);
    for (let i = count - 1; i > 0; i--) {
      this.width[parent[i]] += this.width[i];
      for (const column of this.total) column[parent[i]] += column[i];
    }
    this.first = new Uint32Array(count + 2);
    for (let i = 1; i < count; i++) if (this.width[i] > 0) this.first[parent[i] + 2]++;
    for (let i = 2; i < count + 2; i++) this.first[i] += this.first[i - 1];
    this.sorted = new Uint32Array(this.first[count + 1]);
    for (let i = 1; i < count; i++) if (this.width[i] > 0) this.sorted[this.first[parent[i] + 1]++] = i;
    for (let i = 0; i < count; i++) if (this.first[i + 1] - this.first[i] > 1) this.sortChildren(i);
    return this;
  }

  /* Phases come in the order in which a step has them, all other nodes by width. */
  sortChildren(node) {
    const part = this.sorted.subarray(this.first[node], this.first[node + 1]);
    const rank = (i) => {
      const name = this.data.texts[this.data.functions.name[this.functionOf(i)]];
      return this.data.kindOf[this.functionOf(i)] === 'phase' ? this.data.head.phases.indexOf(name) || Infinity : 0;
    };
    part.sort((x, y) => (node || rank(x) === rank(y) ? this.width[y] - this.width[x] : rank(x) - rank(y)));
  }

  add(node, weights, from) {
    weights.forEach((column, which) => (this.own[which][node] += column[from]));
  }

  childrenOf(node) {
    return this.sorted.subarray(this.first[node], this.first[node + 1]);
  }

  /*
   * path() returns the keys from the root down to a node; find() follows such keys as far as they
   * exist.
   */
  path(node) {
    const keys = [];
    for (; node; node = this.parent[node]) keys.push(this.key[node]);
    return keys.reverse();
  }

  find(keys) {
    let node = 0;
    for (const key of keys) {
      const next = this.childrenOf(node).find((child) => this.key[child] === key);
      if (next === undefined) break;
      node = next;
    }
    return node;
  }
}

/* weights: by node of the call tree, with the columns of `own`. */
function topDown(data, weights, lines, width) {
  const tree = new Tree(data, lines);
  const {nodes} = data;
  if (lines) {
    Object.assign(tree, {parent: nodes.parent, key: nodes.frame, own: weights});
    return tree.finish(width);
  }
  const made = new Uint32Array(nodes.count);
  for (let i = 1; i < nodes.count; i++) {
    made[i] = tree.child(made[nodes.parent[i]], tree.keyOf(nodes.frame[i]));
    tree.add(made[i], weights, i);
  }
  return tree.finish(width);
}

/* columns: those of `own`. Returns A and B per step, their difference, and the errors. */
function compare(columns, at, steps) {
  const [a, b, errorA, errorB] = columns.map((column, which) => column[at] / steps[which % 2] ** (which < 2 ? 1 : 2));
  return {a, b, change: b - a, error: Math.sqrt(errorA + errorB), errors: [Math.sqrt(errorA), Math.sqrt(errorB)]};
}

const weighs = (weights, i) => weights[0][i] > 0 || weights[1][i] > 0;

/* Adds the frames above `from` below a node, innermost first; returns the last node. */
function upwards(tree, node, from) {
  const {nodes} = tree.data;
  for (let at = from; at; at = nodes.parent[at]) node = tree.child(node, tree.keyOf(nodes.frame[at]));
  return node;
}

function inverted(data, weights, lines, width) {
  const tree = new Tree(data, lines);
  for (let i = 1; i < data.nodes.count; i++) if (weighs(weights, i)) tree.add(upwards(tree, 0, i), weights, i);
  return tree.finish(width);
}

/*
 * By node: the outermost node of the function `wanted` on its path, itself included; 0: no such
 * node.
 */
function outermost(data, wanted) {
  const {nodes, frames} = data;
  const found = new Uint32Array(nodes.count);
  for (let i = 1; i < nodes.count; i++) found[i] = found[nodes.parent[i]] || (frames.function[nodes.frame[i]] === wanted ? i : 0);
  return found;
}

/*
 * Makes two trees, of the callers and the callees of a function, which is the only child of both
 * roots. A recursive call is part of the outer call.
 */
function sandwich(data, weights, wanted, lines, width) {
  const {nodes} = data;
  const outer = outermost(data, wanted);
  const totals = weights.map(() => new Float64Array(nodes.count));
  const callees = new Tree(data, lines);
  const made = new Uint32Array(nodes.count);
  const top = callees.child(0, lines ? firstFrame(data, wanted) : wanted);
  for (let i = 1; i < nodes.count; i++) {
    if (!outer[i]) continue;
    made[i] = outer[i] === i ? top : callees.child(made[nodes.parent[i]], callees.keyOf(nodes.frame[i]));
    callees.add(made[i], weights, i);
    weights.forEach((column, which) => (totals[which][outer[i]] += column[i]));
  }
  const callers = new Tree(data, lines);
  const bottom = callers.child(0, callees.key[top]);
  for (let i = 1; i < nodes.count; i++)
    if (outer[i] === i && weighs(totals, i)) callers.add(upwards(callers, bottom, nodes.parent[i]), totals, i);
  return [callers.finish(width), callees.finish(width)];
}

const firstFrame = (data, wanted) => data.frames.function.indexOf(wanted);

/*
 * Computes own time and total by function, with the columns of `weights`. The total counts
 * recursive calls once. A wait is own time of the function that waited, whichever thread ended it.
 */
function sumFunctions(data, weights) {
  const {nodes, frames, functions} = data;
  const own = weights.map(() => new Float64Array(functions.count));
  const total = weights.map(() => new Float64Array(functions.count));
  const below = weights.map((ns) => Float64Array.from(ns));
  const repeats = new Uint8Array(nodes.count);
  for (let i = 1; i < nodes.count; i++) {
    const wanted = frames.function[nodes.frame[i]];
    for (let at = nodes.parent[i]; at && !repeats[i]; at = nodes.parent[at]) repeats[i] = frames.function[nodes.frame[at]] === wanted;
  }
  for (let i = nodes.count - 1; i > 0; i--) {
    const at = frames.function[nodes.frame[i]];
    const owner = data.kindOf[at] === 'waker' ? frames.function[nodes.frame[nodes.parent[i]]] : at;
    for (let which = 0; which < weights.length; which++) {
      own[which][owner] += weights[which][i];
      if (!repeats[i]) total[which][at] += below[which][i];
      below[which][nodes.parent[i]] += below[which][i];
    }
  }
  return {own, total};
}
