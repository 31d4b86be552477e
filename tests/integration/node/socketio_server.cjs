// A container with Socket.IO's own server: rooms, acknowledgements, binary. Run as `node socketio_server.cjs PORT`.
const http = require("http");
const { Server } = require("socket.io");

const server = http.createServer((request, response) => response.end("here"));
const io = new Server(server, { perMessageDeflate: true });
io.on("connection", (socket) => {
  socket.on("join", (room, done) => {
    socket.join(room);
    done(socket.handshake.headers["x-modal-server-session-id"] ?? null);
  });
  socket.on("say", (room, words) => io.to(room).emit("said", words));
  socket.on("double", (bytes, done) => done(Buffer.concat([bytes, bytes])));
});
server.listen(Number(process.argv[2]), "127.0.0.1");
