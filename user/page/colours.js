/*
 * Colours a frame by what it is, in hues that colour-blind readers can distinguish, or by how much
 * it changed: blue is less, red is more. Red is also what is slow; A and B have no colour.
 */

const KINDS = [
  ['python', 'Python'],
  ['op', 'operator'],
  ['native', 'native code'],
  ['kernel', 'kernel, GPU'],
  ['wait', 'wait'],
  ['phase', 'phase'],
];

class Colours {
  constructor() {
    this.refresh();
  }

  /* Call this after a change of theme. */
  refresh() {
    this.ink = css('--ink');
    this.dim = css('--dim');
    this.line = css('--line');
    this.panel = css('--panel');
    this.match = css('--match');
    this.slow = css('--slow');
    this.text = css('--frame-ink');
    this.kinds = {mark: this.rgb('--mark')};
    for (const [kind] of KINDS) this.kinds[kind] = this.rgb('--' + kind);
    this.kinds.waker = this.kinds.wait;
    this.neutral = this.rgb('--neutral');
    this.less = this.rgb('--less');
    this.more = this.rgb('--more');
    this.ground = this.rgb('--panel');
  }

  rgb(name) {
    const hex = css(name);
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  }

  static text(rgb) {
    return `rgb(${rgb.map(Math.round).join(' ')})`;
  }

  static mix(from, to, share) {
    return from.map((value, i) => value + (to[i] - value) * share);
  }

  /* shade: -1 to 1, the same for all frames of a file, so that neighbours of one kind differ. */
  frame(kind, shade) {
    return Colours.text(Colours.mix(this.kinds[kind], shade < 0 ? this.ground : this.kinds.phase, Math.abs(shade) * 0.16));
  }

  /*
   * a, b, error: of the frame; whole: of all frames. A change is pale if it is small against the
   * whole, or within the error.
   */
  change(a, b, error, whole) {
    const larger = Math.max(a, b);
    if (!larger) return Colours.text(this.neutral);
    const strength = (Math.abs(b - a) / larger) * Math.min(1, Math.sqrt(Math.abs(b - a) / (0.04 * whole))) * Math.min(1, Math.abs(b - a) / (2 * error || 1)) ** 2;
    return Colours.text(Colours.mix(this.neutral, b > a ? this.more : this.less, Math.min(1, strength)));
  }
}
