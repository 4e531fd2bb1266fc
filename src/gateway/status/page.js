"use strict";
// Everything that clients, models or repositories have named is inserted as text, never as HTML.
const byId = (id) => document.getElementById(id);
const LIVE = { queued: "waits for an earlier turn", cursor: "waits for Cursor", answering: "Cursor is answering",
  reading: "waits for the client to read", client: "waits for the client" };
const ENDED = { expired: "released, the client sent no result", continued: "called tools", answered: "answered",
  failed: "failed", cancelled: "cancelled" };
const RECOVERIES = { "cursor_provider.recovered_via_checkpoint": "Continued from a checkpoint",
  "cursor_provider.rebuild_full_history": "Rebuilt from the client’s history",
  "cursor_provider.recovery_skipped": "Not recovered",
  "cursor_provider.parked_run_evicted": "Runs released for others" };
let latest;
let clockOffset = 0;

/** Returns an element with a class and content: texts and elements. */
function element(name, className, ...content) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...content.filter((part) => part !== null && part !== undefined));
  return made;
}

const count = (number) => number.toLocaleString("en");
const now = () => Date.now() - clockOffset;

function duration(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${Math.round(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Returns what a turn does now, with how long it does that. */
function stateText(stage, calls, since) {
  const text = LIVE[stage] ?? ENDED[stage] ?? stage;
  const tools = calls.length && (stage === "client" || stage === "continued") ? `: ${calls.join(", ")}` : "";
  const time = LIVE[stage] ? element("span", "quiet clock") : null;
  if (time) time.dataset.since = since;
  return element("span", LIVE[stage] ? "live" : "", element("span", `dot ${stage}`), text + tools, time && " ", time);
}

const shortFolder = (folder) => folder.split("/").filter(Boolean).slice(-2).join("/") || folder;

function sessionRow(session) {
  const name = element("td", "name", session.name ?? element("span", "quiet", session.id));
  if (session.name) name.title = session.id;
  const folder = element("td", "", shortFolder(session.folder));
  folder.title = session.folder;
  const client = element("td", "", (session.client ?? "").split(" ")[0]);
  client.title = session.client ?? "";
  return element("tr", "", name, element("td", "", stateText(session.stage, session.calls, session.since)), client,
    element("td", "tight", session.model), folder, element("td", "number", count(session.turns)),
    element("td", "number", count(session.input)), element("td", "number", count(session.output)));
}

function turnRow(turn, sessions) {
  const bar = element("div", "bar");
  const parts = turn.spans.map((span) => {
    const part = element("span", span.stage);
    part.dataset.from = span.from;
    if (span.to !== null) part.dataset.to = span.to;
    return part;
  });
  bar.append(...parts);
  bar.setAttribute("role", "img");
  const state = element("td", "", stateText(turn.stage, turn.calls, turn.spans.at(-1)?.from ?? 0));
  if (turn.retries) state.append(element("span", "quiet", ` · ${turn.retries} ${turn.retries === 1 ? "retry" : "retries"}`));
  if (turn.error) state.append(element("div", "error", turn.error));
  const started = turn.spans[0]?.from ?? 0;
  const time = element("td", "number total");
  time.dataset.from = started;
  if (turn.spans.at(-1)?.to) time.dataset.to = turn.spans.at(-1).to;
  const session = sessions.get(turn.session);
  return element("tr", "", element("td", "tight", new Date(started).toLocaleTimeString("en-GB")),
    element("td", "name", session?.name ?? element("span", "quiet", turn.session)), state, element("td", "wide", bar), time,
    element("td", "number", turn.input ? count(turn.input) : "–"), element("td", "number", turn.output ? count(turn.output) : "–"));
}

function definitions(list, pairs) {
  list.replaceChildren(...pairs.flatMap(([term, number]) => [element("dt", "", term), element("dd", "", count(number))]));
}

/** Updates what changes with time. */
function tick() {
  const time = now();
  for (const clock of document.querySelectorAll(".clock")) clock.textContent = duration(time - Number(clock.dataset.since));
  for (const total of document.querySelectorAll(".total")) {
    total.textContent = duration(Number(total.dataset.to ?? time) - Number(total.dataset.from));
  }
  for (const bar of document.querySelectorAll(".bar")) {
    const texts = [];
    for (const part of bar.children) {
      const length = Math.max(1, Number(part.dataset.to ?? time) - Number(part.dataset.from));
      part.style.flexGrow = String(length);
      texts.push(`${LIVE[part.className]} ${duration(length)}`);
      part.title = texts.at(-1);
    }
    bar.setAttribute("aria-label", texts.join(", "));
  }
}

function summaryText({ board, activeTurns }) {
  const parked = board.turns.filter((turn) => turn.stage === "client").length;
  const named = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;
  return [named(activeTurns, "active turn", "active turns"), `${named(parked, "run waits", "runs wait")} for a client`,
    named(board.sessions.length, "session", "sessions"), `up ${duration(board.now - board.started)}`].join(" · ");
}

function recoveries(counters, retries) {
  const sums = new Map();
  for (const [name, number] of Object.entries(counters)) {
    const label = RECOVERIES[name.split("{")[0]];
    const reason = /reason="([^"]*)"/.exec(name)?.[1];
    if (!label) continue;
    const term = reason ? `${label} (${reason.replaceAll("_", " ")})` : label;
    sums.set(term, (sums.get(term) ?? 0) + number);
  }
  return [["Connections retried", retries], ...sums];
}

function show(status) {
  latest = status;
  const { board } = status;
  clockOffset = Date.now() - board.now;
  const sessions = new Map(board.sessions.map((session) => [session.id, session]));
  byId("summary").textContent = summaryText(status);
  byId("summary").className = "";
  byId("sessions").replaceChildren(...board.sessions.map(sessionRow));
  byId("turns").replaceChildren(...board.turns.toReversed().map((turn) => turnRow(turn, sessions)));
  byId("no-sessions").hidden = board.sessions.length > 0;
  byId("no-turns").hidden = board.turns.length > 0;
  definitions(byId("usage"), [["Turns", board.totalTurns], ["Tokens in", board.input], ["Tokens in from the cache", board.cached], ["Tokens out", board.output]]);
  definitions(byId("recoveries"), recoveries(status.counters, board.retries));
  definitions(byId("drift"), Object.entries(status.drift));
  byId("no-drift").hidden = Object.keys(status.drift).length > 0;
  tick();
}

function showSettings(settings) {
  byId("version").textContent = settings.version;
  byId("url").textContent = settings.url;
  byId("token-file").textContent = settings.tokenFile ? `· token in ${settings.tokenFile}` : "";
  const select = byId("client");
  const chosen = select.value || "opencode";
  select.replaceChildren(...settings.clients.map(({ name }) => element("option", "", name)));
  const choose = () => {
    byId("settings").textContent = settings.clients.find(({ name }) => name === select.value)?.text ?? "";
    byId("copied").textContent = "";
  };
  select.value = chosen;
  select.onchange = choose;
  choose();
}

byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(byId("settings").textContent);
  byId("copied").textContent = "Copied";
});
byId("sign-out").addEventListener("click", async () => {
  await fetch("/status/sign-out", { method: "POST" });
  location.replace("/");
});
const events = new EventSource("/status/events");
events.addEventListener("settings", (event) => showSettings(JSON.parse(event.data)));
events.addEventListener("status", (event) => show(JSON.parse(event.data)));
events.addEventListener("error", () => {
  const isOver = events.readyState === EventSource.CLOSED;
  byId("summary").textContent = isOver ? "Signed out. Reload the page to sign in." : "The gateway does not answer; trying again…";
  byId("summary").className = "lost";
});
setInterval(() => latest && tick(), 1000);
