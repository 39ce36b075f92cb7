"use strict";
// Helpers that all views of hopplus serve share. make, row, table, chip, percent, unbroken, signed and Replay are defined in page.js.

const content = document.getElementById("content");
const errorMessage = document.getElementById("error-message");
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const rounded = (value) => (value === null || value === undefined ? "–" : String(Math.round(1000 * value) / 1000));

class RequestError extends Error {
  constructor(code, answer) {
    super(answer.error || `The server answered with ${code}.`);
    this.code = code;
    this.answer = answer;
  }
}

async function request(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw new RequestError(response.status, answer);
  return answer;
}

function showError(error) {
  const isOffline = error instanceof TypeError;
  errorMessage.textContent = isOffline ? "The server does not answer. Start it again: a recorded game can then be resumed." : error.message;
  errorMessage.hidden = false;
}

function hideError() {
  errorMessage.hidden = true;
}

function showPage(title, ...parts) {
  document.title = `${title} – hopplus`;
  content.replaceChildren(make("h1", {}, title), ...parts);
}

const runAddress = (path, name) => `${path}?run=${encodeURIComponent(name)}`;

function makeReplay(episodes, onstep) {
  const help = make("p", {}, "With the replay in focus: ← and → step, space plays and pauses, Home and End go to the first and last step.");
  const root = make("div", { class: "replay", role: "group", "aria-label": "Replay", tabindex: "0" }, help);
  if (onstep) root.addEventListener("step", onstep);
  root.replay = new Replay(root, episodes);
  return root;
}
