"use strict";
// Chart colours for light and dark pages, helpers for HTML elements, and the replay viewer.

const dark = window.matchMedia("(prefers-color-scheme: dark)");

function colourCharts() {
  const ink = getComputedStyle(document.body).color;
  for (const chart of document.querySelectorAll(".js-plotly-plot")) {
    Plotly.relayout(chart, { "font.color": ink, "modebar.color": ink });
    Plotly.Plots.resize(chart);
  }
}
dark.addEventListener("change", colourCharts);
colourCharts();

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const percent = (share) => `${Math.round(100 * share)}%`;
const unbroken = (text) => text.replaceAll(" ± ", "\u00a0±\u00a0");
const signed = (value) => (value > 0 ? `+${value}` : String(value));

function chip(players, seat) {
  return make("span", { class: "chip", style: `background:${players[seat].colour}`, "aria-hidden": "true" }, String(seat));
}

function row(cells, attributes = {}) {
  return make("tr", attributes, ...cells.map((cell) => make("td", {}, cell)));
}

function table(head, rows) {
  const headRow = make("tr", {}, ...head.map((cell) => make("th", { scope: "col" }, cell)));
  return make("div", { class: "wide" }, make("table", {}, make("thead", {}, headRow), make("tbody", {}, ...rows)));
}

class Replay {
  constructor(root, episodes) {
    this.root = root;
    this.episodes = episodes;
    this.timer = null;
    const titles = this.episodes.map((episode, number) => make("option", { value: number }, episode.title));
    this.episodeSelect = make("select", { "aria-label": "Episode", onchange: () => this.open(Number(this.episodeSelect.value)) }, ...titles);
    this.slider = make("input", { type: "range", min: 0, step: 1, "aria-label": "Step", oninput: () => this.show(Number(this.slider.value)) });
    this.playButton = make("button", { type: "button", "aria-label": "Play", onclick: () => this.toggle() }, "▶");
    const button = (symbol, label, action) => make("button", { type: "button", "aria-label": label, onclick: action }, symbol);
    this.status = make("output", { "aria-live": "polite" });
    this.seatSelect = make("select", { "aria-label": "Player whose reasoning is shown", onchange: () => this.show(this.step) });
    this.controls = make(
      "div", { class: "controls" }, this.episodeSelect,
      button("|◀", "First step", () => this.show(0)), button("◁", "Step back", () => this.move(-1)), this.playButton,
      button("▷", "Step forward", () => this.move(1)), button("▶|", "Last step", () => this.show(Infinity)), this.slider, this.status,
    );
    this.board = make("div", { class: "board" });
    this.scorePanel = make("div", {});
    this.reasoningPanel = make("div", {});
    this.detailsOpen = false;
    const side = make("div", {}, this.scorePanel, this.seatSelect, this.reasoningPanel);
    root.append(this.controls, make("div", { class: "view" }, this.board, side));
    root.addEventListener("keydown", (event) => this.key(event));
    this.open(0);
  }

  open(number) {
    this.pause();
    this.number = number;
    this.episodeSelect.value = number;
    this.episode = this.episodes[number];
    this.slider.max = this.episode.steps.length - 1;
    const seats = this.episode.steps[0].reasoning.map((reasoning) => reasoning.seat);
    const options = seats.map((seat) => make("option", { value: seat }, `reasoning of player ${seat}`));
    this.seatSelect.replaceChildren(...options);
    this.seatSelect.hidden = !seats.length;
    this.show(0);
  }

