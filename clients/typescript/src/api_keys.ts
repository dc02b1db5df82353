import { type CallOptions, type Schemas, signalOf } from "./options.js";
import type { Requests } from "./requests.js";

export type ApiKey = Schemas["ApiKey"];
export type MadeApiKey = Schemas["MadeApiKey"];
export type NewApiKey = Schemas["NewApiKey"];
export type Rotation = Schemas["Rotation"];

/** API keys: `tally.apiKeys`. */
export class ApiKeyCalls {
    readonly #requests: Requests;

    constructor(requests: Requests) {
        this.#requests = requests;
    }

    /** Creates an API key. The server shows its secret this once. */
    create(key: NewApiKey, options: CallOptions = {}): Promise<MadeApiKey> {
        return this.#requests.ask({ method: "POST", path: "/v1/api-keys", body: key, ...signalOf(options) });
    }

    /** Lists API keys, the newest first, without their secrets. */
    async list(options: CallOptions = {}): Promise<ApiKey[]> {
        const call = { method: "GET", path: "/v1/api-keys", ...signalOf(options) } as const;
        return (await this.#requests.ask<Schemas["ApiKeys"]>(call)).api_keys;
    }

    /** Creates a key with the name and the scopes of this one, which then expires. */
    rotate(key: number, rotation: Rotation = {}, options: CallOptions = {}): Promise<MadeApiKey> {
        const path = `/v1/api-keys/${key}/rotate`;
        return this.#requests.ask({ method: "POST", path, body: rotation, ...signalOf(options) });
    }

    /** Revokes an API key. */
    revoke(key: number, options: CallOptions = {}): Promise<void> {
        return this.#requests.ask({ method: "DELETE", path: `/v1/api-keys/${key}`, ...signalOf(options) });
    }
}
