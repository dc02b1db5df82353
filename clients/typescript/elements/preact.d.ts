/** The elements in TSX of Preact 10 and 11: `import type {} from "tally-client/elements/preact"`. */
import type { ClassAttributes, HTMLAttributes } from "preact";
import type { TallyAttributes, TallyEvents } from "./index.js";

export * from "./index.js";

type Listeners = { [Name in keyof TallyEvents as `on${Name}`]?: ((event: TallyEvents[Name]) => void) | undefined };

type Elements = { [Tag in keyof TallyAttributes]: TallyAttributes[Tag] & HTMLAttributes<HTMLElement> & ClassAttributes<HTMLElement> & Listeners };

declare module "preact" {
    namespace JSX {
        interface IntrinsicElements extends Elements {}
    }
}
