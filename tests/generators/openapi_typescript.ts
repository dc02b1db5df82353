// The ten calls with openapi-fetch, and with the types that openapi-typescript makes.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./generated/openapi-typescript";

type Problem = components["schemas"]["Problem"];
const key = "made-by-openapi-typescript";

async function main() {
    const api = createClient<paths>({ baseUrl: process.env["SERVER_BASE"]! });
    const item = (await api.POST("/v1/items", { body: { name: "A post", key } })).data!;
    const again = (await api.POST("/v1/items", { body: { name: "A post", key } })).data!;
    assert.equal(again.id, item.id);
    const id: number = item.id;
    const { error: taken } = await api.POST("/v1/items", { body: { name: "Another", key } });
    const kept: Problem = taken!; // the error keeps its type
    assert.deepEqual([kept.type, kept.status], ["/problems/key-taken", 409]);

    const of = { params: { path: { id, voter_id: "ada" } } };
    const vote = (await api.POST("/v1/items/{id}/votes", { params: { path: { id: `key:${key}` } }, body: { voter_id: "ada" } })).data!;
    assert.deepEqual([vote.item_id, vote.vote_count], [id, 1]);
    assert.equal((await api.POST("/v1/items/{id}/votes", { params: { path: { id } }, body: { voter_id: "ada" } })).data?.repeated, true);
    assert.equal((await api.PUT("/v1/items/{id}/votes/{voter_id}", { ...of, body: { value: -1 } })).data?.vote_count, -1);
    assert.equal((await api.GET("/v1/items/{id}/votes/{voter_id}", of)).data?.value, -1);
    assert.equal((await api.DELETE("/v1/items/{id}/votes/{voter_id}", of)).data?.value, 0);
    const { error: none } = await api.GET("/v1/items/{id}/votes/{voter_id}", of);
    assert.equal(none?.type, "/problems/no-vote");

    const listed = (await api.GET("/v1/items", { params: { query: { ids: `key:${key}` } } })).data!;
    assert.ok(typeof listed === "object"); // not CSV
    assert.deepEqual(listed.items.map((one) => one.id), [id]);

    const votes = [{ item_id: id, voter_id: "bob" }, { item_id: "key:nothing" }];
    const [done, refused] = (await api.POST("/v1/votes", { body: { votes } })).data!.results;
    assert.ok(done && refused && "vote_count" in done && "title" in refused);
    assert.deepEqual([done.status, done.vote_count, refused.type], [201, 1, "/problems/unknown-item"]);

    const poll = (await api.POST("/v1/polls", { body: { title: "Lunch?", choices: ["Soup", "Salad"] } })).data!;
    const items = [poll.choices[1]!.item_id];
    const chosen = await api.PUT("/v1/polls/{id}/votes/{voter_id}", { params: { path: { id: poll.id, voter_id: "ada" } }, body: { items } });
    assert.deepEqual(chosen.data?.items, items);

    const { error: unknown, response } = await api.GET("/v1/items/{id}", { params: { path: { id: 999_999 } } });
    assert.deepEqual([unknown?.type, response.status], ["/problems/unknown-item", 404]);
    console.log("openapi-typescript: the calls do what they say");
}
void main();
