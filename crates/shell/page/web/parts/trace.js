// A running trace and its ladder.
import { html, useEffect, useRef, useState } from "../html.js";
import { query } from "../api.js";
import { Ladder } from "../ladder.js";
import { LadderView } from "./ladder-view.js";
import { Lamp } from "./lamp.js";
import { Failure } from "./notice.js";
import { useServer } from "../server.js";

/// The server ends a trace after this time, ms.
const FOR_MS = 600_000;

/// Traces what `filter` selects, such as `{ call_id }`, as long as it is shown. With `is_stopped` it keeps the messages
/// that have passed; it cannot start again then.
export function Traced({ filter, is_stopped, children }) {
  const { api } = useServer();
  const [withText, setWithText] = useState(true);
  const [state, setState] = useState({ name: "starting" });
  const [run, setRun] = useState(0);
  const ladder = useLadder();
  const wanted = JSON.stringify(filter);
  const running = useRef(null);
  useEffect(() => {
    const stopped = new AbortController();
    running.current = stopped;
    ladder.clear();
    setState({ name: "starting" });
    const onEvent = (name, data) => {
      if (name === "started") setState({ name: "running" });
      if (name === "message") ladder.add(JSON.parse(data));
      if (name === "lost") ladder.lose(JSON.parse(data).lost);
    };
    const path = query("/trace", { ...filter, messages: withText, for_ms: FOR_MS });
    api.stream(path, onEvent, stopped.signal).then(
      () => setState({ name: "ended" }),
      (error) => !stopped.signal.aborted && setState({ name: "failed", error }),
    );
    return () => stopped.abort();
  }, [api, wanted, withText, run]);
  useEffect(() => {
    if (!is_stopped) return;
    running.current.abort();
    setState({ name: "stopped" });
  }, [is_stopped]);
  const { current } = ladder;
  const isRunning = state.name === "starting" || state.name === "running";
  return html`
    <div class="bar">
      <p role="status" class="trace-state"><${State} name=${state.name} /></p>
      ${(state.name === "ended" || state.name === "failed") && html`<button type="button" onClick=${() => setRun(run + 1)}>Start again</button>`}
      ${isRunning && html`<label class="check"><input type="checkbox" checked=${withText} onChange=${(event) => setWithText(event.currentTarget.checked)} /> Whole messages</label>`}
    </div>
    ${state.error && html`<${Failure} error=${state.error} />`}
    ${current.lost > 0 && html`<p><${Lamp} kind="warn">${current.lost} messages are missing: they arrived faster than they were read.<//></p>`}
    ${current.messages.length === 0 ? isRunning && children : html`<${LadderView} ladder=${current} />`}`;
}

function State({ name }) {
  switch (name) {
    case "starting": return html`<${Lamp} kind="busy">The trace starts…<//>`;
    case "running": return html`<${Lamp} kind="good">Messages appear as they pass.<//>`;
    case "stopped": return html`<${Lamp} kind="off">Stopped. The messages stay until you leave this view.<//>`;
    case "ended": return html`<${Lamp} kind="off">The trace has ended.<//>`;
    default: return html`<${Lamp} kind="bad">The trace does not run.<//>`;
  }
}

/// A ladder that is drawn again at most once for each frame of the screen.
function useLadder() {
  const [, setDrawn] = useState(0);
  const own = useRef(null);
  own.current ??= {
    current: new Ladder(),
    isDue: false,
    change(what) {
      what(this.current);
      if (this.isDue) return;
      this.isDue = true;
      requestAnimationFrame(() => {
        this.isDue = false;
        setDrawn((drawn) => drawn + 1);
      });
    },
    add(message) {
      this.change((ladder) => ladder.add(message));
    },
    lose(lost) {
      this.change((ladder) => (ladder.lost += lost));
    },
    clear() {
      this.current = new Ladder();
      this.change(() => {});
    },
  };
  return own.current;
}
