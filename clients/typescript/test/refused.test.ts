// Runs against the server at TALLY_BASE. Its Postgres confirms no vote until this test reports a refusal.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Tally } from "tally-client";

test("a vote with a voter that Tally itself answers 503 is sent again", async () => {
    const noting: typeof fetch = async (url, init) => {
        const answer = await fetch(url, init);
        console.log(`answered=${answer.status}`);
        return answer;
    };
    const tally = new Tally(String(process.env["TALLY_BASE"]), { fetch: noting, triesLimit: 20 });
    const vote = await tally.vote(Number(process.env["TALLY_ITEM"]), { voter_id: "ada" });
    assert.equal(vote.value, 1);
});
