"use strict";
// The pages of hopplus serve: all runs, one run while it trains, a game to be played, and what everybody believed in it.
// make, row, table, chip, percent, signed and Replay are those of page.js.

const content = document.getElementById("content");
const trouble = document.getElementById("trouble");
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const rounded = (value) => (value === null || value === undefined ? "–" : String(Math.round(1000 * value) / 1000));

class Refused extends Error {
  constructor(code, answer) {
    super(answer.error || `The server answered with ${code}.`);
    this.code = code;
    this.answer = answer;
  }
}

async function ask(path, body) {
  const how = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, how);
  const answer = await response.json();
  if (!response.ok) throw new Refused(response.status, answer);
  return answer;
}

function complain(error) {
  const lost = error instanceof TypeError ? "The server does not answer. Start it again: a recorded game goes on where it was." : error.message;
  trouble.textContent = lost;
  trouble.hidden = false;
}

function calm() {
  trouble.hidden = true;
}

function show(title, ...parts) {
  document.title = `${title} – hopplus`;
  content.replaceChildren(make("h1", {}, title), ...parts);
}

const address = (path, name) => `${path}?run=${encodeURIComponent(name)}`;

// ------------------------------------------------------------------------------------------------------------- runs

const COLUMNS = [
  ["run", "run", (run) => run.run], ["recipe", "recipe", (run) => run.recipe], ["game", "game", (run) => run.game],
  ["cast", "who plays", (run) => run.cast], ["seeds", "seeds", (run) => run.seeds.length], ["steps", "steps", (run) => run.steps],
  ["own_return", "return", (run) => run.own_return], ["share_of_ceiling", "of the ceiling", (run) => run.share_of_ceiling],
  ["state", "state", (run) => run.state], ["changed", "changed", (run) => run.changed],
];

class Runs {
  constructor() {
    this.runs = [];
    this.sorted = "changed";
    this.upwards = false;
    this.chosen = new Set();
    this.filter = make("input", { type: "search", id: "filter", placeholder: "hopplus 8x8 finished", oninput: () => this.draw() });
    this.compare = make("button", { type: "button", onclick: () => this.open() }, "Compare");
    this.count = make("output", { "aria-live": "polite" });
    this.head = make("tr", {});
    this.body = make("tbody", {});
    const tools = make("div", { class: "bar-of-tools" }, make("label", { for: "filter" }, "Filter"), this.filter, this.compare, this.count);
    const all = make("div", { class: "wide" }, make("table", { class: "runs" }, make("thead", {}, this.head), this.body));
    this.games = make("section", {});
    show("Runs", tools, all, this.games);
    this.follow();
  }

  async follow() {
    for (;;) {
      try {
        this.runs = await ask("/api/runs");
        this.draw();
        this.drawGames(await ask("/api/games"));
        calm();
      } catch (error) { complain(error); }
      await pause(3000);
    }
  }

