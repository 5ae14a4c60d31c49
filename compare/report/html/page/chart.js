'use strict';
// The chart and the heat maps, as the program drew them, brought to life; the chart drawn again for a part of
// the run, with the places and shapes that chart.cpp has written into it.

class Chart {
  // from, to: which part of the execution order is shown.
  constructor(data, actions) {
    this.svg = document.getElementById('chart');
    if (!this.svg) return;
    Object.assign(this, {data, actions, from: 0, to: data.total});
    this.plot = Object.fromEntries(Object.entries(this.svg.dataset).map(([name, text]) => [name, Number(text)]));
    this.plot.width = this.plot.right - this.plot.left;
    this.whole = {};
    this.shape = {};
    for (const part of ['F', 'W', 'N', 'P', 'band']) {
      this.whole[part] = this.path(part).getAttribute('d');
      this.shape[part] = this.path(part).dataset.shape;
    }
    this.phases = [...document.getElementById('phases').childNodes];
    this.listen();
  }
  path(part) { return document.getElementById('chart-' + part); }
  x(order) { return this.plot.left + this.plot.width * (order - this.from + 0.5) / (this.to - this.from); }
  y(i) {
    const {data, plot} = this, ratio = data.ratio[i];
    if (!data.judged[i]) return plot.missing;
    if (!Number.isFinite(ratio)) return plot.infinite;
    if (!(ratio > 0)) return plot.zero;
    const decade = Math.min(plot.high, Math.max(plot.low, Math.log10(ratio)));
    return plot.bottom - (plot.bottom - plot.top) * (decade - plot.low) / (plot.high - plot.low);
  }

  show(from, to) {
    Object.assign(this, {from, to});
    const all = from === 0 && to === this.data.total, parts = {F: '', W: '', N: '', P: '', band: ''};
    if (!all) this.collect(parts);
    for (const part in parts) this.path(part).setAttribute('d', all ? this.whole[part] : parts[part]);
    this.showPhases(all);
  }

  collect(parts) {
    const {data, plot} = this, seen = new Set(), band = new Map(), equal = new Set();
    const dots = this.to - this.from <= plot.mostDots;
    for (let i = 0; i < data.rows; ++i) {
      if (data.order[i] < this.from || data.order[i] >= this.to) continue;
      const mark = data.verdicts[data.verdict[i]][1], x = this.x(data.order[i]), y = this.y(i), place = `M${x.toFixed(1)} ${y.toFixed(1)}`;
      if (mark === 'P' && dots) parts.P += place + this.shape.P;
      if (mark === 'P' && !dots) {
        const column = x >> 1;
        if (data.ratio[i] === 0) {
          equal.add(column);
          continue;
        }
        const [top, bottom] = band.get(column) || [y, y];
        band.set(column, [Math.min(top, y), Math.max(bottom, y)]);
      }
      const key = mark + (x >> 2) + ' ' + (y >> 2);
      if (mark === 'P' || mark === '-' || seen.has(key)) continue;
      seen.add(key);
      parts[mark] += place + this.shape[mark];
    }
    for (const [column, [top, bottom]] of band) parts.band += `M${2 * column + 1} ${top - 1}V${bottom + 1}`;
    for (const column of equal) parts.band += `M${2 * column + 1} ${plot.zero - 2}v4`;
  }

  showPhases(all) {
    const group = document.getElementById('phases'), {data, plot} = this;
    if (all) return group.replaceChildren(...this.phases);
    group.replaceChildren();
    const names = ['', 'forward', 'backward', 'optimizer'];
    let run = null;
    const end = () => {
      if (!run || !run.phase) return;
      const x = Math.max(plot.left, this.x(run.first - 0.5)), width = this.x(run.last + 0.5) - x, text = `step ${run.step} ${names[run.phase]}`;
      group.append(drawing('rect', {class: 'ph' + run.phase, x, y: plot.phase, width, height: plot.phaseHeight}));
      if (width > plot.letterWidth * text.length)
        group.append(drawing('text', {class: 'pht', x: x + width / 2, y: plot.phaseText}, text));
    };
    for (let i = 0; i < data.rows; ++i) {
      const order = data.order[i];
      if (order < this.from || order >= this.to) continue;
      if (!run || run.phase !== data.phase[i] || run.step !== data.step[i]) {
        end();
        run = {phase: data.phase[i], step: data.step[i], first: order, last: order};
      }
      run.last = order;
    }
    end();
  }

