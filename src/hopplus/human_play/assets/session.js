"use strict";
// Views of a session: its setup, and the game itself.

class SetupView {
  constructor() {
    this.form = make("form", { class: "setup", onsubmit: (event) => { event.preventDefault(); this.start(); } });
    showPage("New session", make("p", {}, "You play several episodes with the same co-players, who remember you. At the end you see what each of them believed about you."), this.form);
    this.parameters = new URLSearchParams(location.search);
    this.load(this.parameters.get("game") || "");
  }

  async load(game) {
    try { this.options = await request(`/api/options?game=${encodeURIComponent(game)}`); } catch (error) { return showError(error); }
    const field = (label, input, id) => { input.id = id; return [make("label", { for: id }, label), input]; };
    const makeSelect = (options, value, onchange) => {
      const select = make("select", onchange ? { onchange } : {}, ...options.map(([option, text]) => make("option", { value: option }, text)));
      select.value = value;
      return select;
    };
    const seats = [...Array(this.options.num_players).keys()];
    const prefixes = { pretrained: "", run: "run: ", script: "script: " };
    const players = this.options.players.map(({ word, kind, description }) => [word, `${prefixes[kind]}${word} – ${description}`]);
    players.push(["any", "drawn at random by the server"]);
    this.game = makeSelect(this.options.games.map((name) => [name, name]), this.options.game, () => this.load(this.game.value));
    this.seat = makeSelect(seats.map((seat) => [seat, `seat ${seat}`]), "0", () => this.labelSeats());
    this.coPlayers = seats.slice(1).map(() => makeSelect(players, players[0][0]));
    this.labels = this.coPlayers.map(() => make("label", {}));
    this.episodes = make("input", { type: "number", min: 1, max: this.options.most_episodes, value: 5, required: "" });
    this.hidden = make("input", { type: "checkbox", id: "hidden" });
    this.record = make("input", { type: "checkbox", id: "record" });
    this.record.checked = true;
    this.button = make("button", { type: "submit", class: "main" }, "Start session");
    this.status = make("p", { class: "whole", role: "status" });
    this.form.replaceChildren(
      ...field("Game", this.game, "game"), make("p", { class: "whole" }, this.options.rules), ...field("Your seat", this.seat, "seat"),
      ...this.coPlayers.flatMap((select, number) => { select.id = `co-player-${number}`; this.labels[number].setAttribute("for", select.id); return [this.labels[number], select]; }),
      ...field("Episodes", this.episodes, "episodes"),
      make("label", { class: "whole", for: "hidden" }, this.hidden, " Hide the names of the co-players until the end, and shuffle their seats"),
      make("label", { class: "whole", for: "record" }, this.record, " Record this game: it survives a restart of the server and is saved as a dataset in games/"),
      make("div", { class: "whole" }, this.button), this.status,
    );
    this.fill();
    this.labelSeats();
  }

  // Presets from the query string, which hopplus play sets when it opens the page.
  fill() {
    const cast = (this.parameters.get("cast") || "").split(",").filter(Boolean);
    if (cast.includes("you") && this.parameters.get("game") === this.options.game) {
      this.seat.value = cast.indexOf("you");
      const names = cast.filter((name) => name !== "you");
      this.coPlayers.forEach((select, number) => { if ([...select.options].some((option) => option.value === names[number])) select.value = names[number]; });
    }
    if (this.parameters.get("episodes")) this.episodes.value = this.parameters.get("episodes");
    this.hidden.checked = Boolean(this.parameters.get("hidden"));
  }

  labelSeats() {
    const seats = [...Array(this.options.num_players).keys()].filter((seat) => seat !== Number(this.seat.value));
    seats.forEach((seat, number) => { this.labels[number].textContent = `Seat ${seat}`; });
  }