  shown() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const said = (run) => COLUMNS.map(([, , of]) => String(of(run))).join(" ").toLowerCase();
    const value = COLUMNS.find(([key]) => key === this.sorted)[2];
    const order = (one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === null || b === null) return (a === null) - (b === null);
      return (a < b ? -1 : a > b ? 1 : 0) * (this.upwards ? 1 : -1);
    };
    return this.runs.filter((run) => words.every((word) => said(run).includes(word))).sort(order);
  }

  draw() {
    const heads = COLUMNS.map(([key, title]) => {
      const now = key === this.sorted ? (this.upwards ? "ascending" : "descending") : null;
      const sign = now ? (this.upwards ? " ▲" : " ▼") : "";
      return make("th", { scope: "col", "aria-sort": now }, make("button", { type: "button", id: `by-${key}`, onclick: () => this.sort(key) }, title + sign));
    });
    const focus = document.activeElement && document.activeElement.id;
    this.head.replaceChildren(make("th", { scope: "col" }, "compare"), ...heads);
    const shown = this.shown();
    this.body.replaceChildren(...shown.map((run, number) => this.row(run, number)));
    this.count.textContent = this.runs.length ? `${shown.length} of ${this.runs.length} runs` : "No runs below this directory yet: hopplus train ppo";
    this.compare.disabled = this.chosen.size < 2;
    this.compare.textContent = this.chosen.size < 2 ? "Compare (choose two or more)" : `Compare ${this.chosen.size}`;
    if (focus && document.getElementById(focus)) document.getElementById(focus).focus();
  }

  row(run, number) {
    const box = make("input", { type: "checkbox", id: `choose-${number}`, "aria-label": `Compare ${run.run}`, onchange: () => { this.chosen[box.checked ? "add" : "delete"](run.run); this.draw(); } });
    box.checked = this.chosen.has(run.run);
    const state = run.state === "training" ? make("span", {}, make("span", { class: "live", "aria-hidden": "true" }), "training") : run.state;
    const changed = run.changed ? new Date(run.changed / 1e6).toLocaleString() : "–";
    return row([
      box, make("a", { href: address("/run", run.run) }, run.run), run.recipe, run.game, run.cast, String(run.seeds.length),
      run.steps === null ? "–" : run.steps.toLocaleString("en"), rounded(run.own_return),
      run.share_of_ceiling === null ? "–" : percent(run.share_of_ceiling), state, changed,
    ]);
  }

  sort(key) {
    this.upwards = key === this.sorted ? !this.upwards : true;
    this.sorted = key;
    this.draw();
  }

  open() {
    window.open(`/report?${[...this.chosen].map((name) => `run=${encodeURIComponent(name)}`).join("&")}`, "_blank");
  }

  drawGames(games) {
    if (!games.length) return this.games.replaceChildren();
    const rows = games.map((game) => game.error ? row([game.name, game.error]) : row([
      make("a", { href: `/games/${game.name}` }, game.name), game.game, `${game.played} of ${game.episodes}`, String(game.turns),
      game.finished ? "over" : "goes on", game.returns.map(rounded).join(", ") || "–", game.started.replace("T", " "),
    ]));
    this.games.replaceChildren(make("h2", {}, "Recorded games"), table(["game", "rules", "episodes", "turns", "state", "your returns", "begun"], rows));
  }
}

// -------------------------------------------------------------------------------------------------------------- one run

class OneRun {
  constructor(name) {
    this.name = name;
    this.charts = make("div", { class: "charts" });
    this.state = make("p", { class: "state", "aria-live": "polite" });
    this.drawn = [];
    this.open();
  }

  async open() {
    let run;
    try { run = await ask(address("/api/run", this.name)); } catch (error) { show(this.name); return complain(error); }
    const tables = run.tables.map((one) => plainTable(one));
    const pictures = run.pictures.map((one) => make("figure", {}, make("figcaption", {}, one.title), make("img", { loading: "lazy", src: one.data, alt: one.title })));
    this.replays = make("section", {});
    const seeing = make("button", { type: "button", onclick: () => this.replay(seeing) }, "Play some episodes");
    const tools = make("div", { class: "bar-of-tools" }, make("a", { href: address("/report", this.name), target: "_blank", rel: "noopener" }, "Report"));
    if (run.is_training) tools.append(seeing, make("a", { href: "/play" }, "Play against it"));
    const settings = make("details", {}, make("summary", {}, "Settings"), plainTable(run.settings));
    show(this.name, this.state, tools, ...run.remarks.map((remark) => make("p", {}, remark)), this.replays, make("h2", {}, "Curves"), this.charts, ...tables, ...pictures, settings);
    this.state.textContent = run.state;
    this.draw(run.charts);
    this.stamp = run.stamp;
    this.follow();
  }

  async follow() {
    for (;;) {
      await pause(2000);
      try {
        const found = await ask(`${address("/api/charts", this.name)}&stamp=${this.stamp}`);
        calm();
        if (!found.charts) continue;
        this.stamp = found.stamp;
        this.draw(found.charts);
        const steps = found.row.steps === null ? "" : `, ${found.row.steps.toLocaleString("en")} steps a seed`;
        this.state.textContent = `${found.row.state}${steps}${found.row.own_return === null ? "" : `, return ${rounded(found.row.own_return)}`}`;
      } catch (error) { complain(error); }
    }
  }

