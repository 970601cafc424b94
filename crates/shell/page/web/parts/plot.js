// A plot of the last ten minutes, drawn by uPlot, with the same in words.
import { html, useEffect, useRef, useState } from "../html.js";

const HEIGHT = 150;

/// Dashes tell lines apart without colour.
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
const COLOURS = ["--line-1", "--line-2", "--line-3", "--line-4"];

/// `series` are `{ name, values }`; `format` writes a value with its unit.
export function Plot({ title, times, series, format, is_logarithmic, top, why }) {
  const place = useRef(null);
  const drawn = useRef(null);
  const [at, setAt] = useState(null);
  const data = [times, ...series.map((one) => one.values)];
  const shape = `${series.length} ${is_logarithmic}`;
  const colours = useColours();
  useEffect(() => {
    const area = place.current;
    const options = settings({ series, format, is_logarithmic, top, width: area.clientWidth, onMove: setAt });
    const plot = new window.uPlot(options, data, area);
    drawn.current = plot;
    const resized = new ResizeObserver(() => plot.setSize({ width: area.clientWidth, height: HEIGHT }));
    resized.observe(area);
    return () => {
      resized.disconnect();
      plot.destroy();
    };
  }, [shape, colours]);
  useEffect(() => drawn.current?.setData(data));
  const shown = at !== null && at < times.length ? at : times.length - 1;
  const valueAt = (one) => (one.values[shown] === null || one.values[shown] === undefined ? "–" : format(one.values[shown]));
  return html`<figure class="plot">
    <figcaption>
      <h3>${title}</h3>
      <ul class="legend">
        ${series.map((one, index) => html`<li key=${one.name}>
          <${LineSample} index=${index} /> ${one.name} <strong>${valueAt(one)}</strong>
        </li>`)}
        ${at !== null && shown >= 0 && html`<li class="when">${new Date(times[shown] * 1000).toLocaleTimeString()}</li>`}
      </ul>
    </figcaption>
    <div ref=${place} class="plot-area" role="img" aria-label=${`${title}, last ten minutes. ${series.map((one) => inWords(one, format)).join(" ")}`}></div>
    ${series.every(({ values }) => values.every((value) => value === null)) && html`<p class="plot-empty">${why ?? "Nothing measured yet."}</p>`}
  </figure>`;
}

function LineSample({ index }) {
  const dash = DASHES[index % DASHES.length].join(" ");
  return html`<svg width="22" height="8" aria-hidden="true">
    <line x1="0" x2="22" y1="4" y2="4" class=${`line-${(index % COLOURS.length) + 1}`} stroke-dasharray=${dash} />
  </svg>`;
}

function inWords({ name, values }, format) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.length === 0) return `${name}: not measured yet.`;
  return `${name}: now ${format(known[known.length - 1])}, lowest ${format(Math.min(...known))}, highest ${format(Math.max(...known))}.`;
}

function settings({ series, format, is_logarithmic, top, width, onMove }) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const tenfold = (_plot, splits) => splits.map((value) => (is_logarithmic && !isTenfold(value) ? null : value));
  const axis = { stroke: colour("--ink-2"), font: "11px system-ui, sans-serif", ticks: { show: false } };
  const grid = { stroke: colour("--edge"), width: 1 };
  const range = (_plot, _low, high) => [0, Math.max(top ?? 0, (high ?? 0) * 1.15, 1)];
  return {
    width,
    height: HEIGHT,
    padding: [8, 10, 0, 0],
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, y: false, points: { size: 6 } },
    hooks: { setCursor: [(plot) => onMove(plot.cursor.idx ?? null)] },
    scales: { x: { time: true, range: lastMinutes }, y: is_logarithmic ? { distr: 3, log: 10 } : { range } },
    axes: [
      { ...axis, grid: { show: false }, size: 26, gap: 4, space: 70, incrs: [60, 120, 300], values: (_plot, splits) => splits.map(timeOfDay) },
      { ...axis, grid: { ...grid, filter: tenfold }, filter: tenfold, size: 62, gap: 6, space: 30, values: (_plot, splits) => splits.map((value) => (value === null ? "" : format(value))) },
    ],
    series: [
      {},
      ...series.map((one, index) => ({
        label: one.name,
        stroke: colour(COLOURS[index % COLOURS.length]),
        dash: DASHES[index % DASHES.length],
        width: 1.75,
        // One or two values are no line yet.
        points: { show: (plot) => plot.data[0].length < 3, size: 5 },
        spanGaps: false,
      })),
    ],
  };
}

const isTenfold = (value) => Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6;

/// The window grows with the values until it has ten minutes.
function lastMinutes(_plot, first, last) {
  const end = last ?? Date.now() / 1000;
  return [Math.max(Math.min(first ?? end, end - 120), end - 600), end];
}

const timeOfDay = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

/// Changes when the page's colours change, because the plot is painted with them.
function useColours() {
  const read = () => getComputedStyle(document.documentElement).getPropertyValue("--ink");
  const [colours, setColours] = useState(read);
  useEffect(() => {
    const changed = () => setColours(read());
    const system = matchMedia("(prefers-color-scheme: dark)");
    const chosen = new MutationObserver(changed);
    system.addEventListener("change", changed);
    chosen.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => {
      system.removeEventListener("change", changed);
      chosen.disconnect();
    };
  }, []);
  return colours;
}
