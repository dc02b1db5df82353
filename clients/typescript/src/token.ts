/**
 * An API key or a voter's token, or a function that returns it: before each try, so that a token may expire. If
 * the server answers 401, the function is called with the token that was refused. If it returns another one, the
 * request is sent once more, since nothing was done.
 */
export type Token = string | ((refused?: string) => string | undefined | Promise<string | undefined>);

/** The function threw its `cause`, or no header takes the token. The request was not sent. */
export class TokenFailure extends Error {}

/** Returns the token to send. Rejects with a {@link TokenFailure}, or with the signal's reason. */
export async function tokenOf(
    token: Token | undefined,
    refused: string | undefined,
    signal: AbortSignal | undefined,
): Promise<string | undefined> {
    if (typeof token !== "function") return token;
    const asked = new Promise<string | undefined>((resolve) => resolve(refused === undefined ? token() : token(refused)));
    return await untilAborted(
        asked.catch((cause: unknown) => {
            throw new TokenFailure("there is no token", { cause });
        }),
        signal,
    );
}

function untilAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
        const aborted = () => reject(signal?.reason);
        const end = () => signal?.removeEventListener("abort", aborted);
        signal?.addEventListener("abort", aborted, { once: true });
        promise.then(resolve, reject).then(end, end);
        if (signal?.aborted) aborted();
    });
}