  draw(charts) {
    const ink = getComputedStyle(document.body).color;
    charts.forEach((chart, number) => {
      let figure = this.drawn.find((one) => one.title === chart.title);
      if (!figure) {
        const place = make("div", { class: "chart", role: "img" });
        figure = { title: chart.title, place };
        this.drawn.push(figure);
        this.charts.append(make("figure", {}, make("figcaption", {}, chart.title), place));
      }
      figure.place.setAttribute("aria-label", chart.alternative);
      const layout = { ...chart.figure.layout, font: { ...(chart.figure.layout.font || {}), color: ink }, uirevision: number };
      Plotly.react(figure.place, chart.figure.data, layout, { responsive: true, displaylogo: false });
    });
    for (const { place } of this.drawn) Plotly.Plots.resize(place);
    if (!charts.length && !this.drawn.length) this.charts.textContent = "No curves yet.";
    else if (this.charts.firstChild && this.charts.firstChild.nodeType === Node.TEXT_NODE) this.charts.firstChild.remove();
  }

  async replay(button) {
    button.disabled = true;
    this.replays.replaceChildren(make("p", { role: "status" }, "Playing; the first time this takes some seconds…"));
    try {
      const episodes = await ask(address("/api/replays", this.name));
      this.replays.replaceChildren(replayOf(episodes));
    } catch (error) {
      this.replays.replaceChildren();
      complain(error);
    }
    button.disabled = false;
  }
}

function plainTable(one) {
  const rows = one.rows.map((cells) => make("tr", {}, make("th", { scope: "row" }, cells[0]), ...cells.slice(1).map((cell) => make("td", {}, cell))));
  const head = make("tr", {}, ...one.head.map((cell) => make("th", { scope: "col" }, cell)));
  return make("div", { class: "wide" }, make("table", {}, make("caption", {}, one.caption), make("thead", {}, head), make("tbody", {}, ...rows)));
}

function replayOf(episodes, onstep) {
  const keys = make("p", {}, "With the replay in focus: ← and → step, space plays and pauses, Home and End go to the first and last step.");
  const root = make("div", { class: "replay", role: "group", "aria-label": "Replay", tabindex: "0" }, keys);
  if (onstep) root.addEventListener("step", onstep);
  root.replay = new Replay(root, episodes);
  return root;
}

// ---------------------------------------------------------------------------------------------------------- set the table

class Setup {
  constructor() {
    this.form = make("form", { class: "setup", onsubmit: (event) => { event.preventDefault(); this.start(); } });
    show("Take a seat", make("p", {}, "You play some episodes in a row with the same others, who remember you. At the end you see what each of them believed of you."), this.form);
    this.asked = new URLSearchParams(location.search);
    this.load(this.asked.get("game") || "");
  }

  async load(game) {
    try { this.offer = await ask(`/api/offered?game=${encodeURIComponent(game)}`); } catch (error) { return complain(error); }
    const field = (label, input, id) => { input.id = id; return [make("label", { for: id }, label), input]; };
    const select = (options, chosen, onchange) => {
      const made = make("select", onchange ? { onchange } : {}, ...options.map(([value, text]) => make("option", { value }, text)));
      made.value = chosen;
      return made;
    };
    const seats = [...Array(this.offer.players).keys()];
    const kinds = { shipped: "", run: "run: ", script: "script: " };
    const guests = this.offer.guests.map((one) => [one.word, `${kinds[one.kind]}${one.word} – ${one.says}`]);
    guests.push(["any", "whoever the server draws"]);
    this.game = select(this.offer.games.map((name) => [name, name]), this.offer.game, () => this.load(this.game.value));
    this.seat = select(seats.map((seat) => [seat, `seat ${seat}`]), "0", () => this.places());
    this.others = seats.slice(1).map(() => select(guests, guests[0][0]));
    this.labels = this.others.map(() => make("label", {}));
    this.episodes = make("input", { type: "number", min: 1, max: this.offer.most_episodes, value: 5, required: "" });
    this.hidden = make("input", { type: "checkbox", id: "hidden" });
    this.record = make("input", { type: "checkbox", id: "record" });
    this.record.checked = true;
    this.button = make("button", { type: "submit", class: "main" }, "Sit down");
    this.status = make("p", { class: "whole", role: "status" });
    this.form.replaceChildren(
      ...field("Game", this.game, "game"), make("p", { class: "whole" }, this.offer.rules), ...field("Your seat", this.seat, "seat"),
      ...this.others.flatMap((other, number) => { other.id = `other-${number}`; this.labels[number].setAttribute("for", other.id); return [this.labels[number], other]; }),
      ...field("Episodes", this.episodes, "episodes"),
      make("label", { class: "whole", for: "hidden" }, this.hidden, " Hide who is who until the end, and shuffle their seats"),
      make("label", { class: "whole", for: "record" }, this.record, " Record this game: it then survives a restart, and is a dataset in games/"),
      make("div", { class: "whole" }, this.button), this.status,
    );
    this.fill();
    this.places();
  }