  async start() {
    if (this.button.disabled) return;
    this.button.disabled = true;
    this.status.textContent = "Loading the co-players; the first time this takes some seconds…";
    const cast = this.coPlayers.map((select) => select.value);
    if (this.hidden.checked) shuffle(cast);
    cast.splice(Number(this.seat.value), 0, "you");
    const settings = { game: this.game.value, cast, episodes: Number(this.episodes.value), hidden: this.hidden.checked, record: this.record.checked };
    if (this.parameters.get("seed")) settings.seed = Number(this.parameters.get("seed"));
    try {
      const game = await request("/api/games", settings);
      hideError();
      location.assign(`/games/${game.name}`);
    } catch (error) {
      showError(error);
      this.status.textContent = "";
      this.button.disabled = false;
    }
  }
}

function shuffle(items) {
  for (let last = items.length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [items[last], items[other]] = [items[other], items[last]];
  }
}

const MOVE_KEYS = { UP: "ArrowUp", DOWN: "ArrowDown", LEFT: "ArrowLeft", RIGHT: "ArrowRight", STAY: " " };
const KEY_SYMBOLS = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", " ": "space" };
const WATCH_MS = 450, RETRY_MS = 2000, SLOW_MS = 1000;

function assignKeys(actions) {
  const keys = {};
  for (const action of actions) {
    const letter = [...action.toLowerCase()].find((candidate) => !Object.values(keys).includes(candidate));
    keys[action] = MOVE_KEYS[action] || letter;
  }
  return keys;
}

class GameView {
  constructor(name) {
    this.name = name;
    this.busy = false;
    this.failed = false;
    this.board = make("div", { class: "board", tabindex: "-1" });
    this.scores = make("div", {});
    this.buttons = make("div", { class: "actions", role: "group", "aria-label": "Your actions" });
    this.status = make("p", { role: "status" });
    this.notice = make("div", {});
    this.reviewSection = make("section", {});
    document.addEventListener("keydown", (event) => this.key(event));
    this.load();
  }

  async load() {
    try { this.view = await request(`/api/games/${this.name}`); } catch (error) { showPage("Game not found"); return showError(error); }
    hideError();
    this.keys = assignKeys(this.view.actions);
    const stopButton = make("button", { type: "button", onclick: () => this.stop() }, "End session and show beliefs");
    this.end = make("p", {}, stopButton);
    showPage(`${this.view.game}: you play seat ${this.view.seat}`, make("p", {}, this.view.rules), this.notice, make("div", { class: "game" }, this.board, make("div", {}, this.status, this.buttons, this.scores, this.end)), this.reviewSection);
    this.draw();
  }

