/** The elements in TSX of Solid 1: `import type {} from "tally-client/elements/solid"`. */
import type { JSX } from "solid-js";
import type { TallyAttributes, TallyEvents } from "./index.js";

export * from "./index.js";

type Listeners = { [Name in keyof TallyEvents as `on:${Name}`]?: ((event: TallyEvents[Name]) => void) | undefined };

type Elements = { [Tag in keyof TallyAttributes]: TallyAttributes[Tag] & JSX.HTMLAttributes<HTMLElement> & Listeners };

declare module "solid-js" {
    namespace JSX {
        interface IntrinsicElements extends Elements {}
    }
}
