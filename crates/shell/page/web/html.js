// The template function of all views. Values in a template become text or properties, never markup, so that texts of
// SIP messages cannot become elements.
import { h } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";

export const html = htm.bind(h);
export { Fragment, createContext, render } from "./vendor/preact.mjs";
export {
  useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useReducer, useRef, useState,
} from "./vendor/hooks.mjs";