  // What the address asks for, as that which hopplus play opens does.
  fill() {
    const cast = (this.asked.get("cast") || "").split(",").filter(Boolean);
    if (cast.includes("you") && this.asked.get("game") === this.offer.game) {
      this.seat.value = cast.indexOf("you");
      const others = cast.filter((word) => word !== "you");
      this.others.forEach((other, number) => { if ([...other.options].some((one) => one.value === others[number])) other.value = others[number]; });
    }
    if (this.asked.get("episodes")) this.episodes.value = this.asked.get("episodes");
    this.hidden.checked = Boolean(this.asked.get("hidden"));
  }

  places() {
    const seats = [...Array(this.offer.players).keys()].filter((seat) => seat !== Number(this.seat.value));
    seats.forEach((seat, number) => { this.labels[number].textContent = `Seat ${seat}`; });
  }

  async start() {
    if (this.button.disabled) return;
    this.button.disabled = true;
    this.status.textContent = "The others sit down; the first time this takes some seconds…";
    const others = this.others.map((other) => other.value);
    if (this.hidden.checked) for (let place = others.length - 1; place > 0; place--) {
      const with_ = Math.floor(Math.random() * (place + 1));
      [others[place], others[with_]] = [others[with_], others[place]];
    }
    const cast = [...others];
    cast.splice(Number(this.seat.value), 0, "you");
    const asked = { game: this.game.value, cast, episodes: Number(this.episodes.value), hidden: this.hidden.checked, record: this.record.checked };
    if (this.asked.get("seed")) asked.seed = Number(this.asked.get("seed"));
    try {
      const game = await ask("/api/games", asked);
      calm();
      location.assign(`/games/${game.name}`);
    } catch (error) {
      complain(error);
      this.status.textContent = "";
      this.button.disabled = false;
    }
  }
}

// ----------------------------------------------------------------------------------------------------------------- play

const MOVES = { UP: "ArrowUp", DOWN: "ArrowDown", LEFT: "ArrowLeft", RIGHT: "ArrowRight", STAY: " " };
const SIGNS = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", " ": "space" };
const WATCHING = 450, RETRYING = 2000, SLOW = 1000;

function keysOf(actions) {
  const keys = {};
  for (const action of actions) {
    const letter = [...action.toLowerCase()].find((one) => !Object.values(keys).includes(one));
    keys[action] = MOVES[action] || letter;
  }
  return keys;
}

class Game {
  constructor(name) {
    this.name = name;
    this.busy = false;
    this.failed = false;
    this.board = make("div", { class: "board", tabindex: "-1" });
    this.scores = make("div", {});
    this.buttons = make("div", { class: "actions", role: "group", "aria-label": "Your actions" });
    this.said = make("p", { role: "status" });
    this.notice = make("div", {});
    this.after = make("section", {});
    document.addEventListener("keydown", (event) => this.key(event));
    this.load();
  }

  async load() {
    try { this.view = await ask(`/api/games/${this.name}`); } catch (error) { show("No game"); return complain(error); }
    calm();
    this.keys = keysOf(this.view.actions);
    const getUp = make("button", { type: "button", onclick: () => this.stop() }, "Get up and see what they believed");
    this.end = make("p", {}, getUp);
    show(`${this.view.game}: you sit in seat ${this.view.seat}`, make("p", {}, this.view.rules), this.notice, make("div", { class: "game" }, this.board, make("div", {}, this.said, this.buttons, this.scores, this.end)), this.after);
    this.draw();
  }

