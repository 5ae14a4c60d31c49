'use strict';
// The table of all tensors: filters, order, and only the rows that can be seen.

class TensorTable {
  constructor(data, select) {
    Object.assign(this, {data, select, selected: -1, sort: 'order', down: false, printing: false});
    this.scroller = document.getElementById('scroller');
    this.body = document.getElementById('rows');
    this.row_height = 27;
    this.reset();
    for (const head of document.querySelectorAll('#table th')) this.sortable(head);
    this.scroller.addEventListener('scroll', () => requestAnimationFrame(() => this.draw()));
    addEventListener('resize', () => this.draw());
    addEventListener('beforeprint', () => this.print(true));
    addEventListener('afterprint', () => this.print(false));
  }

  // What did not pass by itself; everything where all passed.
  reset() {
    const {data} = this, present = new Set(data.verdict);
    const open = [...present].filter(v => !['P', '-'].includes(data.verdicts[v][1]));
    const roots = open.filter(v => data.verdicts[v][0] !== 'inherited');
    this.filter = {verdicts: new Set([roots, open, present].find(set => set.length || set.size)), text: '', phase: '', step: '', cell: null, range: null};
  }

  sortable(head) {
    const button = element('button', {type: 'button'}, head.textContent);
    head.replaceChildren(button);
    button.onclick = () => {
      const key = head.dataset.key, number = !['order', 'name', 'type'].includes(key);
      this.down = this.sort === key ? !this.down : number && key !== 'verdict';
      this.sort = key;
      for (const other of document.querySelectorAll('#table th')) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', this.down ? 'descending' : 'ascending');
      this.apply();
    };
  }

  // A regular expression; text that is none is looked for as it is.
  matcher(text) {
    if (!text) return () => true;
    try {
      const pattern = new RegExp(text, 'i');
      return i => pattern.test(this.data.names[i]);
    } catch {
      const plain = text.toLowerCase();
      return i => this.data.lower[i].includes(plain);
    }
  }

  apply() {
    const {data, filter} = this, matches = this.matcher(filter.text), rows = [];
    for (let i = 0; i < data.rows; ++i) {
      if (!filter.verdicts.has(data.verdict[i])) continue;
      if (filter.phase !== '' && data.phase[i] !== filter.phase) continue;
      if (filter.step !== '' && data.step[i] !== filter.step) continue;
      if (filter.range && (data.order[i] < filter.range[0] || data.order[i] >= filter.range[1])) continue;
      if (filter.cell && (data['row' + filter.cell.g][i] !== filter.cell.row ||
                          data['column' + filter.cell.g][i] !== filter.cell.column)) continue;
      if (matches(i)) rows.push(i);
    }
    this.rows = this.sorted(rows);
    this.scroller.scrollTop = 0;
    this.draw();
  }

  sorted(rows) {
    const {data, sort} = this, sign = this.down ? -1 : 1;
    if (sort === 'order' && !this.down) return rows;
    const texts = {name: i => data.names[i], type: i => data.types[data.type[i]]}[sort];
    const last = this.down ? -Infinity : Infinity;  // what was not measured
    const known = sort === 'ratio' ? data.judged : data.measured;
    const number = i => {
      if (sort === 'order' || sort === 'verdict') return data[sort][i];
      const value = known[i] ? data[sort][i] : last;
      return Number.isNaN(value) ? Infinity : value;
    };
    const keys = new Map(rows.map(i => [i, texts ? texts(i) : number(i)]));
    return rows.sort((a, b) => {
      const x = keys.get(a), y = keys.get(b);
      return x === y ? a - b : x < y ? -sign : sign;
    });
  }

  draw() {
    const {rows, row_height} = this, first = Math.max(0, Math.floor(this.scroller.scrollTop / row_height) - 12);
    const begin = this.printing ? 0 : first;
    const end = Math.min(rows.length, this.printing ? 200 : first + Math.ceil(innerHeight / row_height) + 24);
    const gap = height => {
      const row = element('tr', {class: 'gap', 'aria-hidden': 'true'}, element('td', {colspan: 8}));
      row.style.height = height + 'px';
      return row;
    };
    const list = rows.slice(begin, end).map(i => this.row(i));
    if (begin > 0) list.unshift(gap(begin * row_height));
    if (end < rows.length && !this.printing) list.push(gap((rows.length - end) * row_height));
    this.body.replaceChildren(...list);
  }

  row(i) {
    const {data} = this, cell = (text, attributes) => element('td', attributes, text);
    const number = (column, known) => cell(known[i] ? short(data[column][i]) : '');
    const measured = column => number(column, data.measured);
    const row = element('tr', {}, cell(String(data.order[i] + 1)), cell(badge(data, data.verdict[i])), number('ratio', data.judged),
      cell(data.names[i], {class: 'name', title: data.names[i]}), cell(data.types[data.type[i]], {title: data.types[data.type[i]]}),
      measured('max_abs'), measured('relative_l2'), measured('max_ulp'));
    if (i === this.selected) row.className = 'selected';
    row.onclick = () => this.select(i);
    return row;
  }

  print(on) {
    this.printing = on;
    this.draw();
  }

  // Marks the row, and brings it into view if it is among those that are listed.
  mark(i) {
    this.selected = i;
    const at = this.rows.indexOf(i), {scroller, row_height} = this;
    if (at >= 0 && (at * row_height < scroller.scrollTop || (at + 2) * row_height > scroller.scrollTop + scroller.clientHeight))
      scroller.scrollTop = Math.max(0, at * row_height - scroller.clientHeight / 3);
    this.draw();
  }
  neighbour(step) {
    const at = this.rows.indexOf(this.selected);
    return this.rows[at < 0 ? 0 : Math.min(this.rows.length - 1, Math.max(0, at + step))];
  }

  csv() {
    const {data} = this, quoted = text => '"' + (/^[=+@-]/.test(text) ? "'" : '') + text.replaceAll('"', '""') + '"';
    const lines = ['order,verdict,error_over_allowed,name,type,max_abs,relative_l2,max_ulp,rule,reason'];
    for (const i of this.rows) {
      const numbers = data.measured[i] ? [data.max_abs[i], data.relative_l2[i], data.max_ulp[i]].map(short) : ['', '', ''];
      lines.push([data.order[i] + 1, data.verdicts[data.verdict[i]][0], data.judged[i] ? short(data.ratio[i]) : '',
        quoted(data.names[i]), quoted(data.types[data.type[i]]), ...numbers, quoted(data.rules[data.rule[i]]),
        quoted(data.reasons[data.reason[i]])].join(','));
    }
    return lines.join('\r\n') + '\r\n';
  }
}
