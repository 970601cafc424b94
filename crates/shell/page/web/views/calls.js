// Calls in progress, and one call with its ladder.
import { html, useEffect, useRef, useState } from "../html.js";
import { path } from "../api.js";
import { clock, count, party } from "../format.js";
import { Confirm } from "../parts/confirm.js";
import { Lamp } from "../parts/lamp.js";
import { Empty, Polled } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { Traced } from "../parts/trace.js";
import { usePoll } from "../poll.js";
import { link } from "../route.js";
import { useMay, useServer } from "../server.js";

const LIMIT = 500;
const LAMPS = { answered: "good", ringing: "busy", trying: "busy", challenged: "off" };

export function Calls({ rest }) {
  const { api } = useServer();
  const poll = usePoll((signal) => api.get(`/calls?limit=${LIMIT}`, signal), [api]);
  const [ended, setEnded] = useState(null);
  const callId = rest[0];
  return html`
    ${callId ? html`<${One} callId=${callId} poll=${poll} onEnd=${setEnded} key=${callId} />` : html`<${List} poll=${poll} onEnd=${setEnded} />`}
    ${ended && html`<${End} call=${ended} onClose=${() => setEnded(null)} onEnded=${poll.refresh} />`}`;
}

function List({ poll, onEnd }) {
  const mayTrace = useMay("operator");
  const mayEnd = useMayEnd();
  const columns = [
    { name: "Caller", is_head: true, class: "mono party", cell: (call) => html`<span title=${call.caller}>${party(call.caller)}</span>` },
    { name: "Called", class: "mono party", cell: (call) => html`<span title=${call.callee}>${party(call.callee)}</span>` },
    { name: "State", cell: (call) => html`<${Lamp} kind=${LAMPS[call.state] ?? "off"}>${call.state}<//>` },
    { name: "Age", is_number: true, cell: (call) => clock(call.age_s) },
    { name: "Talking", is_number: true, cell: (call) => (call.answered_s === null ? "–" : clock(call.answered_s)) },
    { name: "From", class: "mono", cell: (call) => `${call.transport} ${call.source}` },
    { name: "Answered by", class: "mono", cell: (call) => call.target ?? "–" },
    (mayTrace || mayEnd) && {
      name: "Change", hides_name: true, class: "acts",
      cell: (call) => html`
        ${mayTrace && html`<a class="button" href=${link("calls", call.call_id)} aria-label=${`Ladder of the call from ${party(call.caller)} to ${party(call.callee)}`}>Ladder</a>`}
        ${mayEnd && html`<button type="button" onClick=${() => onEnd(call)} aria-label=${`End the call from ${party(call.caller)} to ${party(call.callee)}`}>End</button>`}`,
    },
  ].filter(Boolean);
  return html`<${Polled} poll=${poll} what="calls">
    ${({ calls, more }) => (calls.length === 0
      ? html`<${Empty} title="No call is in progress.">Calls appear here when their INVITE arrives.<//>`
      : html`
        <p class="hint">${more ? `The oldest ${count(LIMIT, "call")} are shown.` : `${count(calls.length, "call")}, the oldest first.`}</p>
        <${Table} caption="Calls in progress" hides_caption columns=${columns} rows=${calls} id=${(call) => `${call.call_id} ${call.source}`} />`)}
  <//>`;
}

/// Time for which the last messages of a call may still pass after its end, ms.
const REST_MS = 3000;

/// Returns the call while it lasts and as it was last, and whether it has ended.
function useCall(callId, found) {
  const last = useRef(null);
  const now = found?.calls.find((one) => one.call_id === callId);
  if (now) last.current = now;
  return { call: last.current, hasEnded: Boolean(found && !now && last.current) };
}

/// Returns whether `is` has been true for `after` ms.
function useLater(is, after) {
  const [isLater, setLater] = useState(false);
  useEffect(() => {
    setLater(false);
    if (!is) return undefined;
    const wait = setTimeout(() => setLater(true), after);
    return () => clearTimeout(wait);
  }, [is]);
  return isLater;
}

