// The examples of docs/react.md.
import { readFile } from "node:fs/promises";

const page = () => readFile(new URL("../../docs/react.md", import.meta.url), "utf8");

// Returns each example in TypeScript, in the order of the page.
export async function examples() {
  return [...(await page()).matchAll(/^```tsx?\n(.*?)^```/gms)].map(([, text]) => text);
}
