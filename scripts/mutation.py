"""What the two kinds of mutation testing share: running tests, and the table of what they say."""

import errno
import os
import re
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "target" / "mutants"
# How long one group of tests may take for one mutant. A mutant that makes tests hang is caught.
GROUP_LIMIT_SECONDS = 400
# How often a busy file is tried, each 0.1 s.
BUSY_LIMIT_TRIES = 100


def arguments_of(program, flags):
    """The files or folders, the flags that are set, and the sample's size, from the command line."""
    given, sample = program[1:], None
    if "--sample" in given:
        at = given.index("--sample")
        size = given[at + 1] if len(given) > at + 1 else ""
        if not size.isdigit():
            raise SystemExit("--sample takes a number of mutants")
        sample = int(size)
        del given[at : at + 2]
    for one in given:
        if one.startswith("-") and one not in flags:
            raise SystemExit(f"{one}: it takes files, {', '.join(flags)} and --sample N")
    return [one for one in given if not one.startswith("-")], set(given) & set(flags), sample


def sweep():
    """Removes the shared memory of Postgres servers that ended in a hurry: a system holds
    4096 pieces, and beyond that no Postgres starts."""
    lines = Path("/proc/sysvipc/shm").read_text().split("\n")[1:]
    for fields in (line.split() for line in lines if line):
        shmid, size, creator, attached = fields[1], fields[3], fields[4], fields[6]
        # 56 bytes: what a Postgres has there. The rest of its memory is elsewhere.
        if attached == "0" and size == "56" and not Path(f"/proc/{creator}").exists():
            subprocess.run(["ipcrm", "-m", shmid], stderr=subprocess.DEVNULL, check=False)


def until_free(action):
    """Does it again while the binary is busy: a process that was killed, or was forked just
    now, may have it open."""
    for _ in range(BUSY_LIMIT_TRIES):
        try:
            return action()
        except OSError as error:
            if error.errno != errno.ETXTBSY:
                raise
            time.sleep(0.1)
    return action()


def first_failure(binary, group, log, variables):
    """The first test of a group that fails; None if all pass."""
    with open(log, "wb") as out:
        tests = until_free(
            lambda: subprocess.Popen(
                [binary, "--test-threads", "3", *group],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "CARGO_MANIFEST_DIR": str(ROOT), **variables},
            )
        )
        deadline = time.monotonic() + GROUP_LIMIT_SECONDS
        while True:
            code = tests.poll()
            failed = re.search(rb"^test (\S+) \.\.\. FAILED", log.read_bytes(), re.M)
            if code is not None or failed or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if tests.poll() is None:
            # Its servers stop when it is gone.
            os.kill(tests.pid, signal.SIGKILL)
            tests.wait()
            sweep()
    if failed:
        return failed.group(1).decode()
    if code is None:
        return f"(tests hung: {' '.join(group)})"
    return None if code == 0 else f"(tests ended with {code}: {' '.join(group)})"


def key(mutant):
    """How a mutant stands in the list of equivalents: it does not depend on line numbers."""
    return f"{mutant['file']}: {mutant['line']}: {mutant['what']}"


def equivalents(file):
    """Reasons by key. A line `key`, then an indented line with the reason."""
    reasons, last = {}, None
    if file.exists():
        for line in file.read_text().split("\n"):
            if line.startswith("#") or not line.strip():
                continue
            if line.startswith(" "):
                reasons[last] = (reasons[last] + " " + line.strip()).strip()
            else:
                last = line.strip()
                reasons[last] = ""
    return reasons


def report(done, reasons, into):
    """Writes and prints the table. Returns the exit code: 1 if a survivor is not explained."""
    survivors = [one for one in done if not one["caught_by"]]
    unexplained = [one for one in survivors if key(one) not in reasons]
    lines = ["| text | mutants | caught | equivalent | survive |", "|---|--:|--:|--:|--:|"]

    def row(name, mutants):
        alive = [one for one in mutants if not one["caught_by"]]
        known = [one for one in alive if key(one) in reasons]
        lines.append(
            f"| {name} | {len(mutants)} | {len(mutants) - len(alive)} "
            f"| {len(known)} | {len(alive) - len(known)} |"
        )

    for file in sorted({one["file"] for one in done}):
        row(f"`{file}`", [one for one in done if one["file"] == file])
    row("**all**", done)
    lines.append("")
    for one in sorted(survivors, key=lambda one: (one["file"], one["number"])):
        lines.append(f"- `{one['file']}`: `{one['line']}`: {one['what']}. {reasons.get(key(one), 'Not explained.')}")
    into.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 1 if unexplained else 0
