"use strict";
// Numbers as the tables have them.
const digits = (value, count) => value.toLocaleString("en", { maximumSignificantDigits: count });
const within = (value, units) => {
  const [size, unit] = units.find(([size]) => Math.abs(value) >= 0.9995 * size) ?? units[units.length - 1];
  return `${digits(value / size, 4)} ${unit}`;
};
const SHOWN = {
  time: (value) => value === 0 ? "0" : within(value, [[86400, "days"], [3600, "h"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]),
  rate: (value) => `${digits(value, 4)}/s`,
  share: (value) => `${digits(100 * value, 6)} %`,
  number: (value) => digits(value, 6),
  bytes: (value) => within(value, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]),
  bits: (value) => within(value, [[1e12, "Tbit/s"], [1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]]),
};
const COLOURS = ["#0072b2", "#e68200", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#787878", "#8a8a00"];
const style = getComputedStyle(document.documentElement);
const ink = style.getPropertyValue("--ink"), rule = style.getPropertyValue("--rule");

for (const chart of CHARTS) {
  const card = document.createElement("section");
  card.className = "chart";
  const title = document.createElement("h2");
  title.textContent = chart.title;
  card.append(title);
  document.getElementById("charts").append(card);
  const shown = (unit) => (value) => value == null ? "–" : SHOWN[unit](value);
  const axis = (unit, label, size) => ({
    stroke: ink, grid: { stroke: rule }, ticks: { stroke: rule }, label, size,
    // A logarithmic axis has lines without a number between the others.
    values: (_, all) => all.map((value) => value == null ? "" : shown(unit)(value)),
  });
  const lines = chart.lines.map(({ name, dots, colour }, index) => {
    const stroke = COLOURS[(colour ?? index) % COLOURS.length];
    const points = dots ? { show: true, size: 8, fill: stroke } : { show: false };
    return { label: name, stroke, width: dots ? 0 : 2, points, spanGaps: true, value: (_, value) => shown(chart.y)(value) };
  });
  const width = () => Math.max(320, card.clientWidth - 32);
  const plot = new uPlot({
    width: width(), height: 340,
    scales: { x: { time: false, distr: chart.acrossLog ? 3 : 1 }, y: chart.log ? { distr: 3 } : { range: (_, low, high) => [Math.min(0, low), high * 1.08 || 1] } },
    axes: [axis(chart.x, chart.across, 50), axis(chart.y, "", 90)],
    series: [{ label: chart.across, value: (_, value) => shown(chart.x)(value) }, ...lines],
  }, chart.data, card);
  addEventListener("resize", () => plot.setSize({ width: width(), height: 340 }));
}
