// Calls every operation of the description on a real server.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { Tally } from "tally-client";
import { CALLS, type Made, make } from "./operations.js";
import { RealServer, eventually, program } from "./servers.js";

interface Parameter {
    name: string;
    in: "query" | "header" | "path";
}
interface Operation {
    operationId: string;
    parameters?: Parameter[];
}
const description = JSON.parse(execFileSync(program, ["openapi"], { encoding: "utf8", maxBuffer: 64 * 1024 * 1024 })) as {
    paths: Record<string, Record<string, Operation>>;
};

/** A request that was answered. */
interface Sent {
    method: string;
    url: URL;
    headers: Headers;
    status: number;
}
let server: RealServer;
let tally: Tally;
let made: Made;
let sent: Sent[] = [];
before(async () => {
    server = await RealServer.start({
        TALLY_OPERATOR_DATABASE_URL: process.env["CLIENT_TEST_OPERATOR_URL"],
        TALLY_COOKIE_KEYS: "a".repeat(64),
        TALLY_FRAME_ORIGINS: "https://cms.example.org",
    });
    let cookie: string | undefined;
    // Notes what is sent, and keeps the cookie as a browser does.
    const noting: typeof fetch = async (url, init) => {
        const headers = new Headers(init?.headers);
        if (cookie !== undefined && String(url).endsWith("/v1/voter")) headers.set("cookie", cookie);
        const answer = await fetch(url, { ...init, headers });
        cookie = answer.headers.get("set-cookie")?.split(";")[0] ?? cookie;
        sent.push({ method: init?.method ?? "GET", url: new URL(String(url)), headers, status: answer.status });
        return answer;
    };
    tally = new Tally(server.base, { fetch: noting });
    made = await make(tally, server.base);
    await eventually("the edit has ended", async () => !(await tally.voterEdits.get(made.voterEdit)).under_way);
    await eventually("the voiding has ended", async () => !(await tally.voidings.get(made.voiding)).under_way);
});
after(() => server.stop());

const operations = Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), ...operation })),
);

test("the description has the operations that the types have", () => {
    assert.deepEqual(operations.map(({ operationId }) => operationId).sort(), Object.keys(CALLS).sort());
});

/** Parameters that no call here sends: a stream continues only when it was lost, and pages are read whole. */
const isSentElsewhere = ({ path }: { path: string }, { name }: Parameter) =>
    name === "Last-Event-ID" || (name === "If-None-Match" && !path.startsWith("/v1/"));

test("every operation has a method, which sends each of its parameters and is not refused", async () => {
    for (const operation of operations) {
        const { operationId, method, path } = operation;
        sent = [];
        await CALLS[operationId as keyof typeof CALLS](tally, made);
        const pattern = new RegExp(`^${path.replace(/\{\w+\}/g, "[^/]+")}$`);
        const ours = sent.filter((one) => one.method === method && pattern.test(one.url.pathname));
        assert.ok(ours.length > 0, `${operationId} sends ${method} ${path}, not ${sent.map((one) => `${one.method} ${one.url}`)}`);
        assert.deepEqual(ours.filter(({ status }) => status >= 400), [], operationId);
        for (const parameter of operation.parameters ?? []) {
            if (parameter.in === "path" || isSentElsewhere(operation, parameter)) continue;
            const has = ({ url, headers }: Sent) => (parameter.in === "query" ? url.searchParams : headers).has(parameter.name);
            assert.ok(ours.some(has), `a call of ${operationId} in test/operations.ts sends ${parameter.name}`);
        }
    }
});
