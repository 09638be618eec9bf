/*
 * Saves what is seen as an image. A pen takes the calls of a canvas that the flame makes, and writes
 * them as SVG.
 */

const MARGIN = 12;
const TALLEST = 16000; /* pixels that browsers draw */

/* Text of XML: what it may not hold, not even escaped, becomes U+FFFD. */
const xml = (text) =>
  text.toWellFormed().replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '\ufffd').replace(/[<>&"]/g, (c) => `&#${c.charCodeAt(0)};`);

class SvgPen {
  /* measure: the context of a canvas, whose fonts measure texts */
  constructor(width, height, measure) {
    Object.assign(this, {width, height, measure, parts: [], font: '', fillStyle: '#000', strokeStyle: '#000', globalAlpha: 1, lineWidth: 1, textBaseline: '', textAlign: ''});
  }

  measureText(text) {
    this.measure.font = this.font;
    return this.measure.measureText(text);
  }

  number(value) {
    return String(Math.round(value * 100) / 100);
  }

  box(x, y, width, height) {
    return `x="${this.number(x)}" y="${this.number(y)}" width="${this.number(width)}" height="${this.number(height)}"`;
  }

  get faint() {
    return this.globalAlpha < 1 ? ` opacity="${this.number(this.globalAlpha)}"` : '';
  }

  fillRect(...box) {
    const fill = typeof this.fillStyle === 'string' ? this.fillStyle : 'url(#hatch)';
    this.parts.push(`<rect ${this.box(...box)} fill="${xml(fill)}"${this.faint}/>`);
  }

  strokeRect(...box) {
    this.parts.push(`<rect ${this.box(...box)} fill="none" stroke="${xml(this.strokeStyle)}" stroke-width="${this.lineWidth}"${this.faint}/>`);
  }

  fillText(text, x, y) {
    const [, bold, size, family] = /^(bold )?(\d+)px (.*)$/.exec(this.font);
    this.parts.push(`<text x="${this.number(x)}" y="${this.number(y)}" dominant-baseline="central" font-size="${size}" font-family="${xml(family)}"${bold ? ' font-weight="bold"' : ''} fill="${xml(this.fillStyle)}" xml:space="preserve"${this.faint}>${xml(text)}</text>`);
  }

  drawImage(canvas, ...box) {
    this.parts.push(`<image ${this.box(...box)} preserveAspectRatio="none" href="${canvas.toDataURL('image/png')}"/>`);
  }

  text(ink) {
    const hatch = `<pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse"><path d="M-8 8l8 -8M0 8l8 -8M8 8l8 -8" stroke="${xml(ink)}" stroke-opacity=".22"/></pattern>`;
    return `<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}">\n<defs>${hatch}</defs>\n${this.parts.join('\n')}\n</svg>\n`;
  }
}

/*
 * What is saved: lines of text, the strips, and all rows of the body, also those that are scrolled
 * out of sight. content: {lines, strips, body, legend, colours}; body: {width, height, paint(pen)}.
 */
class Picture {
  constructor(content) {
    Object.assign(this, content);
    this.strips = content.strips.filter((canvas) => canvas.clientWidth);
    this.width = Math.ceil(Math.max(this.body.width, ...this.strips.map((canvas) => canvas.clientWidth)) + 2 * MARGIN);
    this.height = Math.ceil(3 * MARGIN + 20 * this.lines.length + this.strips.reduce((sum, canvas) => sum + canvas.clientHeight + MARGIN, 0) + this.body.height + 24);
  }

  draw(pen) {
    const {colours} = this;
    let y = MARGIN;
    pen.fillStyle = colours.panel;
    pen.fillRect(0, 0, this.width, this.height);
    pen.textBaseline = 'middle';
    pen.textAlign = 'left';
    this.lines.forEach((line, i) => {
      pen.font = `${i ? '' : 'bold '}${i ? 12 : 14}px ${css('--font')}`;
      pen.fillStyle = i ? colours.dim : colours.ink;
      pen.fillText(fitText(line, this.width - 2 * MARGIN, (text) => pen.measureText(text).width), MARGIN, y + 9);
      y += 20;
    });
    y += MARGIN;
    for (const canvas of this.strips) {
      pen.drawImage(canvas, MARGIN, y, canvas.clientWidth, canvas.clientHeight);
      y += canvas.clientHeight + MARGIN;
    }
    this.body.paint(pen, MARGIN, y);
    this.drawLegend(pen, y + this.body.height + 10);
  }

  drawLegend(pen, y) {
    let x = MARGIN;
    pen.font = '12px ' + css('--font');
    for (const [kind, name] of this.legend) {
      pen.fillStyle = css('--' + kind);
      pen.fillRect(x, y - 5, 10, 10);
      pen.fillStyle = this.colours.dim;
      pen.fillText(name, x + 15, y);
      x += 29 + pen.measureText(name).width;
    }
  }

  svg() {
    const pen = new SvgPen(this.width, this.height, element('canvas').getContext('2d'));
    this.draw(pen);
    return new Blob([pen.text(this.colours.text)], {type: 'image/svg+xml'});
  }

  png() {
    const ratio = Math.min(2, TALLEST / this.height, TALLEST / this.width);
    const canvas = element('canvas', {width: Math.floor(this.width * ratio), height: Math.floor(this.height * ratio)});
    const pen = canvas.getContext('2d');
    pen.scale(ratio, ratio);
    this.draw(pen);
    return new Promise((done) => canvas.toBlob(done, 'image/png'));
  }
}

function saveAs(blob, name) {
  const link = element('a', {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
