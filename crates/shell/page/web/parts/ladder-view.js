// Draws a ladder as SVG, and the same as a table for those who read rather than look.
import { html, useEffect, useRef, useState } from "../html.js";
import { elapsed, number } from "../format.js";
import { Table } from "./table.js";

const GUTTER = 92;
const MIN_GAP = 190;
/// The same in a narrow window.
const NARROW = { below: 560, gutter: 76, gap: 140 };
const HEAD = 40;
const ROW = 30;

export function LadderView({ ladder }) {
  const [chosen, setChosen] = useState(null);
  const [view, setView] = useState("ladder");
  const message = ladder.messages.find((one) => one.id === chosen);
  return html`
    <div class="switch" role="group" aria-label="Show the messages as">
      ${[["ladder", "Ladder"], ["list", "List"]].map(([name, text]) => html`<button type="button" key=${name} aria-pressed=${view === name} onClick=${() => setView(name)}>${text}</button>`)}
    </div>
    ${view === "ladder"
      ? html`<${Drawing} ladder=${ladder} chosen=${chosen} onChoose=${setChosen} />`
      : html`<${List} ladder=${ladder} onChoose=${setChosen} />`}
    ${ladder.dropped > 0 && html`<p class="hint">The oldest ${number(ladder.dropped)} messages are no longer kept here.</p>`}
    ${ladder.undrawn > 0 && html`<p class="hint">${number(ladder.undrawn)} messages of further parties are not drawn.</p>`}
    ${message && html`<${Message} message=${message} onClose=${() => setChosen(null)} />`}`;
}

function Drawing({ ladder, chosen, onChoose }) {
  const area = useRef(null);
  const width = useWidth(area);
  const lanes = ladder.lanes();
  const isNarrow = width < NARROW.below;
  const gutter = isNarrow ? NARROW.gutter : GUTTER;
  const gap = Math.max(isNarrow ? NARROW.gap : MIN_GAP, Math.floor((width - gutter) / lanes.length));
  const total = gutter + gap * lanes.length;
  const height = ROW * (ladder.messages.length + 1);
  const x = (party) => gutter + gap * (lanes.indexOf(party) + 0.5);
  const first = ladder.messages[0]?.at_us ?? 0;
  useFollow(area, ladder.messages.length);
  return html`
    ${total > width && html`<p class="hint">The ladder is wider than the window: scroll it sideways →</p>`}
    <div class="ladder" ref=${area} tabindex="0" role="region" aria-label="Ladder">
    <svg width=${total} height=${HEAD} class="ladder-head" aria-hidden="true">
      ${lanes.map((party) => html`<g key=${party ?? "server"}>
        <text x=${x(party)} y="16" class="lane-name">${party ? address(party, gap) : "this server"}</text>
        <text x=${x(party)} y="31" class="lane-transport">${party?.split(" ")[0]}</text>
      </g>`)}
    </svg>
    <svg width=${total} height=${height} role="img" aria-label=${`${number(ladder.messages.length)} messages between the server and ${number(lanes.length - 1)} others. Choose List to read them.`}>
      ${lanes.map((party) => html`<line key=${party ?? "server"} x1=${x(party)} x2=${x(party)} y1="0" y2=${height} class=${party ? "lane" : "lane lane-server"} />`)}
      ${ladder.messages.map((message, row) => html`<${Arrow} key=${message.id} message=${message} y=${ROW * (row + 1) - 4} gutter=${gutter} from=${x(message.sent ? null : message.party)}
        to=${x(message.sent ? message.party : null)} after=${(message.at_us - first) / 1000} call=${ladder.calls.length > 1 ? message.call : null}
        isChosen=${message.id === chosen} onChoose=${onChoose} />`)}
    </svg>
  </div>`;
}

function Arrow({ message, y, gutter, from, to, after, call, isChosen, onChoose }) {
  const right = to > from;
  const end = to + (right ? -2 : 2);
  const back = right ? -7 : 7;
  const room = Math.floor((Math.abs(to - from) - 16) / 6.7);
  return html`<g class=${`arrow arrow-${message.kind}${isChosen ? " chosen" : ""}`} onClick=${() => onChoose(message.id)}>
    <title>${message.start}</title>
    <rect x="0" y=${y - 19} width="100%" height=${ROW} class="arrow-row" />
    <text x=${gutter - 12} y=${y + 4} class="arrow-time">${elapsed(after)}</text>
    ${call !== null && html`<text x="4" y=${y + 4} class="arrow-call">#${call}</text>`}
    <line x1=${from} x2=${end} y1=${y} y2=${y} />
    <path d=${`M${end} ${y} l${back} -4 v8 z`} />
    <text x=${(from + to) / 2} y=${y - 5} class="arrow-label">${shortened(message.label, room)}</text>
  </g>`;
}

function List({ ladder, onChoose }) {
  const first = ladder.messages[0]?.at_us ?? 0;
  return html`<${Table} caption="Messages" hides_caption rows=${ladder.messages} id=${(message) => message.id} columns=${[
    { name: "After", is_number: true, cell: (message) => elapsed((message.at_us - first) / 1000) },
    ladder.calls.length > 1 && { name: "Call", is_number: true, cell: (message) => message.call },
    { name: "Direction", cell: (message) => (message.sent ? "sent to" : "received from") },
    { name: "Party", class: "mono", cell: (message) => `${message.peer} ${message.transport}` },
    { name: "Message", is_head: true, class: "mono", cell: (message) => html`<button type="button" class="plain" onClick=${() => onChoose(message.id)}>${message.label}</button>` },
  ].filter(Boolean)} />`;
}

function Message({ message, onClose }) {
  const heading = useRef(null);
  useEffect(() => heading.current.focus(), [message.id]);
  const text = message.lines ? message.lines.join("\n") : null;
  return html`<section class="message" aria-labelledby="message-head">
    <h3 id="message-head" tabindex="-1" ref=${heading}>${message.sent ? "Sent to" : "Received from"} <span class="mono">${message.peer}</span></h3>
    <p class="hint">${message.transport}, ${number(message.length)} bytes, ${message.time}, Call-ID <span class="mono">${message.call_id}</span></p>
    <pre tabindex="0">${text ?? message.start}</pre>
    ${!text && html`<p class="hint">Choose "Whole messages" before starting to see all lines.</p>`}
    <button type="button" onClick=${onClose}>Close</button>
  </section>`;
}

/// Returns the width of the element.
function useWidth(element) {
  const [width, setWidth] = useState(700);
  useEffect(() => {
    const measured = element.current;
    const resized = new ResizeObserver(() => setWidth(measured.clientWidth));
    resized.observe(measured);
    return () => resized.disconnect();
  }, []);
  return width;
}

/// Keeps the last message visible for one who has not scrolled up.
function useFollow(element, count) {
  const wasAtEnd = useRef(true);
  const area = element.current;
  if (area) wasAtEnd.current = area.scrollHeight - area.scrollTop - area.clientHeight < 3 * ROW;
  useEffect(() => {
    if (wasAtEnd.current) element.current.scrollTop = element.current.scrollHeight;
  }, [count]);
}

function address(party, gap) {
  const text = party.slice(party.indexOf(" ") + 1);
  const room = Math.floor((gap - 12) / 7);
  return text.length <= room ? text : `${text.slice(0, room - 7)}…${text.slice(-6)}`;
}

const shortened = (text, room) => (text.length <= room ? text : `${text.slice(0, Math.max(1, room - 1))}…`);
