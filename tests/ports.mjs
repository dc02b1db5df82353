// For all tests that start servers.
import { once } from "node:events";
import { createServer } from "node:net";

// The system may name a port a second time before its program listens.
const given = new Set();

// A port of this machine that is free now, each once.
export async function freePort() {
  for (;;) {
    const socket = createServer().listen(0, "127.0.0.1");
    await once(socket, "listening");
    const { port } = socket.address();
    socket.close();
    await once(socket, "close");
    if (!given.has(port)) {
      given.add(port);
      return port;
    }
  }
}