  key(event) {
    if (event.target.matches("select, input") || (event.key === " " && event.target.matches("button, summary"))) return;
    const actions = {
      ArrowLeft: () => this.move(-1), ArrowRight: () => this.move(1), " ": () => this.toggle(),
      Home: () => this.show(0), End: () => this.show(Infinity),
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  }

  toggle() {
    if (this.timer !== null) return this.pause();
    if (this.step === this.episode.steps.length - 1) this.show(0);
    this.playButton.textContent = "❚❚";
    this.playButton.setAttribute("aria-label", "Pause");
    this.timer = setInterval(() => this.move(1), 700);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.playButton.textContent = "▶";
    this.playButton.setAttribute("aria-label", "Play");
  }

  move(by) {
    this.show(this.step + by);
    if (this.step === this.episode.steps.length - 1) this.pause();
  }

  show(step) {
    this.step = Math.max(0, Math.min(step, this.episode.steps.length - 1));
    const now = this.episode.steps[this.step];
    this.slider.value = this.step;
    this.status.textContent = `step ${this.step} of ${this.episode.steps.length - 1}`;
    this.board.innerHTML = now.board;
    this.board.firstElementChild.setAttribute("aria-label", now.description);
    const reasoning = now.reasoning.find((entry) => entry.seat === Number(this.seatSelect.value));
    const missing = this.seatSelect.hidden ? "" : "No reasoning: the player has left, or the episode is over.";
    this.scorePanel.replaceChildren(this.scores(now));
    this.reasoningPanel.replaceChildren(reasoning ? this.reasoning(reasoning, now.plan_texts[reasoning.seat]) : missing, this.legend());
    this.root.dispatchEvent(new CustomEvent("step", { detail: { episode: this.number, step: this.step } }));
  }

  scores(now) {
    const rows = this.episode.players.map((player, seat) => {
      const gone = now.players[seat] === null;
      const name = make("span", {}, chip(this.episode.players, seat), player.name + (gone ? " (left)" : ""));
      const action = now.last_actions ? now.last_actions[seat] : "–";
      return row([name, action, signed(now.rewards[seat]), String(now.totals[seat])], { class: gone ? "gone" : null });
    });
    return table(["player", "last action", "reward", "total"], rows);
  }

  reasoning({ seat, plan, likeliest_action, probability, value, policy, beliefs }, planTexts) {
    const head = make("p", {}, chip(this.episode.players, seat), `plans ${likeliest_action} (${percent(probability)}), expects ${plan ? plan.value : value}`);
    const parts = planTexts ? [head, make("div", { class: "plan" }, ...planTexts.map((line) => make("p", {}, unbroken(line))))] : [head];
    const rows = Object.keys(policy).map((name) => row([name, percent(policy[name]), ...(plan ? this.planCells(plan, name) : [])]));
    const planColumns = !plan ? [] : plan.choice ? ["value", "rollouts"] : ["value", "visits", "search policy"];
    const details = make("details", {}, make("summary", {}, "action probabilities and values"), table(["action", "policy", ...planColumns], rows));
    details.open = this.detailsOpen || plan !== null;
    details.addEventListener("toggle", () => { this.detailsOpen = details.open; });
    return make("section", {}, ...parts, ...beliefs.map((belief) => this.belief(seat, belief)), details);
  }

  planCells(plan, name) {
    const value = plan.errors ? plan.values[name].toFixed(2) : String(plan.values[name]);
    const error = plan.errors && name in plan.errors ? ` ± ${plan.errors[name].toFixed(2)}` : "";
    const cells = [unbroken(value + error), String(plan.visits[name])];
    return plan.choice ? cells : [...cells, percent(plan.policy[name])];
  }

  belief(seat, belief) {
    const goal = Object.keys(belief.goals).length > 1 ? `${belief.likeliest_goal} (${percent(belief.goals[belief.likeliest_goal])}), ` : "";
    const action = `next ${belief.likeliest_action} (${percent(belief.actions[belief.likeliest_action])})`;
    const name = belief.likely_rationality;
    const rationality = name ? `, rationality: ${name} (${percent(belief.rationality[name])})` : "";
    const parts = [make("span", {}, "about ", chip(this.episode.players, belief.about), goal + action + rationality)];
    if (goal) parts.push(this.bar(belief.goals), this.history(seat, belief.about));
    return make("div", { class: "belief" }, ...parts);
  }

  bar(goals) {
    const label = this.episode.goals.map((goal) => `${goal.name} ${percent(goals[goal.name] ?? 0)}`).join(", ");
    return make("div", { class: "bar", role: "img", "aria-label": label }, ...this.segments(goals, "width"));
  }

  segments(goals, side) {
    return this.episode.goals.map((goal) => make("span", { style: `background:${goal.colour};${side}:${100 * (goals[goal.name] ?? 0)}%`, title: goal.name }));
  }

  history(seat, about) {
    const columns = this.episode.steps.map((step, number) => {
      const reasoning = step.reasoning.find((entry) => entry.seat === seat);
      const belief = reasoning && reasoning.beliefs.find((entry) => entry.about === about);
      const attributes = { type: "button", tabindex: -1, "aria-label": `Step ${number}`, class: number === this.step ? "now" : null, onclick: () => this.show(number) };
      return make("button", attributes, ...(belief ? this.segments(belief.goals, "height") : []));
    });
    return make("div", { class: "history", title: "belief at each step" }, ...columns);
  }

  legend() {
    const goals = this.episode.goals.length > 1 ? this.episode.goals : [];
    return make("p", {}, ...goals.map((goal) => make("span", { class: "goal" }, make("span", { class: "key", style: `background:${goal.colour}` }), goal.name)));
  }
}

for (const root of document.querySelectorAll(".replay")) new Replay(root, JSON.parse(root.querySelector("script").textContent));
