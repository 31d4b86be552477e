// Two Socket.IO clients of one session: polling, then the upgrade. Prints JSON. Run as `node socketio_client.cjs URL TOKEN`.
const assert = require("assert");
const { once } = require("events");
const { io } = require("socket.io-client");

const [url, token] = process.argv.slice(2);
const options = { extraHeaders: { "Modal-Authorization": `Bearer ${token}` }, reconnection: false, forceNew: true };

async function join() {
  const socket = io(url, options);
  socket.on("connect_error", (problem) => {
    console.error(problem);
    process.exit(1);
  });
  // Asked when it opens: on "connect" the upgrade may already be over.
  const opened = new Promise((resolve) => socket.io.engine.once("open", () => resolve(socket.io.engine.transport.name)));
  const upgraded = new Promise((resolve) => socket.io.engine.once("upgrade", resolve));
  await new Promise((resolve) => socket.once("connect", resolve));
  const first = await opened;
  await upgraded;
  const session = await socket.emitWithAck("join", "room");
  return { socket, first, session, transport: socket.io.engine.transport.name };
}

async function main() {
  const [ours, theirs] = [await join(), await join()];
  const heard = new Promise((resolve) => theirs.socket.once("said", resolve));
  ours.socket.emit("say", "room", { words: "näher", number: 7 });
  assert.deepStrictEqual(await heard, { words: "näher", number: 7 });
  const bytes = Buffer.alloc(100_000, 7);
  assert.ok(Buffer.concat([bytes, bytes]).equals(Buffer.from(await ours.socket.emitWithAck("double", bytes))));
  ours.socket.disconnect();
  console.error("holding");
  const [reason, detail] = await new Promise((resolve) => theirs.socket.once("disconnect", (...all) => resolve(all)));
  const kept = ({ first, session, transport }) => ({ first, session, transport });
  console.log(JSON.stringify({ ours: kept(ours), theirs: kept(theirs), reason, code: detail?.context?.code ?? detail?.description?.code ?? null }));
}

main().catch((problem) => {
  console.error(problem);
  process.exit(1);
});