  // What is to be seen: the end of the last episode until the player goes on, else the present.
  draw() {
    const { view } = this;
    const now = this.held || view.now;
    this.board.innerHTML = now.board;
    this.board.firstElementChild.setAttribute("aria-label", now.words);
    this.drawScores(now);
    this.drawNotice(now);
    const waiting = this.held !== undefined && this.held !== null;
    const shown = view.finished || waiting ? [] : view.actions;
    const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.action : undefined;
    this.buttons.replaceChildren(...shown.map((action) => {
      const key = this.keys[action];
      const button = make("button", { type: "button", "data-action": action, "aria-keyshortcuts": key === " " ? "Space" : key, onclick: () => this.act(action) }, action, make("kbd", {}, SIGNS[key] || key));
      button.disabled = !view.legal.includes(action) || view.left;
      return button;
    }));
    if (focused) {
      const again = this.buttons.querySelector(`[data-action="${focused}"]:not(:disabled)`) || this.buttons.querySelector("button:not(:disabled)");
      if (again) again.focus();
    }
    this.end.hidden = view.finished;
    if (view.finished && !waiting) this.review();
    else if (view.left && !waiting) this.watch();
  }

  drawScores(now) {
    const { view } = this;
    const rows = view.players.map((player, seat) => {
      const gone = now.players[seat] === null;
      const name = make("span", { class: seat === view.seat ? "you" : null }, chip(view.players, seat), player.name + (gone ? " (left)" : ""));
      return row([name, now.last_actions ? now.last_actions[seat] : "–", signed(rounded(now.rewards[seat])), rounded(now.totals[seat])], { class: gone ? "gone" : null });
    });
    const over = view.returns.map((own, number) => row([`episode ${number + 1}`, ...own.map(rounded)]));
    const heads = view.players.map((player, seat) => make("span", {}, chip(view.players, seat), player.name));
    this.scores.replaceChildren(table(["player", "last action", "reward", "total"], rows), ...(over.length ? [table(["episode", ...heads], over)] : []));
  }

  drawNotice(now) {
    const { view } = this;
    const parts = [];
    if (view.warning) parts.push(make("p", { class: "notice" }, view.warning));
    if (this.held) {
      const number = view.returns.length;
      const own = rounded(view.returns[number - 1][view.seat]);
      const last = view.finished;
      const on = make("button", { type: "button", class: "main", onclick: () => this.goOn() }, last ? "See what they believed" : "Next episode");
      parts.push(make("div", { class: "notice" }, make("p", {}, `Episode ${number} of ${view.episodes} is over. You got ${own}.`), on));
      this.onward = on;
      this.said.textContent = `Episode ${number} is over. You got ${own}. Press Enter to go on.`;
    } else if (!view.finished) {
      if (view.left && !this.hurry) parts.push(make("button", { type: "button", onclick: () => { this.hurry = true; } }, "Skip to the end of the episode"));
      const acted = now.last_actions ? `Last: ${view.players.map((player, seat) => `${player.name} ${now.last_actions[seat]}`).join(", ")}. ` : "";
      const may = view.left ? "You have left with what you caught; the others play on." : `You may: ${view.legal.join(", ")}.`;
      this.said.textContent = `Episode ${view.episode + 1} of ${view.episodes}, step ${now.time} of ${now.deadline}. ${acted}${may}`;
    } else this.said.textContent = view.stopped ? "You got up." : "The series is over.";
    this.notice.replaceChildren(...parts);
    if (this.held) this.onward.focus();
  }

  async act(action) {
    if (this.busy || this.held || this.view.finished) return;
    if (!this.view.legal.includes(action)) {
      this.said.textContent = `${action} is not possible here. You may: ${this.view.legal.join(", ")}.`;
      return;
    }
    this.busy = true;
    this.failed = false;
    const slow = setTimeout(() => { this.said.textContent = "The other players are being compiled (first time only)…"; }, SLOW);
    try {
      this.take(await ask(`/api/games/${this.name}/turn`, { turn: this.view.turn, action }));
    } catch (error) {
      if (error instanceof Refused && error.answer.view) this.take(error.answer.view);
      this.failed = true;
      complain(error);
    }
    clearTimeout(slow);
    this.busy = false;
    this.draw();
  }

