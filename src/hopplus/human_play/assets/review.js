"use strict";
// Review of a finished session: beliefs, changes of beliefs and plans, decisions and replay.

class ReviewView {
  constructor(root, view, review) {
    this.view = view;
    this.review = review;
    this.replay = null;
    if (!review.episodes.length) return root.replaceChildren(make("p", {}, "No episode was finished."));
    this.decision = make("div", { class: "notice", "aria-live": "polite" });
    const viewer = makeReplay(review.episodes, (event) => this.showDecision(event.detail));
    this.replay = viewer.replay;
    root.replaceChildren(
      make("h2", {}, "Beliefs about you"), ...this.beliefs(true),
      make("h2", {}, "Belief changes"), ...this.changes(),
      ...this.planChanges(),
      make("h2", {}, "Your decisions compared with an oracle"), ...this.decisions(),
      make("h2", {}, "Step by step"), viewer, this.decision,
      make("details", {}, make("summary", {}, "Beliefs about each other"), ...this.beliefs(false)),
    );
    this.showDecision({ episode: 0, step: 0 });
  }

  name(seat) {
    return make("span", {}, chip(this.view.players, seat), this.view.players[seat].name);
  }

  goals() {
    return this.review.episodes[0].goals;
  }

  beliefs(aboutYou) {
    const rows = this.review.beliefs.filter((belief) => (belief.about === this.view.seat) === aboutYou);
    if (!rows.length) return [make("p", {}, "None of the co-players has beliefs: scripted players and PPO do not model others.")];
    return [this.legend(), ...rows.map((belief) => make("div", {}, make("p", {}, this.name(belief.by), " about ", this.name(belief.about), `: ${this.summary(belief)}`), this.strip(belief)))];
  }

  legend() {
    return make("p", {}, ...this.goals().map((goal) => make("span", { class: "goal" }, make("span", { class: "key", style: `background:${goal.colour}` }), goal.name)));
  }

  // The likeliest goal at the start of each episode, and the likely rationality at the end.
  summary({ points, rationality }) {
    const firstPoints = points.filter((point, number) => number === 0 || point.episode !== points[number - 1].episode);
    const likeliest = firstPoints.map((point) => {
      const [goal, probability] = Object.entries(point.goals).sort((a, b) => b[1] - a[1])[0];
      return `${goal} ${percent(probability)}`;
    });
    return `at the start of each episode ${likeliest.join(", ")}` + (rationality ? `; rationality at the end: ${rationality}` : "");
  }

  strip(belief) {
    const { by, about, points } = belief;
    const columns = points.map((point, number) => {
      const isFirst = number === 0 || point.episode !== points[number - 1].episode;
      const parts = this.goals().map((goal) => make("span", { style: `background:${goal.colour};height:${100 * (point.goals[goal.name] ?? 0)}%` }));
      const label = `Episode ${point.episode + 1}, step ${point.step}`;
      return make("button", { type: "button", tabindex: isFirst ? null : -1, class: isFirst ? "first" : null, title: label, "aria-label": label, onclick: () => this.open(point.episode, point.step, by) }, ...parts);
    });
    return make("div", { class: "strip", role: "group", "aria-label": `Belief of seat ${by} about seat ${about}: ${this.summary(belief)}` }, ...columns);
  }

  open(episode, step, seat) {
    this.replay.open(episode);
    if (seat !== undefined) this.replay.seatSelect.value = seat;
    this.replay.show(step);
    this.replay.root.scrollIntoView({ block: "start" });
  }

  stepLink({ episode, step, by }) {
    return make("a", { href: "#", onclick: (event) => { event.preventDefault(); this.open(episode, step, by); } }, `episode ${episode + 1}, step ${step}`);
  }

  changes() {
    const { changes } = this.review;
    if (!changes.length) return [make("p", {}, "No belief exceeded the confidence threshold.")];
    const items = changes.map((change) => make("li", {},
      this.stepLink(change), ": ", this.name(change.by), " about ", this.name(change.about),
      change.before === null ? `: ${change.after}` : `: ${change.after} instead of ${change.before}`, ` (${percent(change.probability)})`));
    const aboutYou = items.filter((_, number) => changes[number].about === this.view.seat);
    const aboutOthers = items.filter((_, number) => changes[number].about !== this.view.seat);
    return [make("ul", { class: "changes" }, ...aboutYou), make("details", {}, make("summary", {}, `about each other (${aboutOthers.length})`), make("ul", { class: "changes" }, ...aboutOthers))];
  }

  planChanges() {
    const changes = this.review.plan_changes;
    if (changes === null) return [];
    const items = changes.map((change) => make("li", {}, this.stepLink(change), ": ", this.name(change.by), `: ${unbroken(change.text)}`));
    return [make("h2", {}, "Plan changes"), changes.length ? make("ul", {}, ...items) : make("p", {}, "No co-player changed its plan.")];
  }

  decisions() {
    const { summary, choices } = this.review;
    if (!summary.decisions) return [make("p", {}, "You had no decision to make.")];
    const decisions = choices.flatMap((byStep, episode) => byStep.map((decision, step) => ({ ...decision, episode, step: decision.step ?? step })));
    const costliest = decisions.filter((decision) => decision.clear).sort((a, b) => b.lost - a.lost).slice(0, 5);
    const rows = costliest.map((decision) => row([this.stepLink(decision), decision.chosen, decision.best, rounded(decision.lost)]));
    const text = `Of your ${summary.decisions} decisions, ${percent(summary.as_the_oracle)} were as good as the best action that an oracle found by trying every action with these co-players; the others cost ${rounded(summary.lost)} in total.`;
    return [make("p", {}, text), ...(rows.length ? [table(["step", "your action", "better action", "cost"], rows)] : [])];
  }

  showDecision({ episode, step }) {
    const decision = (this.review.choices[episode] || []).find((candidate, number) => (candidate.step ?? number) === step);
    if (!decision) return this.decision.replaceChildren("No decision: you had left, or the episode was over.");
    const { chosen, best, clear, lost, values } = decision;
    const sorted = Object.entries(values).sort((a, b) => b[1] - a[1]).map(([name, value]) => `${name} ${rounded(value)}`).join(", ");
    const verdict = chosen === best ? "the best action found" : clear ? `${best} was better by ${rounded(lost)}` : `no clearly better action was found (${best} is estimated at ${rounded(lost)} more)`;
    this.decision.replaceChildren(make("p", {}, `You did ${chosen}: ${verdict}.`), make("p", {}, `Estimated return for the rest of the episode: ${sorted}.`));
  }
}