  // In the units of the picture.
  point(event) {
    const box = this.svg.getBoundingClientRect(), scale = 1000 / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }
  order(x) {
    const share = (x - this.plot.left) / this.plot.width;
    return Math.min(this.to, Math.max(this.from, Math.round(this.from + share * (this.to - this.from))));
  }
  nearest([x, y]) {
    const {data} = this, reach = 7;
    let best = -1, distance = reach * reach;
    for (let i = 0; i < data.rows; ++i) {
      const dx = this.x(data.order[i]) - x;
      if (Math.abs(dx) >= reach) continue;
      const dy = this.y(i) - y, bias = data.verdicts[data.verdict[i]][1] === 'P' ? 1 : 0.5;
      const d = (dx * dx + dy * dy) * bias;
      if (d < distance) [best, distance] = [i, d];
    }
    return best;
  }

  listen() {
    const brush = document.getElementById('brush');
    let start = null;
    this.svg.addEventListener('pointerdown', e => {
      if (e.button === 0 && e.pointerType === 'mouse') start = this.point(e)[0];
      if (start !== null) this.svg.setPointerCapture(e.pointerId);
    });
    this.svg.addEventListener('pointermove', e => {
      const at = this.point(e);
      if (start !== null) {
        brush.setAttribute('x', Math.min(start, at[0]));
        brush.setAttribute('width', Math.abs(at[0] - start));
      }
      const i = start === null ? this.nearest(at) : -1;
      this.actions.tip(e, i < 0 ? '' : `${this.data.names[i]}\n${this.data.verdicts[this.data.verdict[i]][0]}` +
        (this.data.judged[i] ? `, error / allowed ${short(this.data.ratio[i])}` : ''));
    });
    this.svg.addEventListener('pointerup', e => {
      const at = this.point(e), from = start;
      start = null;
      brush.setAttribute('width', 0);
      if (from !== null && Math.abs(at[0] - from) > 8) {
        const [a, b] = [this.order(Math.min(from, at[0])), this.order(Math.max(from, at[0]))];
        if (b > a) this.actions.range(a, b);
      } else if (this.nearest(at) >= 0) {
        this.actions.select(this.nearest(at));
      }
    });
    this.svg.addEventListener('pointerleave', e => this.actions.tip(e, ''));
  }
}

function listenToHeatMap(data, g, actions) {
  const svg = document.getElementById('heat' + g), {left, top, w, h} = svg.dataset, grid = data.grids[g];
  const cell = event => {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    const column = Math.floor(((event.clientX - box.left) * scale - left) / w);
    const row = Math.floor(((event.clientY - box.top) * scale - top) / h);
    const inside = row >= 0 && column >= 0 && row < grid.rows.length && column < grid.columns.length;
    return inside ? {g, row, column, label: `${grid.rows[row]}, ${grid.columns[column]}`} : null;
  };
  svg.addEventListener('pointermove', e => {
    const at = cell(e), rows = data['row' + g], columns = data['column' + g];
    let count = 0, open = 0, worst = 0;
    for (let i = 0; at && i < data.rows; ++i) {
      if (rows[i] !== at.row || columns[i] !== at.column) continue;
      ++count;
      if (!['P', '-'].includes(data.verdicts[data.verdict[i]][1])) ++open;
      if (!(data.ratio[i] <= worst)) worst = data.ratio[i];
    }
    actions.tip(e, count ? `${at.label}\n${count} tensors, ${open} did not pass, largest error / allowed ${short(worst)}` : '');
  });
  svg.addEventListener('pointerleave', e => actions.tip(e, ''));
  svg.addEventListener('click', e => cell(e) && actions.cell(cell(e)));
}
