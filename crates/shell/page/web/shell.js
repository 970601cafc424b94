// What surrounds each view: the rail with the views, the state of the connection, messages.
import { html, useEffect, useRef, useState } from "./html.js";
import { attention } from "./attention.js";
import { Lamp } from "./parts/lamp.js";
import { Failure } from "./parts/notice.js";
import { Prose } from "./parts/prose.js";
import { link } from "./route.js";
import { useServer } from "./server.js";
import { may } from "./session.js";
import { Calls } from "./views/calls.js";
import { Members } from "./views/members.js";
import { Overview } from "./views/overview.js";
import { Records } from "./views/records.js";
import { Registrations } from "./views/registrations.js";
import { Security } from "./views/security.js";
import { System } from "./views/system.js";
import { Targets } from "./views/targets.js";
import { Trace } from "./views/trace.js";
import { Users } from "./views/users.js";

/// The views in the order of the rail: name in the address, title, view, role that it needs.
const VIEWS = [
  ["overview", "Overview", Overview, "viewer"],
  ["users", "Users", Users, "viewer"],
  ["registrations", "Registrations", Registrations, "viewer"],
  ["calls", "Calls", Calls, "viewer"],
  ["records", "Call records", Records, "operator"],
  ["trace", "Trace", Trace, "operator"],
  ["targets", "Targets", Targets, "viewer"],
  ["members", "Members", Members, "viewer"],
  ["security", "Security", Security, "viewer"],
  ["system", "System", System, "viewer"],
];

/// Time for which a message is shown, ms.
const SHOWN_MS = 8000;

export function Shell({ route, status, told, onForget, onLogOut }) {
  const { session } = useServer();
  const offered = VIEWS.filter(([, , , role]) => may(session.role, role));
  const found = offered.find(([name]) => name === route.view);
  const title = found?.[1] ?? "Not found";
  const main = useRef(null);
  const isFirst = useRef(true);
  const place = [route.view, ...route.rest].join("/");
  useEffect(() => {
    document.title = `${title} – Strowger`;
    // A new view is announced by its heading; the first one needs no announcement.
    if (!isFirst.current) main.current.focus();
    isFirst.current = false;
    scrollTo(0, 0);
  }, [place]);
  const View = found?.[2];
  return html`
    <a class="skip" href="#content" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the content</a>
    <div class="frame">
      <header class="rail">
        <p class="brand"><${Mark} /> Strowger</p>
        <nav aria-label="Views">
          <ul>
            ${offered.map(([name, text]) => html`<li key=${name}>
              <a href=${link(name)} aria-current=${name === route.view ? "page" : undefined}>${text}<${Badge} name=${name} /></a>
            </li>`)}
          </ul>
        </nav>
        <${Footer} onLogOut=${onLogOut} />
      </header>
      <main id="content" tabindex="-1" ref=${main}>
        <${Connection} poll=${status} />
        <h1>${title}</h1>
        ${View ? html`<${View} rest=${route.rest} key=${route.view} />` : html`<${Missing} view=${route.view} />`}
      </main>
    </div>
    <${Told} told=${told} onForget=${onForget} />`;
}

function Mark() {
  return html`<svg viewBox="0 0 32 32" width="24" height="24" aria-hidden="true" class="mark">
    <circle cx="16" cy="16" r="3.4" class="mark-centre" />
    ${[[20.4, 6.1], [16, 5.2], [11.2, 6.3], [7.3, 9.4], [5.3, 13.9], [5.5, 18.8], [8, 23.1], [12.2, 25.9], [17.1, 26.6], [21.8, 25.1]]
      .map(([x, y]) => html`<circle cx=${x} cy=${y} r="2" key=${x} />`)}
  </svg>`;
}

/// The number of matters that need attention.
function Badge({ name }) {
  const { status } = useServer();
  if (name !== "overview" || !status) return null;
  const matters = attention(status).length;
  return matters > 0 && html` <span class="badge"><span aria-hidden="true">${matters}</span><span class="unseen">, matters that need attention: ${matters}</span></span>`;
}

function Footer({ onLogOut }) {
  const { session } = useServer();
  return html`<div class="rail-foot">
    <${ColourChoice} />
    <p class="who">${session.name}<span class="role">${session.role}</span></p>
    <button type="button" onClick=${onLogOut}>Log out</button>
  </div>`;
}

const THEMES = [["system", "Auto"], ["light", "Light"], ["dark", "Dark"]];

function ColourChoice() {
  const [chosen, setChosen] = useState(document.documentElement.dataset.theme ?? "system");
  const choose = (event) => {
    const theme = event.currentTarget.value;
    setChosen(theme);
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // Then the choice lasts as long as the page.
    }
  };
  return html`<label class="colours"><span>Colours</span>
    <select value=${chosen} onChange=${choose}>
      ${THEMES.map(([name, text]) => html`<option value=${name} selected=${name === chosen} key=${name}>${text}</option>`)}
    </select>
  </label>`;
}

/// Says that the server does not answer, that it answers again, and that it is another one.
function Connection({ poll }) {
  const { session } = useServer();
  const isOther = poll.value !== null && poll.value.version !== session.server;
  const isSilent = poll.error?.isSilence ?? false;
  const wasSilent = useRef(false);
  const [isBack, setBack] = useState(false);
  useEffect(() => {
    if (isSilent) setBack(false);
    else if (wasSilent.current) setBack(true);
    wasSilent.current = isSilent;
    const forget = setTimeout(() => setBack(false), SHOWN_MS);
    return () => clearTimeout(forget);
  }, [isSilent]);
  return html`<div class="connection" role="status">
    ${isSilent && html`<p class="gone"><${Lamp} kind="bad">The server does not answer. This page asks again every two seconds; what it shows is old.<//></p>`}
    ${isOther && html`<p class="back"><${Lamp} kind="warn">The server has another version now. Load this page again.<//></p>`}
    ${isBack && html`<p class="back"><${Lamp} kind="good">The server answers again.<//></p>`}
  </div>`;
}

function Missing({ view }) {
  const error = { title: "There is no such view", message: `"${view}" is not a view of this page, or your role does not include it.` };
  return html`<${Failure} error=${error} />`;
}

function Told({ told, onForget }) {
  useEffect(() => {
    if (!told) return undefined;
    const forget = setTimeout(onForget, SHOWN_MS);
    return () => clearTimeout(forget);
  }, [told]);
  return html`<div class="told" role="status">
    ${told && html`<p key=${told.number}><span><${Prose} text=${told.text} /></span> <button type="button" aria-label="Close the message" onClick=${onForget}>×</button></p>`}
  </div>`;
}
