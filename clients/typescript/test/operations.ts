// How each operation of the description is called. The compiler refuses this table if one is missing.
import { Tally, type operations } from "tally-client";

/** What the calls are about. All of it exists. */
export interface Made {
    /** The server's address. */
    base: string;
    item: number;
    poll: number;
    choice: number;
    /** Items and polls by ballot. */
    byBallot: { item: number; poll: number };
    vote: number;
    apiKey: number;
    voiding: number;
    voterEdit: number;
}

export async function make(tally: Tally, base: string): Promise<Made> {
    const item = await tally.items.create({ name: "An item", key: "made" });
    const poll = await tally.polls.create({ title: "A poll", choices: ["a", "b"] });
    const { vote_id } = await tally.vote(item.id, { voter_id: "ada" });
    const choice = Number(poll.choices[0]?.item_id);
    await tally.polls.select(poll.id, "ada", [choice]);
    const voiding = await tally.voidings.create({ voter_id: "nobody", reason: "a test" });
    const voterEdit = await tally.voterEdits.create({ kind: "merge", voter_id: "someone", to_voter_id: "someone else" });
    return {
        base,
        item: item.id,
        poll: poll.id,
        choice,
        byBallot: {
            item: (await tally.items.create({ name: "By ballot", by_ballot: true })).id,
            poll: (await tally.polls.create({ title: "By ballot", choices: ["a"], by_ballot: true, secret: true })).id,
        },
        vote: Number(vote_id),
        apiKey: (await tally.apiKeys.create({ name: "a key", scopes: ["vote"] })).id,
        voiding: voiding.id,
        voterEdit: voterEdit.id,
    };
}

/** A read, at first with no answer, then with the one that came. The second is sent only if the first has a tag. */
async function twice<T>(read: (tag: { ifNoneMatch: string | null }) => Promise<{ modified: boolean; etag: string | undefined; value?: T }>) {
    const { modified, etag, value } = await read({ ifNoneMatch: null });
    if (!modified || etag === undefined || value === undefined) throw new Error("the first answer has no tag or no value");
    // The server may answer with something newer.
    await read({ ifNoneMatch: etag });
}

/** Watches until counts come. */
async function watch(tally: Tally, watched: Parameters<Tally["watch"]>[0]): Promise<void> {
    const stop = new AbortController();
    await tally.watch(watched, () => stop.abort(), { signal: stop.signal });
}

const page = { after: 0, limit: 5 };
const newest = { before: 1_000_000, limit: 5 };
const LOOK = { lang: "de", accent: "3546c9", scheme: "dark" } as const;
const times = { since: "2020-01-31T18:00:00Z", until: "2090-01-31T18:00:00Z" };

