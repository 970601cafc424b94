// Applies the chosen colours before the page is painted. It is not a module: those run later.
"use strict";
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that stores nothing uses the system's colours.
}
