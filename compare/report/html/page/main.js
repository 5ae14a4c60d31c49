'use strict';
// Ties the parts together: controls, keys, and the address of a tensor (#t=17).

function showTip(event, text) {
  const tip = document.getElementById('tip');
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + 'px';
  tip.style.top = (event.clientY + box.height + 24 > innerHeight ? event.clientY - box.height - 10 : event.clientY + 16) + 'px';
}

function scrollToTensors() {
  document.getElementById('tensors').scrollIntoView({block: 'start'});
}

class Page {
  constructor(data) {
    this.data = data;
    this.detail = document.getElementById('detail');
    this.table = new TensorTable(data, i => this.select(i));
    this.addControls();
    this.wakeTheText();
    this.wakeThePictures();
    addEventListener('keydown', e => this.key(e));
    this.update({});
    this.go();
    addEventListener('hashchange', () => this.go());
    document.documentElement.dataset.ready = 'yes';
  }

  select(i, jump) {
    this.detail.replaceChildren(...detailOf(this.data, i));
    this.detail.hidden = false;
    this.detail.scrollTop = 0;
    document.getElementById('browser').classList.add('split');
    this.table.mark(i);
    history.replaceState(null, '', '#t=' + (this.data.order[i] + 1));
    if (jump) scrollToTensors();
  }

  // The tensor of the address.
  go() {
    const wanted = /^#t=(\d+)$/.exec(location.hash);
    const i = wanted ? this.data.order.indexOf(Number(wanted[1]) - 1) : -1;
    if (i < 0) return;
    if (!this.table.filter.verdicts.has(this.data.verdict[i])) this.update({verdicts: this.everything()});
    this.select(i, true);
  }

  everything() { return new Set(this.data.verdict); }

  // Changes the filter, and what shows it.
  update(change) {
    const {filter} = this.table, before = filter.range;
    Object.assign(filter, change);
    this.search.value = filter.text;
    for (const [key, box] of Object.entries(this.choices)) if (box) box.value = filter[key];
    for (const [verdict, button] of this.toggles) button.setAttribute('aria-pressed', filter.verdicts.has(verdict));
    this.chips.replaceChildren();
    if (filter.cell) this.addChip(filter.cell.label, {cell: null});
    if (filter.range) this.addChip(`# ${filter.range[0] + 1} to ${filter.range[1]}`, {range: null});
    if (this.chart && before !== filter.range) this.chart.show(...(filter.range || [0, this.data.total]));
    this.table.apply();
    this.shown.textContent = `${grouped(this.table.rows.length)} of ${grouped(this.data.total)} shown`;
  }

  reset() {
    this.table.reset();
    this.chart.show(0, this.data.total);
    this.update({});
  }

  addChip(text, without) {
    const button = element('button', {class: 'chip', type: 'button', title: 'Remove this filter'}, text + ' \u00d7');
    button.onclick = () => this.update(without);
    this.chips.append(button);
  }

  addControls() {
    const {data} = this, phases = ['no phase', 'forward', 'backward', 'optimizer'];
    this.search = element('input', {id: 'search', type: 'search', placeholder: 'search names (regular expression)', 'aria-label': 'Search names'});
    this.search.oninput = () => this.update({text: this.search.value});
    this.toggles = [...this.everything()].sort((a, b) => a - b).map(verdict => [verdict, this.toggle(verdict)]);
    this.choices = {
      phase: this.choice('all phases', 'phase', [...new Set(data.phase)].sort().map(p => [p, phases[p]])),
      step: this.choice('all steps', 'step', [...new Set(data.step)].sort((a, b) => a - b).slice(0, 1000).map(s => [s, 'step ' + s])),
    };
    this.chips = element('span');
    const reset = element('button', {type: 'button'}, 'Reset'), keys = element('button', {type: 'button'}, 'Keys');
    reset.onclick = () => this.reset();
    keys.onclick = () => document.getElementById('help').showModal();
    this.shown = element('span', {id: 'shown', role: 'status'});
    document.getElementById('controls').append(this.search, ...this.toggles.map(([, button]) => button),
      this.choices.phase, this.choices.step, this.chips, reset, this.csvButton(), keys, this.shown);
  }

  toggle(verdict) {
    const button = element('button', {type: 'button'}, badge(this.data, verdict));
    button.onclick = () => {
      const set = this.table.filter.verdicts;
      if (!set.delete(verdict)) set.add(verdict);
      this.update({});
    };
    return button;
  }

  choice(label, key, texts) {
    const box = element('select', {'aria-label': label, id: key}, element('option', {value: ''}, label));
    for (const [value, text] of texts) box.append(element('option', {value}, text));
    box.onchange = () => this.update({[key]: box.value === '' ? '' : Number(box.value)});
    return texts.length > 1 ? box : '';
  }

  csvButton() {
    const csv = copyButton('');
    csv.textContent = 'Copy as CSV';
    csv.onclick = () => {
      copyButton(this.table.csv()).click();
      csv.textContent = 'Copied';
      setTimeout(() => csv.textContent = 'Copy as CSV', 1500);
    };
    return csv;
  }

  // What is on the page without a script, too.
  wakeTheText() {
    document.documentElement.classList.add('scripted-on');
    for (const hint of document.querySelectorAll('.scripted')) hint.hidden = false;
    for (const count of document.querySelectorAll('#counts li')) {
      count.style.cursor = 'pointer';
      count.title = 'Show these';
      count.onclick = () => {
        this.update({verdicts: new Set([Number(count.dataset.verdict)])});
        scrollToTensors();
      };
    }
    for (const box of document.querySelectorAll('.repeat'))
      box.querySelector('h4').append(' ', copyButton(box.querySelector('pre').textContent));
  }

  wakeThePictures() {
    this.chart = new Chart(this.data, {tip: showTip, select: i => this.select(i, true), range: (a, b) => this.update({range: [a, b]})});
    const cell = cell => {
      this.update({cell, verdicts: this.everything()});
      scrollToTensors();
    };
    this.data.grids.forEach((_, g) => listenToHeatMap(this.data, g, {tip: showTip, cell}));
  }

  key(e) {
    const {table, detail} = this, help = document.getElementById('help');
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    if (e.key === 'Escape' && !help.open) {
      this.search.blur();
      this.reset();
    }
    if (['INPUT', 'SELECT', 'TEXTAREA'].includes(document.activeElement.tagName)) return;
    if (e.key === '/') this.search.focus();
    else if ((e.key === 'j' || e.key === 'k') && table.rows.length) this.select(table.neighbour(e.key === 'j' ? 1 : -1));
    else if (e.key === 'o' && !detail.hidden) detail.scrollIntoView({block: 'nearest'});
    else if (e.key === '?') help.showModal();
    else return;
    e.preventDefault();
  }
}

(async () => {
  try {
    if (!('DecompressionStream' in window)) throw new Error('this browser is older than 2023 and cannot unpack the other tensors');
    new Page(await unpack());
  } catch (problem) {
    const box = document.getElementById('trouble');
    box.textContent = `Only the worst tensors are shown: ${problem.message}.`;
    box.hidden = false;
    console.error(problem);
  }
})();
