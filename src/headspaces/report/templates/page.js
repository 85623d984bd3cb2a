"use strict";

const $ = (id) => document.getElementById(id);

/** Let the button #theme overrule the system's light or dark; `redraw` is called after every change. */
function startTheme(redraw = () => {}) {
  const themes = ["system", "light", "dark"];
  const apply = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
    $("theme").textContent = `Theme: ${theme}`;
    redraw();
  };
  let theme = "system";
  try { theme = localStorage.getItem("headspaces-theme") || "system"; } catch { /* storage may be closed to files */ }
  if (!themes.includes(theme)) theme = "system";
  apply(theme);
  $("theme").onclick = () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("headspaces-theme", theme); } catch { /* as above */ }
    apply(theme);
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply(theme));
}