function One({ callId, poll, onEnd }) {
  const mayEnd = useMayEnd();
  const mayTrace = useMay("operator");
  const { call, hasEnded } = useCall(callId, poll.value);
  const isOver = useLater(hasEnded, REST_MS);
  return html`
    <p class="trail"><a href=${link("calls")}>All calls</a></p>
    <h2 class="mono subject">${call ? `${party(call.caller)} → ${party(call.callee)}` : callId}</h2>
    <div role="status">
      ${poll.value !== null && !call && html`<p><${Lamp} kind="off">${poll.value.more
        ? `This call is not among the oldest ${LIMIT}: it may be a newer one, or it has ended.`
        : "This call is not in progress: it has ended, or it never was here."}<//></p>`}
      ${hasEnded && html`<p class="ended"><${Lamp} kind="off">This call has ended${ending(call)}.<//></p>`}
    </div>
    ${call && html`<dl class="facts">
      ${!hasEnded && html`<div><dt>State</dt><dd><${Lamp} kind=${LAMPS[call.state] ?? "off"}>${call.state}<//></dd></div>
      <div><dt>Age</dt><dd>${clock(call.age_s)}${isAnswered(call) && `, answered ${clock(call.answered_s)} ago`}</dd></div>`}
      <div><dt>Caller</dt><dd class="mono">${call.caller} from ${call.transport} ${call.source}</dd></div>
      <div><dt>Called</dt><dd class="mono">${call.callee}${call.target && `, answered by ${call.target}`}</dd></div>
      <div><dt>Call-ID</dt><dd class="mono">${callId}</dd></div>
    </dl>
    ${mayEnd && !hasEnded && html`<p><button type="button" class="danger" onClick=${() => onEnd(call)}>End this call</button></p>`}`}
    ${mayTrace && html`<section aria-labelledby="ladder">
      <h2 id="ladder">Messages</h2>
      <${Traced} filter=${{ call_id: callId }} is_stopped=${isOver}>
        <${Empty} title="No message since you opened this view.">Earlier messages are not kept. ${next(call)}<//>
      <//>
    </section>`}`;
}

const isAnswered = (call) => call.answered_s !== null && call.answered_s !== undefined;

/// Says how long a call lasted, to within the time between two questions.
const ending = (call) => (isAnswered(call) ? ` after ${clock(call.answered_s)}` : ` unanswered, ${clock(call.age_s)} after it began`);

/// Says what the next message of a call will be.
function next(call) {
  if (call && !isAnswered(call)) return "The next one appears when the call is answered or refused, or when the caller gives up.";
  return "The next one appears when somebody hangs up, holds or transfers, or when the phones refresh the call.";
}

/// Whether the role and the server allow to end calls. Not every server can.
function useMayEnd() {
  const { api } = useServer();
  const mayOperate = useMay("operator");
  const poll = usePoll(async (signal) => {
    if (!mayOperate) return false;
    const { paths } = await api.get("/openapi.json", signal);
    const found = Object.entries(paths).find(([name]) => /\/calls\/\{[^}]*\}$/.test(name));
    return Boolean(found?.[1].delete);
  }, [api], 0);
  return poll.value === true;
}

function End({ call, onClose, onEnded }) {
  const { api, tell } = useServer();
  const end = async () => {
    await api.delete(path("calls", call.call_id));
    onClose();
    tell(`The call from ${party(call.caller)} to ${party(call.callee)} is being ended.`);
    onEnded();
  };
  return html`<${Confirm} title="End this call?" verb="End the call" onConfirm=${end} onClose=${onClose}>
    <p>The call from <strong class="mono">${party(call.caller)}</strong> to <strong class="mono">${party(call.callee)}</strong> is hung up on both sides.</p>
  <//>`;
}