  take(view) {
    calm();
    this.held = view.ended;
    this.view = view;
    if (this.held) this.hurry = false;
  }

  goOn() {
    this.held = null;
    this.notice.replaceChildren();
    this.draw();
    this.board.focus(); // not a button: there, space would press it instead of staying
  }

  async watch() {
    if (this.busy) return;
    await pause(this.failed ? RETRYING : this.hurry ? 0 : WATCHING);
    if (this.view.left && !this.held && !this.view.finished) await this.act(this.view.legal[0]);
  }

  async stop() {
    try { this.view = await ask(`/api/games/${this.name}/stop`, {}); } catch (error) { return complain(error); }
    this.held = null;
    this.draw();
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("select, input, .replay")) return;
    if (this.held && event.key === "Enter" && event.target !== this.onward) {
      event.preventDefault();
      return this.goOn();
    }
    if (!this.view || this.view.finished) return;
    if (this.view.left) {
      if (event.key === "Enter") this.hurry = true;
      return;
    }
    if (event.key === " " && event.target.matches("button, a, summary")) return;
    const pressed = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const action = this.view.actions.find((one) => this.keys[one] === pressed);
    if (!action || event.repeat) return;
    event.preventDefault();
    this.act(action);
  }

  async review() {
    if (this.reviewed) return;
    this.reviewed = true;
    this.after.replaceChildren(make("p", { role: "status" }, "Asking everybody what they believed, and an oracle what it would have done; this takes some seconds…"));
    try {
      new Review(this.after, this.view, await ask(`/api/games/${this.name}/review`));
      calm();
    } catch (error) {
      this.after.replaceChildren();
      this.reviewed = false;
      complain(error);
    }
  }
}

// --------------------------------------------------------------------------------------------------------------- review

class Review {
  constructor(root, view, review) {
    this.view = view;
    this.review = review;
    this.replay = null;
    if (!review.episodes.length) return root.replaceChildren(make("p", {}, "No episode was played to its end."));
    this.choice = make("div", { class: "notice", "aria-live": "polite" });
    const viewer = replayOf(review.episodes, (event) => this.showChoice(event.detail));
    this.replay = viewer.replay;
    root.replaceChildren(
      make("h2", {}, "What they believed of you"), ...this.beliefs(true),
      make("h2", {}, "When they changed their minds"), ...this.changes(),
      make("h2", {}, "Your choices beside an oracle's"), ...this.choices(),
      make("h2", {}, "Step by step"), viewer, this.choice,
      make("details", {}, make("summary", {}, "What they believed of each other"), ...this.beliefs(false)),
    );
    this.showChoice({ episode: 0, step: 0 });
  }

  name(seat) {
    return make("span", {}, chip(this.view.players, seat), this.view.players[seat].name);
  }

  colours() {
    return this.review.episodes[0].goals;
  }

  beliefs(ofYou) {
    const found = this.review.beliefs.filter((one) => (one.about === this.view.seat) === ofYou);
    if (!found.length) return [make("p", {}, "None of the others has beliefs: scripts and PPO take everybody for what they have always met.")];
    return [this.legend(), ...found.map((one) => make("div", {}, make("p", {}, this.name(one.by), " of ", this.name(one.about), `: ${this.inWords(one)}`), this.strip(one)))];
  }

  legend() {
    return make("p", {}, ...this.colours().flatMap((goal) => [make("span", { class: "key", style: `background:${goal.colour}` }), goal.name]));
  }

  inWords(one) {
    const firsts = one.points.filter((point, number) => number === 0 || point.episode !== one.points[number - 1].episode);
    const said = firsts.map((point) => {
      const [goal, chance] = Object.entries(point.goals).sort((a, b) => b[1] - a[1])[0];
      return `${goal} ${percent(chance)}`;
    });
    return `at the start of each episode ${said.join(", ")}`;
  }