  // Shows the end of the last episode until the person continues (this.held), else the current state.
  draw() {
    const { view } = this;
    const now = this.held || view.now;
    this.board.innerHTML = now.board;
    this.board.firstElementChild.setAttribute("aria-label", now.description);
    this.drawScores(now);
    this.drawNotice(now);
    const waiting = this.held !== undefined && this.held !== null;
    const actions = view.finished || waiting ? [] : view.actions;
    const focusedAction = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.action : undefined;
    this.buttons.replaceChildren(...actions.map((action) => {
      const key = this.keys[action];
      const button = make("button", { type: "button", "data-action": action, "aria-keyshortcuts": key === " " ? "Space" : key, onclick: () => this.act(action) }, action, make("kbd", {}, KEY_SYMBOLS[key] || key));
      button.disabled = !view.legal.includes(action) || view.left;
      return button;
    }));
    if (focusedAction) {
      const button = this.buttons.querySelector(`[data-action="${focusedAction}"]:not(:disabled)`) || this.buttons.querySelector("button:not(:disabled)");
      if (button) button.focus();
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
    const episodes = view.returns.map((returns, number) => row([`episode ${number + 1}`, ...returns.map(rounded)]));
    const heads = view.players.map((player, seat) => make("span", {}, chip(view.players, seat), player.name));
    this.scores.replaceChildren(table(["player", "last action", "reward", "total"], rows), ...(episodes.length ? [table(["episode", ...heads], episodes)] : []));
  }

  drawNotice(now) {
    const { view } = this;
    const parts = [];
    if (view.warning) parts.push(make("p", { class: "notice" }, view.warning));
    if (this.held) {
      const number = view.returns.length;
      const ownReturn = rounded(view.returns[number - 1][view.seat]);
      this.continueButton = make("button", { type: "button", class: "main", onclick: () => this.continue() }, view.finished ? "Show beliefs" : "Next episode");
      parts.push(make("div", { class: "notice" }, make("p", {}, `Episode ${number} of ${view.episodes} is over. Your return is ${ownReturn}.`), this.continueButton));
      this.status.textContent = `Episode ${number} is over. Your return is ${ownReturn}. Press Enter to continue.`;
    } else if (!view.finished) {
      if (view.left && !this.skipping) parts.push(make("button", { type: "button", onclick: () => { this.skipping = true; } }, "Skip to the end of the episode"));
      const lastActions = now.last_actions ? `Last: ${view.players.map((player, seat) => `${player.name} ${now.last_actions[seat]}`).join(", ")}. ` : "";
      const options = view.left ? "You have left the episode; the co-players continue." : `Legal actions: ${view.legal.join(", ")}.`;
      this.status.textContent = `Episode ${view.episode + 1} of ${view.episodes}, step ${now.time} of ${now.deadline}. ${lastActions}${options}`;
    } else this.status.textContent = view.stopped ? "You ended the session." : "The session is over.";
    this.notice.replaceChildren(...parts);
    if (this.held) this.continueButton.focus();
  }

  async act(action) {
    if (this.busy || this.held || this.view.finished) return;
    if (!this.view.legal.includes(action)) {
      this.status.textContent = `${action} is not possible here. Legal actions: ${this.view.legal.join(", ")}.`;
      return;
    }
    this.busy = true;
    this.failed = false;
    const slow = setTimeout(() => { this.status.textContent = "Compiling the co-players (first time only)…"; }, SLOW_MS);
    try {
      this.update(await request(`/api/games/${this.name}/turn`, { turn: this.view.turn, action }));
    } catch (error) {
      if (error instanceof RequestError && error.answer.view) this.update(error.answer.view);
      this.failed = true;
      showError(error);
    }
    clearTimeout(slow);
    this.busy = false;
    this.draw();
  }

  update(view) {
    hideError();
    this.held = view.ended;
    this.view = view;
    if (this.held) this.skipping = false;
  }

  continue() {
    this.held = null;
    this.notice.replaceChildren();
    this.draw();
    this.board.focus(); // not a button: space would press it instead of choosing STAY
  }

  async watch() {
    if (this.busy) return;
    await sleep(this.failed ? RETRY_MS : this.skipping ? 0 : WATCH_MS);
    if (this.view.left && !this.held && !this.view.finished) await this.act(this.view.legal[0]);
  }

  async stop() {
    try { this.view = await request(`/api/games/${this.name}/stop`, {}); } catch (error) { return showError(error); }
    this.held = null;
    this.draw();
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("select, input, .replay")) return;
    if (this.held && event.key === "Enter" && event.target !== this.continueButton) {
      event.preventDefault();
      return this.continue();
    }
    if (!this.view || this.view.finished) return;
    if (this.view.left) {
      if (event.key === "Enter") this.skipping = true;
      return;
    }
    if (event.key === " " && event.target.matches("button, a, summary")) return;
    const pressed = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const action = this.view.actions.find((name) => this.keys[name] === pressed);
    if (!action || event.repeat) return;
    event.preventDefault();
    this.act(action);
  }

  async review() {
    if (this.reviewed) return;
    this.reviewed = true;
    this.reviewSection.replaceChildren(make("p", { role: "status" }, "Computing beliefs and the oracle's decisions; this takes some seconds…"));
    try {
      new ReviewView(this.reviewSection, this.view, await request(`/api/games/${this.name}/review`));
      hideError();
    } catch (error) {
      this.reviewSection.replaceChildren();
      this.reviewed = false;
      showError(error);
    }
  }
}
