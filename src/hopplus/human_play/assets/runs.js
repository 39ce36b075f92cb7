"use strict";
// Views of all runs, and of one run while it trains.

const COLUMNS = [
  ["run", "run", (run) => run.run], ["algorithm", "algorithm", (run) => run.algorithm], ["game", "game", (run) => run.game],
  ["cast", "cast", (run) => run.cast], ["seeds", "seeds", (run) => run.seeds.length], ["steps", "steps", (run) => run.steps],
  ["own_return", "return", (run) => run.own_return], ["share_of_ceiling", "of the ceiling", (run) => run.share_of_ceiling],
  ["state", "state", (run) => run.state], ["changed", "changed", (run) => run.changed],
];

class RunsView {
  constructor() {
    this.runs = [];
    this.sortKey = "changed";
    this.ascending = false;
    this.selected = new Set();
    this.filter = make("input", { type: "search", id: "filter", placeholder: "hopplus 8x8 finished", oninput: () => this.draw() });
    this.compare = make("button", { type: "button", onclick: () => this.openReport() }, "Compare");
    this.count = make("output", { "aria-live": "polite" });
    this.head = make("tr", {});
    this.body = make("tbody", {});
    const toolbar = make("div", { class: "toolbar" }, make("label", { for: "filter" }, "Filter"), this.filter, this.compare, this.count);
    const runTable = make("div", { class: "wide" }, make("table", { class: "runs" }, make("thead", {}, this.head), this.body));
    this.games = make("section", {});
    showPage("Runs", toolbar, runTable, this.games);
    this.poll();
  }

  async poll() {
    for (;;) {
      try {
        this.runs = await request("/api/runs");
        this.draw();
        this.drawGames(await request("/api/games"));
        hideError();
      } catch (error) { showError(error); }
      await sleep(3000);
    }
  }

  visibleRuns() {
    const terms = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (run) => COLUMNS.map(([, , valueOf]) => String(valueOf(run))).join(" ").toLowerCase();
    const sortValue = COLUMNS.find(([key]) => key === this.sortKey)[2];
    const compare = (left, right) => {
      const [a, b] = [sortValue(left), sortValue(right)];
      if (a === null || b === null) return (a === null) - (b === null);
      return (a < b ? -1 : a > b ? 1 : 0) * (this.ascending ? 1 : -1);
    };
    return this.runs.filter((run) => terms.every((term) => text(run).includes(term))).sort(compare);
  }

  draw() {
    const heads = COLUMNS.map(([key, title]) => {
      const order = key === this.sortKey ? (this.ascending ? "ascending" : "descending") : null;
      const arrow = order ? (this.ascending ? " ▲" : " ▼") : "";
      return make("th", { scope: "col", "aria-sort": order }, make("button", { type: "button", id: `by-${key}`, onclick: () => this.sort(key) }, title + arrow));
    });
    const focusedId = document.activeElement && document.activeElement.id;
    this.head.replaceChildren(make("th", { scope: "col" }, "compare"), ...heads);
    const visible = this.visibleRuns();
    this.body.replaceChildren(...visible.map((run, number) => this.row(run, number)));
    this.count.textContent = this.runs.length ? `${visible.length} of ${this.runs.length} runs` : "No runs below this directory yet. Train one: hopplus train ppo";
    this.compare.disabled = this.selected.size < 2;
    this.compare.textContent = this.selected.size < 2 ? "Compare (choose two or more)" : `Compare ${this.selected.size}`;
    if (focusedId && document.getElementById(focusedId)) document.getElementById(focusedId).focus();
  }

  row(run, number) {
    const box = make("input", { type: "checkbox", id: `choose-${number}`, "aria-label": `Compare ${run.run}`, onchange: () => { this.selected[box.checked ? "add" : "delete"](run.run); this.draw(); } });
    box.checked = this.selected.has(run.run);
    const state = run.state === "training" ? make("span", {}, make("span", { class: "live", "aria-hidden": "true" }), "training") : run.state;
    const changed = run.changed ? new Date(run.changed / 1e6).toLocaleString() : "–";
    return row([
      box, make("a", { href: runAddress("/run", run.run) }, run.run), run.algorithm, run.game, run.cast, String(run.seeds.length),
      run.steps === null ? "–" : run.steps.toLocaleString("en"), rounded(run.own_return),
      run.share_of_ceiling === null ? "–" : percent(run.share_of_ceiling), state, changed,
    ]);
  }

  sort(key) {
    this.ascending = key === this.sortKey ? !this.ascending : true;
    this.sortKey = key;
    this.draw();
  }

