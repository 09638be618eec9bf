/* Formats values. Names come from a recording: they go to the page as text, never as markup. */

/* Shows characters that could steer the display as escapes, as reports on a terminal do. */
const visible = (text) =>
  text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, (c) => {
    const code = c.codePointAt(0);
    return code < 0x100 ? '\\x' + code.toString(16).padStart(2, '0') : '\\u' + code.toString(16);
  });

/* Three significant digits. */
const digits = (value) => {
  const size = Math.abs(value);
  if (size >= 99.95) return Math.round(value).toLocaleString('en').replaceAll(',', '\u2009');
  return value.toFixed(size >= 9.995 ? 1 : size >= 0.9995 || !size ? 2 : 3);
};

const duration = (ns) => {
  const size = Math.abs(ns);
  if (size >= 1e9) return digits(ns / 1e9) + ' s';
  return size >= 1e6 || !size ? digits(ns / 1e6) + ' ms' : digits(ns / 1e3) + ' µs';
};

const signed = (ns) => (ns > 0 ? '+' : ns < 0 ? '−' : '±') + duration(Math.abs(ns));
const percent = (share) => (100 * share).toFixed(share >= 0.0995 ? 1 : 2) + ' %';
const plural = (count, word) => `${count.toLocaleString('en').replaceAll(',', '\u2009')} ${word}${count === 1 ? '' : 's'}`;

/* `count` characters of a text: its beginning and its end, which tell names apart. */
function middleCut(text, count) {
  let head = Math.ceil(count * 0.55);
  let tail = text.length - (count - head);
  if (/[\ud800-\udbff]/.test(text[head - 1] ?? '')) head--;
  if (/[\udc00-\udfff]/.test(text[tail] ?? '')) tail++;
  return text.slice(0, head) + '…' + text.slice(tail);
}

/* Shortens a text to the room it has. measure(text): its width */
function fitText(text, room, measure) {
  const shorter = text.length > 400 ? middleCut(text, 400) : text;
  const width = measure(shorter);
  if (width <= room) return shorter;
  for (let count = Math.floor((shorter.length * room) / width); count > 1; count--) {
    const shown = middleCut(shorter, count);
    if (measure(shown) <= room) return shown;
  }
  return '';
}

/* element('b', {className: 'x', onclick}, 'text', child): texts become text nodes. */
function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/* A text that is cut in its middle where it has too little room. */
function cut(text, className = '') {
  const tail = text.length > 28 ? middleCut(text, 28).split('…').pop() : '';
  return element('bdi', {className: 'cut ' + className}, element('span', {}, text.slice(0, text.length - tail.length)), element('span', {}, tail));
}

const byId = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* A canvas as large as its box, in device pixels; its context draws in CSS pixels. */
function fitCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = width + 'px';
  canvas.style.height = height + 'px';
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
