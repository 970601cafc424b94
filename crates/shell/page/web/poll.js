// Data that are asked for again and again.
import { useCallback, useEffect, useRef, useState } from "./html.js";

/// Time between two questions, ms.
export const EVERY_MS = 2000;

/// Calls `load(signal)` at once, again each `every` ms while the window is visible, and after `refresh()`. It also asks
/// at once when one of `keys` changes; the last value stays until the answer, so that a table does not flicker.
///
/// Returns the last value (null before the first) and the error of the last attempt (null if it succeeded).
export function usePoll(load, keys, every = EVERY_MS) {
  const [state, setState] = useState({ value: null, error: null });
  const again = useRef(() => {});
  useEffect(() => {
    const stopped = new AbortController();
    const wait = new Timer();
    let isBusy = false;
    let isDue = false;
    const ask = async () => {
      if (isBusy) {
        isDue = true;
        return;
      }
      wait.stop();
      isBusy = true;
      try {
        const value = await load(stopped.signal);
        if (!stopped.signal.aborted) setState({ value, error: null });
      } catch (error) {
        if (!stopped.signal.aborted) setState((last) => ({ value: last.value, error }));
      }
      isBusy = false;
      if (stopped.signal.aborted) return;
      if (isDue) {
        isDue = false;
        ask();
      } else if (!document.hidden && every > 0) {
        wait.start(ask, every);
      }
    };
    const onVisible = () => (document.hidden ? wait.stop() : ask());
    document.addEventListener("visibilitychange", onVisible);
    again.current = ask;
    ask();
    return () => {
      stopped.abort();
      wait.stop();
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, keys);
  const refresh = useCallback(() => again.current(), []);
  return { ...state, refresh };
}

class Timer {
  start(what, after) {
    this.stop();
    this.id = setTimeout(what, after);
  }

  stop() {
    clearTimeout(this.id);
  }
}
