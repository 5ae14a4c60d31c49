'use strict';
// Everything about one tensor, as finding.cpp and pictures.cpp write the first one.

function mapPicture(map) {
  const w = 320 / map.grid_columns, h = Math.min(24, Math.max(4, w)), paths = {};
  for (let r = 0; r < map.grid_rows; ++r) {
    for (let c = 0; c < map.grid_columns;) {
      const at = r * map.grid_columns + c, shade = map.shades[at];
      let end = c + 1;
      while (end < map.grid_columns && map.shades[at + end - c] === shade) ++end;
      paths[shade] = (paths[shade] || '') + `M${c * w} ${r * h}h${(end - c) * w}v${h}h${(c - end) * w}z`;
      c = end;
    }
  }
  const svg = drawing('svg', {class: 'map', viewBox: `0 0 320 ${h * map.grid_rows}`, role: 'img'},
    drawing('title', {}, 'Where the errors are'));
  for (const shade in paths) svg.append(drawing('path', {class: 'z' + shade, d: paths[shade]}));
  return svg;
}

function histogramPicture(bins) {
  const w = Math.min(24, Math.max(4, 320 / bins.length)), most = Math.max(1, ...bins);
  const every = bins.length > 24 ? 8 : bins.length > 12 ? 4 : 2;
  const svg = drawing('svg', {class: 'histogram', viewBox: '0 0 320 132', role: 'img'},
    drawing('title', {}, 'Elements by their error in ulp'));
  bins.forEach((n, k) => {
    if (n) {
      const h = 6 + 100 * Math.log1p(n) / Math.log1p(most);
      const range = k === 0 ? 'equal' : k === 1 ? '1 ulp' : `2^${k - 1} to 2^${k} ulp`;
      svg.append(drawing('rect', {class: k ? 'b' : 'b0', x: k * w + 0.5, y: 112 - h, width: w - 1, height: h},
        drawing('title', {}, `${range}: about ${grouped(n)} elements`)));
    }
    if (k === 0 || (k - 1) % every === 0)
      svg.append(drawing('text', {x: k * w + w / 2, y: 126}, k === 0 ? '0' : k <= 4 ? String(1 << k - 1) : `2^${k - 1}`));
  });
  return svg;
}

function figure(caption, remark, picture, text) {
  return element('figure', {}, element('figcaption', {}, caption + ' ', element('span', {}, remark)), picture,
    text ? element('p', {class: 'small'}, text) : '');
}

const counted = (n, what) => `${grouped(n)} ${what}${n === 1 ? '' : 's'}`;

function command(data, i, details) {
  if (details.command) return details.command;
  const head = data.commands[data.command[i]], name = data.names[i];
  if (!head) return '';
  return `${head} --only${name.startsWith('-') ? '=' : ' '}` + (/^[\w./=,:@%+-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`);
}

function copyButton(text) {
  const button = element('button', {type: 'button'}, 'Copy');
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // not allowed everywhere
      const area = element('textarea');
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
    button.textContent = 'Copied';
    setTimeout(() => button.textContent = 'Copy', 1500);
  };
  return button;
}

function plainTable(caption, heads, rows) {
  const head = element('tr', {}, ...heads.map(h => element('th', {scope: 'col'}, h)));
  return element('table', {class: 'plain'}, element('caption', {}, caption), element('thead', {}, head),
    element('tbody', {}, ...rows.map(cells => element('tr', {}, ...cells.map(cell => element('td', {}, cell))))));
}
const code = text => element('code', {}, text);

function elementsTable(elements) {
  return plainTable('Worst elements', ['index', 'actual', 'reference', 'error', 'error / allowed'],
    elements.map(([index, actual, reference, ...errors]) => [code(index), code(actual), code(reference), ...errors]));
}

function statisticsTable(statistics) {
  return plainTable('Statistics', ['of the whole', 'actual', 'reference', 'allowed error'],
    statistics.map(([name, actual, reference, allowed]) => [name, code(actual), code(reference), allowed]));
}

const lines = text => text.split('\\x0a');

function detailOf(data, i) {
  const d = data.details[data.detail[i] - 1] || {}, list = element('dl');
  const item = (key, ...value) => value[0] !== '' && value[0] !== undefined &&
    list.append(element('dt', {}, key), element('dd', {}, ...value));
  item('verdict', badge(data, data.verdict[i]));
  item('why', data.reasons[data.reason[i]]);
  for (const cause of lines(data.causes[data.cause[i]])) item('because', cause);
  item('origin', data.origins[data.origin[i]]);
  if (data.rules[data.rule[i]] !== data.reasons[data.reason[i]]) item('rule', data.rules[data.rule[i]]);
  if (data.judged[i]) item('error / allowed', element('b', {class: 'num'}, short(data.ratio[i])));
  if (data.measured[i]) {
    if (d.worst) item('worst element', code(d.worst[0]), ' actual ', code(d.worst[1]), ', reference ', code(d.worst[2]));
    item('outside', d.outside);
    item('error', `max abs ${short(data.max_abs[i])}, max rel ${short(data.max_rel[i])}, rel L2 ` +
      `${short(data.relative_l2[i])}, max ${short(data.max_ulp[i])} ulp`);
    if (d.special) item('not finite', `NaN ${d.special[0]} against ${d.special[1]}, Inf ${d.special[2]} against ` +
      `${d.special[3]}; they differ in ${counted(d.special[4], 'element')}`);
    if (d.required) item('would pass with', 'tolerance ' + d.required);
  }
  item('accumulations', d.count);
  item('tensor', data.types[data.type[i]]);
  for (const [policy, verdict, ratio] of d.also || []) item('also', `${policy}: ${verdict}, error / allowed ${ratio}`);
  const left = element('div', {}, list), right = element('div', {class: 'pictures'}), notes = data.notes[data.note[i]];
  if (notes) left.append(element('div', {class: 'notes'}, element('h4', {}, 'What the numbers show'),
    element('ul', {}, ...lines(notes).map(note => element('li', {}, note)))));
  const repeat = command(data, i, d);
  if (repeat) left.append(element('div', {class: 'repeat'}, element('h4', {}, 'Repeat just this tensor ', copyButton(repeat)),
    element('pre', {}, repeat)));
  if (d.statistics) left.append(statisticsTable(d.statistics));
  if (d.elements) left.append(elementsTable(d.elements));
  if (d.map) right.append(figure('Where the errors are', `${counted(d.map.rows, 'row')} by ${counted(d.map.columns, 'column')}`,
    mapPicture(d.map), d.map.text));
  const bins = histogram(data, i);
  if (bins.length) right.append(figure('Errors in ulp' + (d.ulp ? ' of ' + d.ulp : ''),
    'log scales; the first bar is equal', histogramPicture(bins)));
  return [element('h3', {}, code(data.names[i])), element('div', {class: 'finding'}, left, right)];
}
