// Ties the page together: connection -> world -> view, controls -> connection, and what stands around the arena.

import { Connection } from "./connection.js";
import { Controls } from "./controls.js";
import { inviteLink, inWords, newRoom, playerKey } from "./session.js";
import { paint, View } from "./view.js";
import { World } from "./world.js";

const $ = (id) => document.getElementById(id);
const NAMES = ["Pip", "Moss", "Fern", "Juno", "Olive", "Basil", "Hazel", "Wren", "Clover", "Robin", "Sage", "Poppy"];
const STATES = { connecting: "connecting …", open: "connected", waiting: "connection lost, trying again …", ended: "over" };

const world = new World();
const view = new View($("arena"));
const invite = inviteLink();
let name = localStorage.getItem("glowworms.name") || NAMES[Math.floor(Math.random() * NAMES.length)];

const connection = new Connection({
  hello: () => ({ t: "hello", player: playerKey(), name }),
  heard(message, now) {
    const before = { room: world.room, roster: world.roster };
    world.heard(message, now);
    if (message.t === "welcome") arrived(before.room);
    if (message.t === "pong") $("neighbours").textContent = message.rooms > 1 ? `with ${message.rooms - 1} other room${message.rooms > 2 ? "s" : ""}` : "";
    if (world.roster !== before.roster) board(before.roster);
    if (message.t === "step") for (const event of message.e ?? []) if (event[0] === "crashed") crash(event);
  },
  changed({ state, rtt }) {
    $("link").className = state;
    $("state").textContent = STATES[state];
    $("rtt").textContent = rtt === null ? "" : `${Math.round(rtt)} ms`;
  },
  ended(reason, ...words) {
    const [title, text] = reason ? inWords(reason) : words;
    $("ended-title").textContent = title;
    $("ended-text").textContent = text;
    $("ended").dataset.reason = reason ?? "";
    $("ended").showModal();
  },
});

const controls = new Controls(
  $("arena"),
  (x, y) => {
    const mine = world.worms.get(world.me);
    if (!mine) return null;
    const there = view.toArena(x, y, world);
    return Math.atan2(there.y - mine.y, there.x - mine.x);
  },
  (steering) => connection.send(steering),
);

function arrived(before) {
  $("room").textContent = shortened(world.room);
  $("room").title = world.room;
  $("container").textContent = shortened(world.container);
  $("container").title = world.container;
  document.title = `Glowworms · ${shortened(world.room)}`;
  controls.tell(true);
  // One browser holds one session cookie per host: a room opened in another tab takes this tab along.
  if (before && before !== world.room) toast("This browser has entered another room");
  else if (connection.drops) toast("Back in the room");
}

function board(before) {
  const entries = world.players().sort((a, b) => b.here - a.here || b.score - a.score || a.n - b.n).slice(0, 12);
  $("scores").replaceChildren(...entries.map((entry) => {
    const row = document.createElement("li");
    row.className = `${entry.me ? "me" : ""} ${entry.here ? "" : "away"} ${entry.robot ? "robot" : ""}`;
    const [mark, label, score] = ["i", "span", "b"].map((tag) => row.appendChild(document.createElement(tag)));
    mark.style.background = paint(entry.colour);
    label.textContent = entry.name;
    score.textContent = entry.score;
    return row;
  }));
  for (const entry of world.roster.values()) {
    if (entry.robot || entry.n === world.me || !before.size) continue;
    const was = before.get(entry.n)?.here ?? false;
    if (was !== entry.here) toast(`${entry.name} ${entry.here ? "is here" : "has left"}`);
  }
}

function crash([, worm, into]) {
  const called = (number) => world.roster.get(number)?.name ?? "somebody";
  if (worm === world.me) toast(`You ran into ${called(into)}`);
  else if (into === world.me) toast(`${called(worm)} ran into you: +5`);
}

let fading;
function toast(text) {
  $("toast").textContent = text;
  $("toast").classList.add("shown");
  clearTimeout(fading);
  fading = setTimeout(() => $("toast").classList.remove("shown"), 2200);
}

const shortened = (id) => (id.length > 11 ? `${id.slice(0, 10)}…` : id);

$("name").value = name;
document.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  name = $("name").value.trim() || name;
  localStorage.setItem("glowworms.name", name);
  connection.send({ t: "name", name });
  $("name").blur();
});
$("invite").hidden = !invite;
$("invite").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(invite);
    toast("Invite link copied: whoever has it is in");
  } catch {
    prompt("The invite link", invite); // no clipboard over plain http from another machine
  }
});
$("again").addEventListener("click", async () => {
  $("again").disabled = true;
  $("ended-error").textContent = "";
  try {
    await newRoom();
  } catch (problem) {
    $("ended-error").textContent = problem.message;
    $("again").disabled = false;
  }
});
$("ended").addEventListener("cancel", (event) => event.preventDefault());

requestAnimationFrame(function frame(now) {
  world.advance(now);
  view.draw(world, now);
  if (controls.pointers.size) controls.tell();
  requestAnimationFrame(frame);
});

// For tests and the curious.
window.game = {
  connection, world,
  get socket() { return connection.socket; },
  get state() { return connection.state; },
  get rtt() { return connection.rtt; },
  get drops() { return connection.drops; },
  get room() { return world.room; },
  get container() { return world.container; },
  get players() { return world.players(); },
  get me() { return world.players().find((player) => player.me); },
};
