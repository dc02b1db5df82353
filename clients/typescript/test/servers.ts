// Real servers on the stores that the environment names, and a proxy that loses answers.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { type IncomingMessage, type Server, type ServerResponse, createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";

if (process.env["CLIENT_TEST_PROGRAM"] === undefined) {
    throw new Error("CLIENT_TEST_PROGRAM is not set; `make client` sets it and starts the stores");
}
/** The program `tally`. */
export const program: string = process.env["CLIENT_TEST_PROGRAM"];

/** Further settings of a server. */
export type Settings = Record<string, string | undefined>;

/** A `tally serve` in a process of its own. */
export class RealServer {
    #process: ChildProcess;
    readonly base: string;
    readonly #port: string;
    readonly #settings: Settings;

    private constructor(process: ChildProcess, base: string, settings: Settings) {
        this.#process = process;
        this.#settings = settings;
        this.base = base;
        this.#port = new URL(base).port;
    }

    static async start(settings: Settings = {}): Promise<RealServer> {
        return new RealServer(...(await serve("0", settings)), settings);
    }

    async stop(): Promise<void> {
        if (this.#process.exitCode !== null) return;
        const exit = once(this.#process, "exit");
        this.#process.kill("SIGTERM");
        await exit;
    }

    /** Starts again at the same address. */
    async startAgain(): Promise<void> {
        [this.#process] = await serve(this.#port, this.#settings);
    }
}

async function serve(port: string, settings: Settings): Promise<[ChildProcess, string]> {
    // On Linux the server ends with this process, however this process ends.
    const [command, ...before] = process.platform === "linux" ? ["setpriv", "--pdeathsig", "KILL", "--"] : [];
    const server = spawn(command ?? program, [...before, ...(command ? [program] : []), "serve"], {
        env: { ...process.env, ...settings, TALLY_LISTEN: `127.0.0.1:${port}` },
        stdio: ["ignore", "pipe", "pipe"],
    });
    const said: string[] = [];
    const address = await new Promise<string>((resolve, reject) => {
        for (const output of [server.stdout, server.stderr]) {
            createInterface(output).on("line", (line) => {
                said.push(line);
                const address = /address="?([\d.]+:\d+)/.exec(line)?.[1];
                if (address !== undefined) resolve(address);
            });
        }
        server.once("exit", () => reject(new Error(`the server ended: ${said.join("\n")}`)));
        server.once("error", reject);
    });
    const base = `http://${address}`;
    await eventually("the server is ready", async () => {
        const answer = await fetch(`${base}/health/ready`);
        return (await answer.text()).includes('"ready"');
    });
    return [server, base];
}

/** Waits until a condition holds. */
export async function eventually(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
    for (let looks = 0; looks < 3_000; looks++) {
        if (await isSo()) return;
        await new Promise((resolve) => setTimeout(resolve, 20));
    }
    throw new Error(`this never came true: ${what}`);
}

/** What the proxy does with an answer of the server. */
export type Loss = "none" | "connection" | "unconfirmed" | "throttled" | "bad-gateway";

/** Forwards whole requests to a server, and loses the answers to the next ones as `losses` says. */
export class LossyProxy {
    readonly #server: Server;
    /** What happens to the next answers, in turn. Later answers pass. */
    losses: Loss[] = [];
    /** The requests that came, as `POST /path`. */
    readonly requests: string[] = [];

    private constructor(server: Server) {
        this.#server = server;
    }

    static async start(base: string): Promise<LossyProxy> {
        const server = createServer((incoming, outgoing) => void proxy.#forward(base, incoming, outgoing));
        const proxy = new LossyProxy(server);
        server.listen(0, "127.0.0.1");
        await once(server, "listening");
        return proxy;
    }

    get base(): string {
        return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    }

    stop(): void {
        this.#server.closeAllConnections();
        this.#server.close();
    }

    async #forward(base: string, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
        this.requests.push(`${incoming.method} ${incoming.url}`);
        const loss = this.losses.shift() ?? "none";
        const forwarded = request(`${base}${incoming.url}`, { method: incoming.method, headers: incoming.headers });
        incoming.pipe(forwarded);
        const [answer] = (await once(forwarded, "response")) as [IncomingMessage];
        if (loss === "none") {
            outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
            answer.pipe(outgoing);
            return;
        }
        // The server has done its work. The proxy reads its answer and drops it.
        for await (const _ of answer);
        if (loss === "connection") {
            incoming.socket.destroy();
            return;
        }
        const [status, problem] = PROBLEMS[loss];
        outgoing.writeHead(status, { "content-type": problem ? "application/problem+json" : "text/html", "retry-after": "1" });
        outgoing.end(problem ? JSON.stringify(problem) : "<h1>Bad Gateway</h1>");
    }
}

/** Problems as Tally words them. */
const PROBLEMS = {
    unconfirmed: [503, { type: "/problems/vote-unconfirmed", title: "Vote unconfirmed", status: 503, detail: "…", stored: "unknown" }],
    throttled: [429, { type: "/problems/throttled", title: "Throttled", status: 429, detail: "…", retry_after_seconds: 3600 }],
    "bad-gateway": [502, undefined],
} as const;
