"use strict";
// Selects the view by the path of the address.

const pages = [
  [/^\/$/, () => new RunsView()],
  [/^\/run$/, () => new RunView(new URLSearchParams(location.search).get("run") || "")],
  [/^\/play$/, () => new SetupView()],
  [/^\/games\/([a-z0-9]+)$/, (match) => new GameView(match[1])],
];
for (const [pattern, open] of pages) {
  const match = location.pathname.match(pattern);
  if (match) open(match);
}
