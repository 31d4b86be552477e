// The proxy's side of the page: the session's calls, why it ended in words, and the invite link.
// The session token travels in an HttpOnly cookie that this page cannot read. Whoever starts a room also gets the token in
// the address's fragment, which no server ever sees; it is moved to this tab's storage at once, for the invite button.

const CALLS = "/_modal/sessions";
const QUERY = "modal_session_token";
const KEPT = "glowworms.invite";

const WORDS = {
  idle_timeout: ["The room fell asleep", "Nobody was connected for a while, so the session timed out. What the container knew of it is gone."],
  terminated: ["The room was closed", "Somebody ended this session."],
  container_max_age: ["The container grew old", "Its container reached its age limit, and the room went with it."],
  container_lost: ["The container is lost", "The process that held this room died. Rooms live in its memory, so this one is gone."],
  deployment_ended: ["A new version is here", "The game was deployed anew, and the old containers went with their rooms."],
  server_stopped: ["The server was stopped", "The operator stopped it. New rooms can start when it is back."],
  ended: ["The room is over", "This session has ended."],
  no_pass: ["No pass for this room", "The link's token is not valid (any more)."],
};
const CODES = { 4408: "container_max_age", 1011: "container_lost", 1012: "deployment_ended", 1001: "server_stopped" };

/** Why a session ended, if this close says that it did: a code of the proxy's own, with the reason's name. */
export function reasonOf(code, reason) {
  if (code === 4410) return reason in WORDS ? reason : "ended";
  return CODES[code] ?? null;
}

export function inWords(reason) {
  return WORDS[reason] ?? WORDS.ended;
}

/** "alive", the reason why the session is over, or null if nobody can say just now. */
export async function fate() {
  try {
    const answer = await fetch(`${CALLS}/status`, { cache: "no-store" });
    if (answer.status === 401 || answer.status === 403) return "no_pass";
    if (answer.status !== 200 && answer.status !== 410) return null;
    const body = await answer.json();
    if (answer.status === 410) return body.error;
    return body.state === "active" ? "alive" : null;
  } catch {
    return null;
  }
}

/** Start a session on the same Server and go there. Throws an Error in words. */
export async function newRoom() {
  let answer;
  try {
    answer = await fetch(`${CALLS}/start`, { method: "POST" });
  } catch {
    throw new Error("The server does not answer. Try again in a moment.");
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.message ?? `The server answered ${answer.status}.`);
  location.assign(`/?${QUERY}=${body.token}#invite=${body.token}`);
}

/** The link for friends, or null if this tab was not given one. */
export function inviteLink() {
  const found = /^#invite=(.+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEPT, found[1]);
    history.replaceState(null, "", location.pathname);
  }
  const token = sessionStorage.getItem(KEPT);
  return token && `${location.origin}/?${QUERY}=${token}#invite=${token}`;
}

/** This player's key: secret, of this tab, and what the room knows its score by. */
export function playerKey() {
  let key = sessionStorage.getItem("glowworms.player");
  if (!key) {
    key = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem("glowworms.player", key);
  }
  return key;
}