  openReport() {
    window.open(`/report?${[...this.selected].map((name) => `run=${encodeURIComponent(name)}`).join("&")}`, "_blank");
  }

  drawGames(games) {
    if (!games.length) return this.games.replaceChildren();
    const rows = games.map((game) => game.error ? row([game.name, game.error]) : row([
      make("a", { href: `/games/${game.name}` }, game.name), game.game, `${game.played} of ${game.episodes}`, String(game.turns),
      game.finished ? "finished" : "in progress", game.returns.map(rounded).join(", ") || "–", game.started.replace("T", " "),
    ]));
    this.games.replaceChildren(make("h2", {}, "Recorded games"), table(["game", "rules", "episodes", "turns", "state", "your returns", "started"], rows));
  }
}

class RunView {
  constructor(name) {
    this.name = name;
    this.charts = make("div", { class: "charts" });
    this.state = make("p", { class: "state", "aria-live": "polite" });
    this.figures = [];
    this.open();
  }

  async open() {
    let run;
    try { run = await request(runAddress("/api/run", this.name)); } catch (error) { showPage(this.name); return showError(error); }
    const tables = run.tables.map((content) => captionedTable(content));
    const pictures = run.pictures.map(({ title, data }) => make("figure", {}, make("figcaption", {}, title), make("img", { loading: "lazy", src: data, alt: title })));
    this.replays = make("section", {});
    const replayButton = make("button", { type: "button", onclick: () => this.replay(replayButton) }, "Replay episodes");
    const toolbar = make("div", { class: "toolbar" }, make("a", { href: runAddress("/report", this.name), target: "_blank", rel: "noopener" }, "Report"));
    if (run.is_training) toolbar.append(replayButton, make("a", { href: "/play" }, "Play against it"));
    const settings = make("details", {}, make("summary", {}, "Settings"), captionedTable(run.settings));
    showPage(this.name, this.state, toolbar, ...run.remarks.map((remark) => make("p", {}, remark)), this.replays, make("h2", {}, "Curves"), this.charts, ...tables, ...pictures, settings);
    this.state.textContent = run.state;
    this.draw(run.charts);
    this.stamp = run.stamp;
    this.poll();
  }

  async poll() {
    for (;;) {
      await sleep(2000);
      try {
        const update = await request(`${runAddress("/api/charts", this.name)}&stamp=${this.stamp}`);
        hideError();
        if (!update.charts) continue;
        this.stamp = update.stamp;
        this.draw(update.charts);
        const steps = update.row.steps === null ? "" : `, ${update.row.steps.toLocaleString("en")} steps per seed`;
        this.state.textContent = `${update.row.state}${steps}${update.row.own_return === null ? "" : `, return ${rounded(update.row.own_return)}`}`;
      } catch (error) { showError(error); }
    }
  }

  draw(charts) {
    const ink = getComputedStyle(document.body).color;
    charts.forEach((chart, number) => {
      let figure = this.figures.find((known) => known.title === chart.title);
      if (!figure) {
        const element = make("div", { class: "chart", role: "img" });
        figure = { title: chart.title, element };
        this.figures.push(figure);
        this.charts.append(make("figure", {}, make("figcaption", {}, chart.title), element));
      }
      figure.element.setAttribute("aria-label", chart.alternative);
      const layout = { ...chart.figure.layout, font: { ...(chart.figure.layout.font || {}), color: ink }, uirevision: number };
      Plotly.react(figure.element, chart.figure.data, layout, { responsive: true, displaylogo: false });
    });
    for (const { element } of this.figures) Plotly.Plots.resize(element);
    if (!charts.length && !this.figures.length) this.charts.textContent = "No curves yet.";
    else if (this.charts.firstChild && this.charts.firstChild.nodeType === Node.TEXT_NODE) this.charts.firstChild.remove();
  }

  async replay(button) {
    button.disabled = true;
    this.replays.replaceChildren(make("p", { role: "status" }, "Playing episodes; the first time this takes some seconds…"));
    try {
      const episodes = await request(runAddress("/api/replays", this.name));
      this.replays.replaceChildren(makeReplay(episodes));
    } catch (error) {
      this.replays.replaceChildren();
      showError(error);
    }
    button.disabled = false;
  }
}

function captionedTable({ caption, head, rows }) {
  const bodyRows = rows.map((cells) => make("tr", {}, make("th", { scope: "row" }, cells[0]), ...cells.slice(1).map((cell) => make("td", {}, cell))));
  const headRow = make("tr", {}, ...head.map((cell) => make("th", { scope: "col" }, cell)));
  return make("div", { class: "wide" }, make("table", {}, make("caption", {}, caption), make("thead", {}, headRow), make("tbody", {}, ...bodyRows)));
}
