/*
 * The functions that take the most time: own time and total, or, for two sets, the time in each and
 * the difference.
 */

const TABLE_ROWS = 300;

class Table {
  /* pick(function): a click on its row */
  constructor(head, body, pick) {
    Object.assign(this, {head, body, pick, sort: ''});
  }

  /* view: {steps, changed, whole, matches} */
  show(data, weights, view) {
    this.data = data;
    this.view = view;
    this.sums = sumFunctions(data, weights);
    this.draw();
  }

  /* Returns [id, title, value] by column; a column of changes also has the sums that it compares. */
  columns() {
    const {own, total} = this.sums;
    const {steps, changed} = this.view;
    const [a, b] = steps;
    const change = (sums) => (f) => sums[1][f] / b - sums[0][f] / a;
    if (!changed)
      return [
        ['own', 'own', (f) => own[0][f] / a],
        ['total', 'total', (f) => total[0][f] / a],
      ];
    return [
      ['ownb', 'own in B', (f) => own[1][f] / b],
      ['change', 'own B − A', change(own), own],
      ['totalchange', 'total B − A', change(total), total],
    ];
  }

  draw() {
    const shown = (f) => this.data.kindOf[f] !== 'phase' && (!this.view.matches || this.view.matches[f]);
    const functions = Array.from(this.data.functions.name, (_, f) => f).filter((f) => f && shown(f) && (this.sums.total[0][f] || this.sums.total[1][f]));
    const all = this.columns();
    /* A column without a number says nothing. */
    const filled = all.filter(([, , value]) => functions.some((f) => value(f)));
    const columns = filled.length ? filled : all;
    const sorted = columns.find(([id]) => id === this.sort) ?? columns.find(([id]) => id === (this.view.changed ? 'change' : 'own')) ?? columns[0];
    const size = (f) => Math.abs(sorted[2](f));
    const wanted = functions.sort((x, y) => size(y) - size(x));
    this.head.replaceChildren(
      ...columns.map((column) => this.header(column, column === sorted)),
      element('th', {className: 'name'}, plural(wanted.length, 'function')),
    );
    this.body.replaceChildren(...wanted.slice(0, TABLE_ROWS).map((f) => this.row(f, columns)));
    if (this.body.firstChild) this.body.firstChild.tabIndex = 0;
  }

  header([id, title], sorted) {
    const button = element('button', {onclick: () => this.sortBy(id)}, title, sorted ? ' ↓' : '');
    return element('th', {ariaSort: sorted ? 'descending' : 'none'}, button);
  }

  sortBy(id) {
    this.sort = id;
    this.draw();
  }

  row(f, columns) {
    const {texts, functions, kindOf} = this.data;
    const file = texts[functions.file[f]];
    const parts = element('div', {}, element('i', {className: 'kind ' + kindOf[f]}), cut(texts[functions.name[f]]));
    if (file) parts.append(element('small', {}, cut(`${file.slice(file.lastIndexOf('/') + 1)}:${functions.firstLine[f]}`)));
    const name = element('td', {className: 'name'}, parts);
    name.title = texts[functions.name[f]] + (file ? `\n${file}:${functions.firstLine[f]}` : '');
    const cells = columns.map(([, , value, sums]) => (sums ? this.changeCell(f, sums) : element('td', {}, value(f) ? duration(value(f)) : '–')));
    return element('tr', {onclick: () => this.pick(f), onkeydown: (event) => this.key(event, f)}, ...cells, name);
  }

  /* Arrows move from row to row; Enter is a click. */
  key(event, f) {
    const row = event.currentTarget;
    const next = {ArrowDown: row.nextSibling, ArrowUp: row.previousSibling}[event.key];
    if (event.key === 'Enter') this.pick(f);
    else if (!next) return;
    else {
      next.tabIndex = 0;
      next.focus();
      row.tabIndex = -1;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /* A change within the error of sampling has no colour. */
  changeCell(f, sums) {
    const {change, error} = compare(sums, f, this.view.steps);
    const className = Math.abs(change) <= 2 * error ? '' : change > 0 ? 'more' : 'less';
    return element('td', {className}, change ? signed(change) : '–');
  }
}
