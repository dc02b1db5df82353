// A page's own script. It is only compiled: each line below a @ts-expect-error must be an error.
import type { TallySettings } from "tally-client/elements";

const poll = document.querySelector("tally-poll");
poll?.setAttribute("poll", "4");
poll?.addEventListener("tally-vote", ({ detail }) => {
    const held: number[] = "items" in detail ? detail.items : [detail.item_id];
    void held;
    // @ts-expect-error: not each answer is of one item
    void detail.item_id;
});
document.addEventListener("tally-counts", ({ detail }) => {
    const count: number | null = "choices" in detail ? detail.voter_count : detail.vote_count;
    void count;
});
window.addEventListener("tally-sign-in", ({ detail }) => {
    const why: string | undefined = detail.problem?.hint;
    void why;
});
window.addEventListener("tally-error", ({ detail }) => {
    const text: string = detail.problem?.detail ?? detail.message;
    void text;
    // @ts-expect-error: there may be no problem
    void detail.problem.title;
});
document.addEventListener("tally-connection", ({ detail }) => {
    const reason: string = detail.connected ? "" : detail.reason;
    void reason;
});
const element: HTMLElement = document.createElement("tally-reactions");
void element;
// @ts-expect-error: there is no such element
const none: keyof HTMLElementTagNameMap = "tally-votes";
void none;

const settings: TallySettings[] = [
    { token: async () => (await fetch("/my-token")).text() },
    { token: () => null },
    { token: null, words: null },
    { words: { de: { counted: "Danke!", votes: { one: "{n} Stimme", other: "{n} Stimmen" } } } },
];
void settings;
// @ts-expect-error: a token is a function
const text: TallySettings = { token: "secret" };
// @ts-expect-error: no language has such a plural
const plural: TallySettings = { words: { de: { votes: { several: "{n}" } } } };
// @ts-expect-error: there is no such setting
const unknown: TallySettings = { language: "de" };
void [text, plural, unknown];
