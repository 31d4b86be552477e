// The WebSocket: opens it, measures round trips, and opens it again after a drop, more slowly each time.
// It knows when to stop: when the session is over, or when this player sits elsewhere.

import { reasonOf, fate } from "./session.js";

const FIRST_WAIT = 250, LONGEST_WAIT = 5000; // ms
const PING_EVERY = 1000, SILENT_FOR = 6000; // ms
const OWN_ENDS = {
  4001: ["You play in another window", "This player came back on another connection; only the newest one counts."],
  4002: ["The room is full", "Twelve players are in it."],
};

export class Connection {
  state = "connecting"; // connecting, open, waiting, ended
  rtt = null; // ms, the smallest of the last few
  drops = 0;

  constructor({ hello, heard, changed, ended }) {
    Object.assign(this, { hello, heard, changed, ended });
    this.wait = FIRST_WAIT;
    this.recent = [];
    this.open();
    setInterval(() => this.ping(), PING_EVERY);
  }

  open() {
    this.become("connecting");
    const socket = (this.socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`));
    socket.onopen = () => {
      this.lastHeard = performance.now();
      socket.send(JSON.stringify(this.hello()));
      this.ping();
    };
    socket.onmessage = ({ data }) => {
      this.lastHeard = performance.now();
      const message = JSON.parse(data);
      if (message.t === "pong") this.measured(this.lastHeard - message.at);
      this.heard(message, this.lastHeard);
      if (message.t === "welcome") {
        // Not at onopen: a refusal can follow it.
        this.wait = FIRST_WAIT;
        this.become("open");
      }
    };
    socket.onclose = ({ code, reason }) => socket === this.socket && this.closed(code, reason);
  }

  async closed(code, reason) {
    this.drops += 1;
    this.lastClose = { code, reason };
    this.become("waiting");
    const socket = this.socket;
    if (code in OWN_ENDS) return this.end(null, ...OWN_ENDS[code]);
    // 4408 and 4410 are only ever the proxy's; 1001, 1011 and 1012 may also be the game's own, so the session is asked.
    const told = reasonOf(code, reason);
    const found = code >= 4000 && told ? told : await fate();
    if (found && found !== "alive") return this.end(found);
    if (told && found !== "alive") return this.end(told);
    if (socket !== this.socket) return;
    const wait = this.wait * (0.7 + 0.6 * Math.random());
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
    setTimeout(() => socket === this.socket && this.state === "waiting" && this.open(), wait);
  }

  end(why, ...words) {
    this.become("ended");
    this.ended(why, ...words);
  }

  send(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  ping() {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    if (performance.now() - this.lastHeard > SILENT_FOR) {
      // A dead network gives no close event for minutes.
      const silent = this.socket;
      this.socket.onclose = null;
      silent.close();
      this.closed(1006, "");
    } else {
      this.send({ t: "ping", at: performance.now() });
    }
  }

  measured(rtt) {
    this.recent = [...this.recent.slice(-4), rtt];
    this.rtt = Math.min(...this.recent);
    this.changed(this);
  }

  become(state) {
    this.state = state;
    this.changed(this);
  }
}
