/*
 * The answer: what limits the steps, and what made steps slow, as `report --steps` and the summary
 * say it. A click on a cause chooses its steps.
 */

/* Names are shown, never obeyed: every text of the answer comes from a recording. */
function visibleAll(value) {
  if (typeof value === 'string') return visible(value);
  if (Array.isArray(value)) return value.map(visibleAll);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, visibleAll(inner)]));
}

/* Gives each track its part of the answer. Both come in the same order, recording by recording. */
function attachAnswers(data) {
  data.head.recordings.forEach(({answer}, recording) => {
    const tracks = data.tracks.filter((t) => t.recording === recording);
    tracks.forEach((track, i) => (track.answer = visibleAll(answer.tracks[i])));
    if (answer.shown !== null) tracks[answer.shown].first = true;
  });
}

const CAUSES_SHOWN = 20;

class Answer {
  /* pick(recording, cause, compare): a click on a cause; compare: with ordinary steps */
  constructor(verdicts, causes, pick) {
    Object.assign(this, {verdicts, causes, pick});
  }

  /* tracks: of A and, in a comparison of two recordings, of B. words: what A and B choose. */
  show(tracks, words, two) {
    const answers = tracks.map((track, i) => (i && !two ? null : track?.answer)).map((answer, i) => ({answer, track: tracks[i], letter: two ? 'AB'[i] : ''}));
    const known = answers.filter(({answer}) => answer);
    this.verdicts.hidden = !known.length;
    this.verdicts.replaceChildren(...known.map((one) => this.verdict(one)));
    const slow = known.filter(({answer}) => answer.causes.length);
    this.causes.hidden = !slow.length;
    this.causes.replaceChildren(...slow.flatMap((one) => this.list(one, words, answers.indexOf(one))));
  }

  verdict({answer, track, letter}) {
    const {head, why, place, next} = answer.verdict;
    const limit = element('h2', {}, ...(letter ? [element('b', {className: 'letter ' + letter.toLowerCase()}, letter), ' '] : []), 'Limited by ', element('bdi', {}, head));
    const because = element('p', {className: 'why'}, element('bdi', {}, place && !why.includes(place) ? `${why}: ${place}` : why));
    const lines = [limit, because];
    if (next.length) lines.push(element('p', {}, element('b', {}, 'Try '), element('bdi', {}, next[0])));
    if (!answer.causes.length) lines.push(element('p', {}, answer.limit_s === null ? 'Too few steps to say which are slow.' : `None of ${plural(track.count, 'step')} took longer than ${duration(answer.limit_s * 1e9)}.`));
    return element('div', {className: 'verdict'}, ...lines);
  }

  list({answer, track, letter}, words, recording) {
    const {causes, limit_s: limit} = answer;
    const count = causes.reduce((sum, cause) => sum + cause.count, 0);
    const share = causes.reduce((sum, cause) => sum + cause.share, 0);
    const title = element('h2', {}, ...(letter ? [element('b', {className: 'letter ' + letter.toLowerCase()}, letter), ' '] : []), element('i', {className: 'kind slow'}), `${count} of ${plural(track.count, 'step')} over ${duration(limit * 1e9)} cost ${percent(share)} of the time`);
    const rows = causes.slice(0, CAUSES_SHOWN).map((cause, i) => this.row(cause, i, causes[0].share, words, recording, letter));
    if (causes.length > CAUSES_SHOWN) rows.push(element('li', {}, `${causes.length - CAUSES_SHOWN} more: stepflame report --steps`));
    return [title, element('ol', {}, ...rows)];
  }

  row(cause, i, most, words, recording, letter) {
    const bar = element('i', {className: 'amount'});
    bar.style.width = `${(100 * cause.share) / (most || 1)}%`;
    const steps = `${plural(cause.count, 'step')}${cause.every ? `, ${cause.every}` : ''}`;
    const text = element('span', {className: 'what'}, element('b', {}, cause.how), element('span', {}, steps), ...(cause.place ? [cut(cause.place, 'place')] : []));
    const pressed = (word) => word === `cause:${i}`;
    const button = element('button', {className: 'cause', onclick: () => this.pick(recording, i, false), title: `Select these ${cause.count} steps${i < 9 ? ` (${i + 1})` : ''}\n${cause.how}\n${cause.place ?? ''}`}, element('span', {className: 'share'}, percent(cause.share), bar), text);
    button.dataset.cause = `${recording}:${i}`;
    button.setAttribute('aria-pressed', words.some((word, which) => pressed(word) && (!letter || which === recording)));
    const row = element('li', {}, button);
    if (!letter) row.append(element('button', {className: 'against', onclick: () => this.pick(recording, i, true), title: 'Compare these steps (B) with the ordinary ones (A)'}, 'compare'));
    return row;
  }
}
