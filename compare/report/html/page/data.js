'use strict';
// The page's data, as data.cpp packs it. Names in it come from files that nobody vouches for: they become
// text nodes, never markup.
async function unpack() {
  const text = atob(document.getElementById('data').textContent);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const data = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const n = data.rows;
  let at = 4 + length;
  for (const name of data.columns) {
    const column = new Uint32Array(n);
    for (let i = 0; i < n; ++i)
      column[i] = bytes[at + i] | bytes[at + n + i] << 8 | bytes[at + 2 * n + i] << 16 | bytes[at + 3 * n + i] << 24;
    data[name] = column;
    at += 4 * n;
  }
  for (const name of ['ratio', 'max_abs', 'max_rel', 'relative_l2', 'max_ulp'])
    data[name] = Float64Array.from(data[name], threeDigits);
  for (const name of ['row0', 'column0', 'row1', 'column1'])
    if (data[name]) data[name] = new Int32Array(data[name].buffer);
  data.first_bin = new Uint32Array(n + 1);
  for (let i = 0; i < n; ++i) data.first_bin[i + 1] = data.first_bin[i] + data.bins[i];
  data.bin = bytes.subarray(at);
  data.lower = data.names.map(name => name.toLowerCase());
  return data;
}

function threeDigits(code) {
  if (code < 3) return [0, Infinity, NaN][code];
  return Number(`${code % 1000}e${Math.floor(code / 1000) - 402}`);
}

// Elements per bin: exact up to 4, then within 6 %.
function histogram(data, i) {
  return Array.from(data.bin.subarray(data.first_bin[i], data.first_bin[i + 1]),
    q => q ? Math.round(2 ** ((q - 1) / 6)) : 0);
}

function element(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) e.setAttribute(name, value);
  e.append(...children.filter(child => child !== null && child !== ''));
  return e;
}

function drawing(tag, attributes, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes || {})) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

function short(v) {
  if (Number.isNaN(v)) return 'nan';
  if (!Number.isFinite(v)) return v > 0 ? 'inf' : '-inf';
  const rounded = Number(v.toPrecision(3));
  return rounded !== 0 && (Math.abs(rounded) < 1e-4 || Math.abs(rounded) >= 1e5) ? rounded.toExponential() : String(rounded);
}

const grouped = n => n.toLocaleString('en-US');

function badge(data, verdict) {
  const [name, mark] = data.verdicts[verdict], letter = mark === '-' ? 'I' : mark;
  return element('span', {class: 'v v-' + letter}, element('i', {class: 'k k-' + letter}), name);
}
