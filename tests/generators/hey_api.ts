// The ten calls with the client that @hey-api/openapi-ts makes.
import assert from "node:assert/strict";
import * as api from "./generated/hey-api";
import { client } from "./generated/hey-api/client.gen";

const key = "made-by-hey-api";

async function main() {
    client.setConfig({ baseUrl: process.env["SERVER_BASE"]! });
    const item = (await api.createItem({ body: { name: "A post", key } })).data!;
    assert.equal((await api.createItem({ body: { name: "A post", key } })).data?.id, item.id);
    const id: number = item.id;
    const { error: taken } = await api.createItem({ body: { name: "Another", key } });
    const kept: api.Problem = taken!; // the error keeps its type
    assert.deepEqual([kept.type, kept.status], ["/problems/key-taken", 409]);

    const path = { id, voter_id: "ada" };
    const vote = (await api.castVote({ path: { id: `key:${key}` }, body: { voter_id: "ada" } })).data!;
    assert.deepEqual([vote.item_id, vote.vote_count], [id, 1]);
    assert.equal((await api.castVote({ path: { id }, body: { voter_id: "ada" } })).data?.repeated, true);
    assert.equal((await api.setVote({ path, body: { value: -1 } })).data?.vote_count, -1);
    assert.equal((await api.showVote({ path })).data?.value, -1);
    assert.equal((await api.takeBackVote({ path })).data?.value, 0);
    assert.equal((await api.showVote({ path })).error?.type, "/problems/no-vote");

    const listed = (await api.listItems({ query: { ids: `key:${key}` } })).data!;
    assert.ok(typeof listed === "object"); // not CSV
    assert.deepEqual(listed.items.map((one) => one.id), [id]);

    const votes = [{ item_id: id, voter_id: "bob" }, { item_id: "key:nothing" }];
    const [done, refused] = (await api.castVotes({ body: { votes } })).data!.results;
    assert.ok(done && refused && "vote_count" in done && "title" in refused);
    assert.deepEqual([done.status, done.vote_count, refused.type], [201, 1, "/problems/unknown-item"]);

    const poll = (await api.createPoll({ body: { title: "Lunch?", choices: ["Soup", "Salad"] } })).data!;
    const items = [poll.choices[1]!.item_id];
    assert.deepEqual((await api.setSelection({ path: { id: poll.id, voter_id: "ada" }, body: { items } })).data?.items, items);

    const { error: unknown, response } = await api.showItem({ path: { id: 999_999 } });
    assert.deepEqual([unknown?.type, response?.status], ["/problems/unknown-item", 404]);
    console.log("hey-api: the calls do what they say");
}
void main();