/** Together, the calls of an operation send every parameter that its query takes. */
export const CALLS: { [Name in keyof operations]: (tally: Tally, made: Made) => Promise<unknown> } = {
    listItems: async (tally, { item }) => {
        await tally.items.list({ ...page, search: "item", choices: false });
        await tally.items.csv({ ...page, name: "An item" });
        await twice((tag) => tally.items.list({ ids: [item, "key:made"], ...tag }));
    },
    createItem: (tally) => tally.items.create({ name: "Another" }),
    listTopItems: async (tally, { poll }) => {
        await tally.items.topCsv({ by: "up", over: "day", limit: 5 });
        await tally.items.topCsv({ choices: true, key_prefix: "ma" });
        await twice((tag) => tally.items.top({ poll, ...tag }));
    },
    showItem: (tally, { item }) => twice((tag) => tally.items.get(item, tag)),
    editItem: (tally, { item }) => tally.items.edit(item, { name: "An item" }),
    showItemHistory: (tally) => twice((tag) => tally.items.history("key:made", { over: "day", ...tag })),
    listItemVotes: async (tally, { item }) => {
        await tally.items.votesCsv(item, page);
        await twice((tag) => tally.items.votes(item, { ...page, ...tag }));
    },
    castVote: (tally, { item }) => tally.vote(item, { voter_id: "ada", value: 1 }, { idempotencyKey: "one" }),
    showVote: (tally, { item }) => tally.held(item, "ada"),
    setVote: (tally, { item }) => tally.setVote(item, "ada", 1),
    takeBackVote: (tally, { item }) => tally.takeBack(item, "bob"),
    showFeed: (tally, { item, poll }) => tally.feed("ada", { items: [item], polls: [poll] }),
    listVotes: (tally, { item, poll }) => tally.heldMany("ada", { items: [item], polls: [poll] }),
    castVotes: (tally, { item }) => tally.castMany([{ item_id: item, voter_id: "ada" }], { idempotencyKey: "two" }),
    showReceipt: (tally, { vote }) => tally.receipt(vote),
    listPollVotes: async (tally, { poll }) => {
        await tally.polls.votesCsv(poll, page);
        await twice((tag) => tally.polls.votes(poll, { ...page, ...tag }));
    },
    listPolls: (tally) => twice((tag) => tally.polls.list({ ...newest, search: "poll", ...tag })),
    createPoll: (tally) => tally.polls.create({ title: "Another", choices: ["a"] }),
    showPoll: async (tally, { poll }) => {
        await tally.polls.csv(poll);
        await twice((tag) => tally.polls.get(poll, tag));
    },
    editPoll: (tally, { poll }) => tally.polls.edit(poll, { title: "A poll" }),
    addChoice: (tally, { poll }) => tally.polls.addChoice(poll, "one more"),
    copyPoll: (tally, { poll }) => tally.polls.copy(poll, { title: "A copy" }),
    showPollHistory: (tally, { poll }) => twice((tag) => tally.polls.history(poll, { over: "day", ...tag })),
    showSelection: (tally, { poll }) => tally.polls.selected(poll, "ada"),
    setSelection: (tally, { poll, choice }) => tally.polls.select(poll, "ada", [choice]),
    takeBackSelection: (tally, { poll }) => tally.polls.takeBack(poll, "bob"),
    createItemBallots: (tally, { byBallot: { item } }) => tally.ballots.create({ item }, { count: 1 }),
    createPollBallots: (tally, { byBallot: { poll } }) => tally.ballots.create({ poll }, { count: 1 }),
    streamItem: (tally, { item }) => watch(tally, { items: [item] }),
    streamPoll: (tally, { poll }) => watch(tally, { polls: [poll] }),
    stream: (tally, { item, poll }) => watch(tally, { items: [item], polls: [poll] }),
    showItemAccess: (tally, { item }) => tally.access.get({ item }),
    setItemAccess: (tally, { item }) => tally.access.set({ item }, ["voters"]),
    showPollAccess: (tally, { poll }) => tally.access.get({ poll }),
    setPollAccess: (tally, { poll }) => tally.access.set({ poll }, ["voters"]),
    createVoter: (tally) => tally.voter.create(),
    showVoter: async (tally) => {
        const { voter_id } = await tally.voter.create();
        if ((await tally.voter.get()).voter_id !== voter_id) throw new Error("the cookie is another voter's");
    },
    forgetVoter: (tally) => tally.voter.forget(),
    listApiKeys: (tally) => tally.apiKeys.list(),
    createApiKey: (tally) => tally.apiKeys.create({ name: "another", scopes: ["vote"] }),
    rotateApiKey: (tally, { apiKey }) => tally.apiKeys.rotate(apiKey, { grace_seconds: 60 }),
    revokeApiKey: (tally, { apiKey }) => tally.apiKeys.revoke(apiKey),
    showStatus: (tally) => tally.status.get(),
    showHistory: (tally) => tally.status.history({ after: 0 }),
    askForAudit: (tally) => tally.status.requestAudit(),
    listVoidings: (tally) => tally.voidings.list(newest),
    createVoiding: (tally) => tally.voidings.dryRun({ voter_id: "nobody", reason: "a test" }, { after: 0 }),
    showVoiding: (tally, { voiding }) => tally.voidings.get(voiding),
    resumeVoiding: (tally, { voiding }) => tally.voidings.resume(voiding),
    undoVoiding: (tally, { voiding }) => tally.voidings.undo(voiding),
    listVoterEdits: (tally) => tally.voterEdits.list(newest),
    createVoterEdit: (tally) => tally.voterEdits.dryRun({ kind: "erase", voter_id: "ada" }, { after: 0 }),
    showVoterEdit: (tally, { voterEdit }) => tally.voterEdits.get(voterEdit),
    resumeVoterEdit: (tally, { voterEdit }) => tally.voterEdits.resume(voterEdit),
    listTrail: (tally) => tally.trail.list({ ...newest, ...times, who: "anyone", what: "item.create" }),
    showProblems: (tally) => tally.pages.problems(),
    showProblem: (tally) => tally.pages.problem("full"),
    showLive: (tally) => tally.health.live(),
    showReady: (tally) => tally.health.ready(),
    showMetrics: (tally) => tally.health.metrics(),
    showPage: async (tally) => {
        await tally.pages.home({ search: "item", after: "1" });
        await tally.pages.home({ before: "2" });
    },
    showItemPage: (tally, { item }) => tally.pages.item(item),
    showPollPage: (tally, { poll }) => tally.pages.poll(poll),
    showItemFrame: (tally, { item }) => tally.pages.itemFrame(item, LOOK),
    showPollFrame: (tally, { poll }) => tally.pages.pollFrame(poll, LOOK),
    showOEmbed: (tally, { poll, base }) => tally.pages.oembed({ url: `${base}/polls/${poll}`, maxwidth: 400, maxheight: 300, format: "json" }),
    showEmbedPage: (tally) => tally.pages.embed(),
    showOperatorPage: (tally) => tally.pages.operator(),
    showDescription: (tally) => tally.pages.description(),
    showDocs: (tally) => tally.pages.docs(),
};