  strip(one) {
    const columns = one.points.map((point, number) => {
      const first = number === 0 || point.episode !== one.points[number - 1].episode;
      const parts = this.colours().map((goal) => make("span", { style: `background:${goal.colour};height:${100 * (point.goals[goal.name] ?? 0)}%` }));
      const label = `Episode ${point.episode + 1}, step ${point.step}`;
      return make("button", { type: "button", tabindex: first ? null : -1, class: first ? "first" : null, title: label, "aria-label": label, onclick: () => this.go(point.episode, point.step, one.by) }, ...parts);
    });
    return make("div", { class: "strip", role: "group", "aria-label": `What seat ${one.by} believed of seat ${one.about}: ${this.inWords(one)}` }, ...columns);
  }

  go(episode, step, thinker) {
    this.replay.open(episode);
    if (thinker !== undefined) this.replay.thinker.value = thinker;
    this.replay.show(step);
    this.replay.root.scrollIntoView({ block: "start" });
  }

  changes() {
    if (!this.review.changes.length) return [make("p", {}, "Nobody made up their mind about anybody.")];
    const items = this.review.changes.map((one) => make("li", {},
      make("a", { href: "#", onclick: (event) => { event.preventDefault(); this.go(one.episode, one.step, one.by); } }, `episode ${one.episode + 1}, step ${one.step}`),
      ": ", this.name(one.by), " of ", this.name(one.about), one.before === null ? ` now believes ${one.after}` : `: not ${one.before}, but ${one.after}`, ` (${percent(one.probability)})`));
    const own = items.filter((_, number) => this.review.changes[number].about === this.view.seat);
    const rest = items.filter((_, number) => this.review.changes[number].about !== this.view.seat);
    return [make("ul", { class: "minds" }, ...own), make("details", {}, make("summary", {}, `about each other (${rest.length})`), make("ul", { class: "minds" }, ...rest))];
  }

  choices() {
    const { summary, choices } = this.review;
    if (!summary.decisions) return [make("p", {}, "You had no choice to make.")];
    const every = choices.flatMap((own, episode) => own.map((one, step) => ({ ...one, episode, step: one.step ?? step })));
    const dearest = every.filter((one) => one.clear).sort((a, b) => b.lost - a.lost).slice(0, 5);
    const rows = dearest.map((one) => row([
      make("a", { href: "#", onclick: (event) => { event.preventDefault(); this.go(one.episode, one.step); } }, `episode ${one.episode + 1}, step ${one.step}`),
      one.chosen, one.best, rounded(one.lost),
    ]));
    const said = `Of your ${summary.decisions} choices, ${percent(summary.as_the_oracle)} were as good as the best that was found by trying every action with these very others; the rest cost you ${rounded(summary.lost)} in all.`;
    return [make("p", {}, said), ...(rows.length ? [table(["when", "you", "better", "cost"], rows)] : [])];
  }

  showChoice({ episode, step }) {
    const one = (this.review.choices[episode] || []).find((found, number) => (found.step ?? number) === step);
    if (!one) return this.choice.replaceChildren("You had left, or the episode was over.");
    const worth = Object.entries(one.values).sort((a, b) => b[1] - a[1]).map(([name, value]) => `${name} ${rounded(value)}`).join(", ");
    const verdict = one.chosen === one.best ? "the best that was found" : one.clear ? `${one.best} was better by ${rounded(one.lost)}` : `no clearly better one was found (${one.best} is estimated at ${rounded(one.lost)} more)`;
    this.choice.replaceChildren(make("p", {}, `You did ${one.chosen}: ${verdict}.`), make("p", {}, `Worth, for the rest of the episode: ${worth}.`));
  }
}

// ---------------------------------------------------------------------------------------------------------------- pages

const pages = [
  [/^\/$/, () => new Runs()],
  [/^\/run$/, () => new OneRun(new URLSearchParams(location.search).get("run") || "")],
  [/^\/play$/, () => new Setup()],
  [/^\/games\/([a-z0-9]+)$/, (found) => new Game(found[1])],
];
for (const [pattern, open] of pages) {
  const found = location.pathname.match(pattern);
  if (found) open(found);
}
