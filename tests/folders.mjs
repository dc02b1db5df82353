// Folders of tests.
import { chmod, mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

// A new folder for a `tally dev`, to remove afterwards. Postgres, which does not run as root, can enter it: otherwise
// its data would be in a folder of their own, which nobody removes.
export async function temporary(name) {
  const folder = await mkdtemp(join(tmpdir(), `${name}-`));
  await chmod(folder, 0o711);
  return folder;
}
