// Talks with an echo and prints what it saw as one line of JSON. Run as `node ws_client.cjs URL TOKEN [hold]`.
const assert = require("assert");
const { once } = require("events");
const WebSocket = require("ws");

const [url, token, hold] = process.argv.slice(2);
const headers = token ? { "Modal-Authorization": `Bearer ${token}` } : {};
const socket = new WebSocket(url, ["chat"], { headers, maxPayload: 64 * 1024 * 1024 });

async function echo(data, options = {}) {
  const answer = once(socket, "message");
  socket.send(data, options);
  const [got, binary] = await answer;
  assert.strictEqual(Boolean(options.binary ?? Buffer.isBuffer(data)), binary);
  assert.ok(Buffer.from(data).equals(got));
}

async function main() {
  const closed = once(socket, "close");
  await once(socket, "open");
  for (let round = 0; round < 5; round++) await echo("the same words again and again, and näher ".repeat(200));
  await echo("", {});
  await echo(Buffer.alloc(4 << 20, 120));
  const answer = once(socket, "message");
  for (const part of ["frag", "men"]) socket.send(part, { fin: false });
  socket.send("ted", { fin: true });
  assert.strictEqual((await answer)[0].toString(), "fragmented");
  const pong = once(socket, "pong");
  socket.ping("mine");
  assert.strictEqual((await pong)[0].toString(), "mine");
  if (hold) console.error("holding");
  else socket.close(3001, "bye");
  const [code, reason] = await closed;
  console.log(JSON.stringify({ protocol: socket.protocol, extensions: socket.extensions.split(";")[0], code, reason: reason.toString() }));
}

main().catch((problem) => {
  console.error(problem);
  process.exit(1);
});
