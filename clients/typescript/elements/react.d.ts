/** The elements in TSX of React 18 and 19: `import type {} from "tally-client/elements/react"`. */
import type { HTMLAttributes, RefAttributes } from "react";
import type { TallyAttributes, TallyEvents } from "./index.js";

export * from "./index.js";

/** Listeners, which React adds from version 19 on. React 18 needs `addEventListener`. */
type Listeners = { [Name in keyof TallyEvents as `on${Name}`]?: ((event: TallyEvents[Name]) => void) | undefined };

/** React 18 takes `class` alone on such elements; React 19 takes `className` too. */
type Common = Omit<HTMLAttributes<HTMLElement>, "className"> & RefAttributes<HTMLElement> & Listeners & { class?: string | undefined };

type Elements = { [Tag in keyof TallyAttributes]: TallyAttributes[Tag] & Common };

declare module "react" {
    namespace JSX {
        interface IntrinsicElements extends Elements {}
    }
}
