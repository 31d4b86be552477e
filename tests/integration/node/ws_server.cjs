// A container: echoes, and tells at /closes how its WebSockets ended. Run as `node ws_server.cjs PORT`.
const http = require("http");
const { WebSocketServer } = require("ws");

const closes = [];
const server = http.createServer((request, response) => {
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(closes));
});
const sockets = new WebSocketServer({
  server,
  perMessageDeflate: { threshold: 0 },
  maxPayload: 64 * 1024 * 1024,
  handleProtocols: (offered) => (offered.has("chat") ? "chat" : false),
});
sockets.on("connection", (socket) => {
  socket.on("error", () => {});
  socket.on("message", (data, binary) => socket.send(data, { binary }));
  socket.on("close", (code, reason) => closes.push([code, reason.toString()]));
});
server.listen(Number(process.argv[2]), "127.0.0.1");
