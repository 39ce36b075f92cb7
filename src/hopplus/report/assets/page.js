"use strict";
// Charts in the page's colours, and the replay viewer.

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
const signed = (value) => (value > 0 ? `+${value}` : String(value));

function chip(players, seat) {
  return make("span", { class: "chip", style: `background:${players[seat].colour}`, "aria-hidden": "true" }, String(seat));
}

function row(cells, attributes = {}) {
  return make("tr", attributes, ...cells.map((cell) => make("td", {}, cell)));
}

function table(head, rows) {
  const first = make("tr", {}, ...head.map((cell) => make("th", { scope: "col" }, cell)));
  return make("div", { class: "wide" }, make("table", {}, make("thead", {}, first), make("tbody", {}, ...rows)));
}

class Replay {
  constructor(root, episodes) {
    this.root = root;
    this.episodes = episodes;
    this.timer = null;
    const titles = this.episodes.map((episode, number) => make("option", { value: number }, episode.title));
    this.choice = make("select", { "aria-label": "Episode", onchange: () => this.open(Number(this.choice.value)) }, ...titles);
    this.slider = make("input", { type: "range", min: 0, step: 1, "aria-label": "Step", oninput: () => this.show(Number(this.slider.value)) });
    this.playing = make("button", { type: "button", "aria-label": "Play", onclick: () => this.toggle() }, "▶");
    const button = (sign, label, action) => make("button", { type: "button", "aria-label": label, onclick: action }, sign);
    this.said = make("output", { "aria-live": "polite" });
    this.thinker = make("select", { "aria-label": "Whose thoughts", onchange: () => this.show(this.step) });
    this.controls = make(
      "div", { class: "controls" }, this.choice,
      button("|◀", "First step", () => this.show(0)), button("◁", "Step back", () => this.move(-1)), this.playing,
      button("▷", "Step on", () => this.move(1)), button("▶|", "Last step", () => this.show(Infinity)), this.slider, this.said,
    );
    this.board = make("div", { class: "board" });
    this.panel = make("div", {});
    this.mind = make("div", {});
    this.opened = false;
    const beside = make("div", {}, this.panel, this.thinker, this.mind);
    root.append(this.controls, make("div", { class: "view" }, this.board, beside));
    root.addEventListener("keydown", (event) => this.key(event));
    this.open(0);
  }

  open(number) {
    this.pause();
    this.number = number;
    this.choice.value = number;
    this.episode = this.episodes[number];
    this.slider.max = this.episode.steps.length - 1;
    const thinkers = this.episode.steps[0].thoughts.map((thought) => thought.seat);
    const options = thinkers.map((seat) => make("option", { value: seat }, `what player ${seat} thinks`));
    this.thinker.replaceChildren(...options);
    this.thinker.hidden = !thinkers.length;
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
    this.playing.textContent = "❚❚";
    this.playing.setAttribute("aria-label", "Pause");
    this.timer = setInterval(() => this.move(1), 700);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.playing.textContent = "▶";
    this.playing.setAttribute("aria-label", "Play");
  }

  move(by) {
    this.show(this.step + by);
    if (this.step === this.episode.steps.length - 1) this.pause();
  }

  show(step) {
    this.step = Math.max(0, Math.min(step, this.episode.steps.length - 1));
    const now = this.episode.steps[this.step];
    this.slider.value = this.step;
    this.said.textContent = `step ${this.step} of ${this.episode.steps.length - 1}`;
    this.board.innerHTML = now.board;
    this.board.firstElementChild.setAttribute("aria-label", now.words);
    const thought = now.thoughts.find((one) => one.seat === Number(this.thinker.value));
    const said = thought ? this.thought(thought) : this.thinker.hidden ? "" : "It has left, or the episode is over.";
    this.panel.replaceChildren(this.scores(now));
    this.mind.replaceChildren(said, this.legend());
    this.root.dispatchEvent(new CustomEvent("step", { detail: { episode: this.number, step: this.step } }));
  }

  scores(now) {
    const rows = this.episode.players.map((player, seat) => {
      const gone = now.players[seat] === null;
      const name = make("span", {}, chip(this.episode.players, seat), player.name + (gone ? " (left)" : ""));
      const did = now.last_actions ? now.last_actions[seat] : "–";
      return row([name, did, signed(now.rewards[seat]), String(now.totals[seat])], { class: gone ? "gone" : null });
    });
    return table(["player", "last action", "reward", "total"], rows);
  }

  thought(thought) {
    const search = thought.search;
    const head = make("p", {}, chip(this.episode.players, thought.seat), `plans ${thought.plans} (${percent(thought.probability)}), expects ${search ? search.value : thought.value}`);
    const actions = Object.keys(thought.policy).map((name) => {
      const found = search ? [String(search.values[name]), String(search.visits[name]), percent(search.policy[name])] : [];
      return row([name, percent(thought.policy[name]), ...found]);
    });
    const columns = search ? ["action", "policy", "value", "visits", "by the search"] : ["action", "policy"];
    const open = make("details", {}, make("summary", {}, "what it makes of its actions"), table(columns, actions));
    open.open = this.opened || search !== null;
    open.addEventListener("toggle", () => { this.opened = open.open; });
    return make("section", {}, head, ...thought.beliefs.map((belief) => this.belief(thought.seat, belief)), open);
  }

  belief(seat, belief) {
    const likely = Object.keys(belief.goals).length > 1 ? `${belief.likeliest_goal} (${percent(belief.goals[belief.likeliest_goal])}), ` : "";
    const words = `next ${belief.likeliest_action} (${percent(belief.actions[belief.likeliest_action])})`;
    const parts = [make("span", {}, "of ", chip(this.episode.players, belief.about), likely + words)];
    if (likely) parts.push(this.bar(belief.goals), this.past(seat, belief.about));
    return make("div", { class: "belief" }, ...parts);
  }

  bar(goals) {
    const label = this.episode.goals.map((goal) => `${goal.name} ${percent(goals[goal.name] ?? 0)}`).join(", ");
    return make("div", { class: "bar", role: "img", "aria-label": label }, ...this.segments(goals, "width"));
  }

  segments(goals, side) {
    return this.episode.goals.map((goal) => make("span", { style: `background:${goal.colour};${side}:${100 * (goals[goal.name] ?? 0)}%`, title: goal.name }));
  }

  past(seat, about) {
    const columns = this.episode.steps.map((step, number) => {
      const thought = step.thoughts.find((one) => one.seat === seat);
      const belief = thought && thought.beliefs.find((one) => one.about === about);
      const attributes = { type: "button", tabindex: -1, "aria-label": `Step ${number}`, class: number === this.step ? "now" : null, onclick: () => this.show(number) };
      return make("button", attributes, ...(belief ? this.segments(belief.goals, "height") : []));
    });
    return make("div", { class: "past", title: "what was believed at each step" }, ...columns);
  }

  legend() {
    const goals = this.episode.goals.length > 1 ? this.episode.goals : [];
    return make("p", {}, ...goals.flatMap((goal) => [make("span", { class: "key", style: `background:${goal.colour}` }), goal.name]));
  }
}

for (const root of document.querySelectorAll(".replay")) new Replay(root, JSON.parse(root.querySelector("script").textContent));
