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

function start(data) {
  const detail = document.getElementById('detail'), controls = document.getElementById('controls');
  let chart = null;
  const select = (i, jump) => {
    detail.replaceChildren(...detailOf(data, i));
    detail.hidden = false;
    detail.scrollTop = 0;
    document.getElementById('browser').classList.add('split');
    table.mark(i);
    history.replaceState(null, '', '#t=' + (data.order[i] + 1));
    if (jump) document.getElementById('tensors').scrollIntoView({block: 'start'});
  };
  const table = new TensorTable(data, select);

  const search = element('input', {id: 'search', type: 'search', placeholder: 'search names (regular expression)', 'aria-label': 'Search names'});
  const shown = element('span', {id: 'shown', role: 'status'}), chips = element('span'), toggles = [];
  const choice = (label, key, texts) => {
    const box = element('select', {'aria-label': label, id: key}, element('option', {value: ''}, label));
    for (const [value, text] of texts) box.append(element('option', {value}, text));
    box.onchange = () => update({[key]: box.value === '' ? '' : Number(box.value)});
    return texts.length > 1 ? box : '';
  };
  const chip = (text, off) => {
    const button = element('button', {class: 'chip', type: 'button', title: 'Remove this filter'}, text + ' \u00d7');
    button.onclick = off;
    return button;
  };
  const update = change => {
    const {filter} = table, before = filter.range;
    Object.assign(filter, change);
    search.value = filter.text;
    for (const [key, box] of [['phase', phase], ['step', step]]) if (box) box.value = filter[key];
    for (const [verdict, button] of toggles) button.setAttribute('aria-pressed', filter.verdicts.has(verdict));
    chips.replaceChildren();
    if (filter.cell) chips.append(chip(filter.cell.label, () => update({cell: null})));
    if (filter.range) chips.append(chip(`# ${filter.range[0] + 1} to ${filter.range[1]}`, () => update({range: null})));
    if (chart && before !== filter.range) chart.show(...(filter.range || [0, data.total]));
    table.apply();
    shown.textContent = `${grouped(table.rows.length)} of ${grouped(data.total)} shown`;
  };
  const everything = () => new Set(data.verdict);
  const jump = () => document.getElementById('tensors').scrollIntoView({block: 'start'});

  const verdicts = [...everything()].sort((a, b) => a - b);
  for (const verdict of verdicts) {
    const button = element('button', {type: 'button'}, badge(data, verdict));
    button.onclick = () => {
      const set = table.filter.verdicts;
      if (!set.delete(verdict)) set.add(verdict);
      update({});
    };
    toggles.push([verdict, button]);
  }
  const phase = choice('all phases', 'phase', [...new Set(data.phase)].sort().map(p => [p, ['no phase', 'forward', 'backward', 'optimizer'][p]]));
  const step = choice('all steps', 'step', [...new Set(data.step)].sort((a, b) => a - b).slice(0, 1000).map(s => [s, 'step ' + s]));
  const reset = element('button', {type: 'button'}, 'Reset'), keys = element('button', {type: 'button'}, 'Keys');
  const csv = copyButton('');
  csv.textContent = 'Copy as CSV';
  csv.onclick = () => {
    const copy = copyButton(table.csv());
    copy.click();
    csv.textContent = 'Copied';
    setTimeout(() => csv.textContent = 'Copy as CSV', 1500);
  };
  reset.onclick = () => {
    table.reset();
    chart.show(0, data.total);
    update({});
  };
  keys.onclick = () => document.getElementById('help').showModal();
  search.oninput = () => update({text: search.value});
  controls.append(search, ...toggles.map(([, button]) => button), phase, step, chips, reset, csv, keys, shown);

  document.documentElement.classList.add('scripted-on');
  for (const hint of document.querySelectorAll('.scripted')) hint.hidden = false;
  for (const count of document.querySelectorAll('#counts li')) {
    count.style.cursor = 'pointer';
    count.title = 'Show these';
    count.onclick = () => {
      update({verdicts: new Set([Number(count.dataset.verdict)])});
      jump();
    };
  }
  for (const box of document.querySelectorAll('.repeat')) {
    box.querySelector('h4').append(' ', copyButton(box.querySelector('pre').textContent));
  }
  chart = new Chart(data, {tip: showTip, select: i => select(i, true), range: (a, b) => update({range: [a, b]})});
  data.grids.forEach((_, g) => listenToHeatMap(data, g, {tip: showTip, cell: cell => {
    update({cell, verdicts: everything()});
    jump();
  }}));

  addEventListener('keydown', e => {
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    if (e.key === 'Escape' && !document.getElementById('help').open) {
      search.blur();
      reset.click();
    }
    if (['INPUT', 'SELECT', 'TEXTAREA'].includes(document.activeElement.tagName)) return;
    if (e.key === '/') search.focus();
    else if ((e.key === 'j' || e.key === 'k') && table.rows.length) select(table.neighbour(e.key === 'j' ? 1 : -1));
    else if (e.key === 'o' && !detail.hidden) detail.scrollIntoView({block: 'nearest'});
    else if (e.key === '?') document.getElementById('help').showModal();
    else return;
    e.preventDefault();
  });

  const go = () => {
    const wanted = /^#t=(\d+)$/.exec(location.hash);
    const i = wanted ? data.order.indexOf(Number(wanted[1]) - 1) : -1;
    if (i < 0) return;
    if (!table.filter.verdicts.has(data.verdict[i])) update({verdicts: everything()});
    select(i, true);
  };
  update({});
  go();
  addEventListener('hashchange', go);
  document.documentElement.dataset.ready = 'yes';
}

(async () => {
  try {
    if (!('DecompressionStream' in window)) throw new Error('this browser is older than 2023 and cannot unpack the other tensors');
    start(await unpack());
  } catch (problem) {
    const box = document.getElementById('trouble');
    box.textContent = `Only the worst tensors are shown: ${problem.message}.`;
    box.hidden = false;
    console.error(problem);
  }
})();
