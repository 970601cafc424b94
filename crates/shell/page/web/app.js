// The page: log in, then the shell with one view.
import { html, render, useCallback, useMemo, useRef, useState } from "./html.js";
import { Api } from "./api.js";
import { History } from "./history.js";
import { usePoll } from "./poll.js";
import { useRoute } from "./route.js";
import { ServerContext } from "./server.js";
import { keptToken } from "./session.js";
import { Shell } from "./shell.js";
import { LogIn } from "./views/log-in.js";

/// Time between two measurements of packet times, and the length of each, ms.
const TIMING_EVERY_MS = 10_000;
const TIMING_FOR_MS = 2_000;

function App() {
  const [session, setSession] = useState(null);
  const [refusal, setRefusal] = useState(null);
  const end = useCallback((error) => {
    const why = error && { title: "The server does not accept your token any more", message: error.message };
    keptToken.write(null);
    setSession(null);
    setRefusal(why);
  }, []);
  const begin = useCallback((api, facts) => {
    keptToken.write(api.token);
    setRefusal(null);
    setSession({ api: new Api(api.token, end), facts });
  }, []);
  if (!session) return html`<${LogIn} onSuccess=${begin} refusal=${refusal} />`;
  return html`<${LoggedIn} api=${session.api} session=${session.facts} onLogOut=${() => end(null)} />`;
}

function LoggedIn({ api, session, onLogOut }) {
  const route = useRoute();
  const history = useRef(null);
  history.current ??= new History();
  const status = usePoll(async (signal) => {
    const status = await api.get("/status", signal);
    history.current.addStatus(status, Date.now() / 1000);
    return status;
  }, [api]);
  usePoll(async (signal) => {
    const report = await api.get(`/timing?duration_ms=${TIMING_FOR_MS}`, signal).catch((error) => {
      if (error.status > 0) history.current.whyNoTiming = error.message;
      throw error;
    });
    history.current.addTiming(report, Date.now() / 1000);
  }, [api], TIMING_EVERY_MS);
  const [told, setTold] = useState(null);
  const tell = useCallback((text) => setTold({ text, number: Math.random() }), []);
  const server = useMemo(
    () => ({ api, session, history: history.current, status: status.value, tell }),
    [api, session, status.value],
  );
  return html`<${ServerContext.Provider} value=${server}>
    <${Shell} route=${route} status=${status} told=${told} onForget=${() => setTold(null)} onLogOut=${onLogOut} />
  <//>`;
}

render(html`<${App} />`, document.getElementById("app"));
