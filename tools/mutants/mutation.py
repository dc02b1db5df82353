"""What the two kinds of mutation testing share: which test reaches what, running one test, judging
mutants, and the table of what the tests say."""

import contextlib
import errno
import hashlib
import json
import math
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "target" / "mutants"
# How long a test may take when it is learned what it reaches.
LEARN_LIMIT_SECONDS = 180
# How long a test may take: so much, or so many times what it takes without a change. A mutant that
# makes a test hang is caught.
TEST_LIMIT_SECONDS = 30
TEST_LIMIT_TIMES = 6
# Tests that take longer than this without a change are left out: searches and loads, which take
# pieces of the protocol out themselves or look for what comes about by chance.
SLOW_LIMIT_SECONDS = 60
# How often a busy file is tried, each 0.1 s.
BUSY_LIMIT_TRIES = 100
# Lines as near as this to a mutant's tell more about which test catches it.
NEAR_LINES = 15
# So much likelier are tests of what a file is for to catch what is changed in it, and again those
# that have its name in theirs.
LIKELY_TIMES = 8
# What is kept of a test.
KEPT = ["binary", "seconds", "reached"]
# What a test says that failed because the machine was busy. Such a failure must come twice.
BUSY = re.compile(rb"timed out|TimedOut|did not|within \d|Service Unavailable|\b503\b")


def jobs():
    return int(os.environ.get("JOBS", "2"))


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


def tests_in(binary):
    """The names of a binary's tests that are not ignored."""
    listed = subprocess.run(
        [binary, "--list", "--format", "terse"], check=True, stdout=subprocess.PIPE, cwd=ROOT
    ).stdout.decode()
    ignored = subprocess.run(
        [binary, "--list", "--format", "terse", "--ignored"], check=True, stdout=subprocess.PIPE, cwd=ROOT
    ).stdout.decode()
    return [line[: -len(": test")] for line in listed.split("\n") if line.endswith(": test") and line not in ignored]


# The processes of the tests that run now.
RUNNING = set()


def end_with_tests(number, _frame):
    """Ends this program at once, and the tests that it runs: one may hang for ever with a mutant."""
    for process in list(RUNNING):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    os._exit(128 + number)


for stop in (signal.SIGINT, signal.SIGTERM):
    signal.signal(stop, end_with_tests)


def run_test(binary, test, log, variables, limit_seconds):
    """Runs one test in a process of its own. Returns "passed", "failed" or "hung"."""
    with open(log, "wb") as out:
        running = until_free(
            lambda: subprocess.Popen(
                [binary, "--exact", test],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "CARGO_MANIFEST_DIR": str(ROOT), "RUST_BACKTRACE": "0", "TALLY_TEST_ALONE": "1", **variables},
            )
        )
        RUNNING.add(running.pid)
        try:
            return "passed" if running.wait(limit_seconds) == 0 else "failed"
        except subprocess.TimeoutExpired:
            # Its servers stop when it is gone.
            os.kill(running.pid, signal.SIGKILL)
            running.wait()
            sweep()
            return "hung"
        finally:
            RUNNING.discard(running.pid)


class Tests:
    """The tests of some binaries: how long each takes without a change, and what it reaches."""

    def __init__(self, binaries, file):
        self.binaries, self.file = binaries, file
        digests = [hashlib.sha256(Path(binary).read_bytes()).hexdigest() for binary in binaries]
        kept = json.loads(file.read_text()) if file.exists() else {}
        # By name: binary, seconds, reached; those that fail without a change have no seconds.
        self.known = kept.get("tests", {}) if kept.get("binaries") == digests else {}
        self.digests, self.lock = digests, threading.Lock()
        # Which test caught or missed which mutant: (file, line, test, whether it caught).
        self.history = []
        # Of a file: the beginnings of the names of tests that look at what it is for.
        self.likely_of = lambda file: ()
        # By key: the test that caught it last time, which is tried first.
        self.caught_before = {}
        self.weights = None

    def learn(self, reached_by):
        """Runs each test once without a change. `reached_by(binary, test, job)` runs it and returns
        what it reached."""
        wanted = [
            (number, test)
            for number, binary in enumerate(self.binaries)
            for test in tests_in(binary)
            if test not in self.known
        ]
        free = list(range(jobs()))

        def one(number_and_test):
            number, test = number_and_test
            with self.lock:
                job = free.pop()
            started = time.monotonic()
            outcome, reached = reached_by(self.binaries[number], test, job)
            if outcome != "passed":
                started = time.monotonic()
                outcome, reached = reached_by(self.binaries[number], test, job)
            seconds = time.monotonic() - started
            with self.lock:
                free.append(job)
                self.known[test] = {
                    "binary": number,
                    "seconds": seconds if outcome == "passed" else None,
                    "reached": sorted(reached),
                }
                if outcome != "passed":
                    print(f"without a change: {test} {outcome}, so it is left out", flush=True)
                if len(self.known) % 50 == 0:
                    print(f"{len(self.known)} tests run without a change", flush=True)
                    self.keep()

        with ThreadPoolExecutor(jobs()) as pool:
            list(pool.map(one, wanted))
        self.keep()

    def still_catching(self):
        """Of what was caught before, that whose test is still there."""
        return {name: test for name, test in self.caught_before.items() if test in self.known}

    def keep(self):
        tests = {test: {name: known[name] for name in KEPT} for test, known in self.known.items()}
        self.file.write_text(json.dumps({"binaries": self.digests, "tests": tests}))

    def usable(self, test):
        seconds = self.known[test]["seconds"]
        return seconds is not None and seconds <= SLOW_LIMIT_SECONDS

    def reaching(self, what):
        return [test for test, known in self.known.items() if what in known["reached"] and self.usable(test)]

    def focus(self, test, near):
        """How much of what a test reaches is this: what few tests reach weighs the most."""
        if self.weights is None:
            reached = Counter(what for known in self.known.values() for what in known["reached"])
            weights = {what: math.log(len(self.known) / times) for what, times in reached.items()}
            for known in self.known.values():
                known["weight"] = sum(weights[what] for what in known["reached"]) + 0.1
            self.weights = weights
        known = self.known[test]
        return sum(self.weights[what] for what in known["reached"] if what in near) / known["weight"]

    def in_order(self, mutant, tests, near):
        """Those first that caught the most mutants near this one, for their time."""
        tries, catches = {}, {}
        with self.lock:
            for file, line, test, caught in self.history:
                if file == mutant["file"]:
                    weight = 4 if abs(line - mutant["number"]) <= NEAR_LINES else 1
                elif Path(file).parent == Path(mutant["file"]).parent:
                    weight = 0.2
                else:
                    continue
                tries[test] = tries.get(test, 0) + weight
                catches[test] = catches.get(test, 0) + weight * caught

        likely, stem = self.likely_of(mutant["file"]), Path(mutant["file"]).stem

        def rate(test):
            known = self.known[test]
            # Without experience: a test that reaches little else looks closer at it.
            guess = 0.02 + self.focus(test, near)
            if test.startswith(likely):
                guess *= LIKELY_TIMES
            if stem in test:
                guess *= LIKELY_TIMES
            chance = (catches.get(test, 0) + guess / 2) / (tries.get(test, 0) + 0.5)
            return -chance / (known["seconds"] + 0.05)

        return sorted(tests, key=rate)

    def judge(self, mutant, tests, near, run):
        """Runs tests until one fails: into `caught_by` goes its name, or None. `near` is what tests
        may reach that stands in the same text. `run(binary, test, limit_seconds)` runs a test with
        the change. With TESTS_LIMIT_SECONDS it may end before all
        have run: into `untried` goes how many have not."""
        limit_seconds, spent = float(os.environ.get("TESTS_LIMIT_SECONDS", "inf")), 0
        mutant["caught_by"], mutant["untried"] = None, 0
        left = self.in_order(mutant, tests, near)
        before = self.caught_before.get(key(mutant))
        if before in self.known and self.usable(before):
            left = [before] + [test for test in left if test != before]
        mutant["tests"] = len(left)
        while left and not mutant["caught_by"]:
            if spent >= limit_seconds:
                mutant["untried"] = len(left)
                break
            test = left.pop(0)
            spent += self.known[test]["seconds"]
            known = self.known[test]
            limit = max(TEST_LIMIT_SECONDS, TEST_LIMIT_TIMES * known["seconds"])
            outcome, said = run(self.binaries[known["binary"]], test, limit)
            if outcome == "failed" and BUSY.search(said):
                outcome, said = run(self.binaries[known["binary"]], test, limit)
            caught = outcome != "passed"
            if caught:
                mutant["caught_by"] = test if outcome == "failed" else f"{test} (hung)"
            with self.lock:
                self.history.append((mutant["file"], mutant["number"], test, caught))


def left_to_judge(mutants, name, kept, reasons, caught, flags, sample):
    """What is judged already, and the mutants that are not: with --resume those that an earlier run
    here has judged are left out, with --new those that are noted as caught by a test that is still
    there (`caught`), and without --all those that are listed as equivalent. `name` says which one
    a mutant is."""
    done = json.loads(kept.read_text()) if "--resume" in flags and kept.exists() else []
    # Those that were given up are judged again.
    done = [one for one in done if not one.get("untried")]
    known = {name(one) for one in done}
    left = [one for one in mutants if name(one) not in known]
    if "--new" in flags:
        done += [{**one, "caught_by": caught[key(one)]} for one in left if key(one) in caught]
        left = [one for one in left if key(one) not in caught]
    if "--all" not in flags:
        done += [{**one, "caught_by": None} for one in left if key(one) in reasons]
        left = [one for one in left if key(one) not in reasons]
    if sample is not None:
        left = random.Random(int(os.environ.get("SEED", "0"))).sample(left, min(sample, len(left)))
    return done, left


def judge_all(mutants, done, kept, judge):
    """Judges mutants, some at a time, and keeps what was found. `judge(mutant, job)`."""
    total, lock, free = len(done) + len(mutants), threading.Lock(), list(range(jobs()))

    def one(mutant):
        with lock:
            job = free.pop()
        try:
            judge(mutant, job)
        finally:
            with lock:
                free.append(job)
        with lock:
            done.append(mutant)
            caught = mutant["caught_by"] or f"SURVIVES {mutant['tests']} tests"
            if mutant.get("untried"):
                caught += f" ({mutant['untried']} not run)"
            print(f"{len(done)}/{total} {key(mutant)}: {caught}", flush=True)
            kept.write_text(json.dumps(done))

    with ThreadPoolExecutor(jobs()) as pool:
        list(pool.map(one, mutants))


def key(mutant):
    """How a mutant stands in the list of equivalents: it does not depend on line numbers."""
    return f"{mutant['file']}: {mutant['line']}: {mutant['what']}"


def noted(file):
    """What a file says of mutants, by key. A line `key`, then indented lines: the reason why one is
    equivalent, or the test that caught it."""
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


def note_caught(done, everything, file):
    """Notes in a file which test caught each mutant, for the next run: without those that there are
    no more, and with those that were not judged now as they were."""
    caught, before = {}, noted(file)
    for one in done:
        if one["caught_by"]:
            caught[key(one)] = one["caught_by"].removesuffix(" (hung)")
    lines = [
        "# Which test caught each mutant last time: it is tried first. Written by the script of the same",
        "# name; to leave it out only costs time.",
    ]
    judged = {key(one) for one in done}
    for name in dict.fromkeys(key(one) for one in everything):
        test = caught.get(name) or (before.get(name) if name not in judged else None)
        if test:
            lines += ["", name, f"    {test}"]
    file.write_text("\n".join(lines) + "\n")


def report(done, everything, reasons, into):
    """Writes and prints the table. Returns the exit code: 1 if a survivor is not explained."""
    survivors = [one for one in done if not one["caught_by"]]
    unexplained = [one for one in survivors if key(one) not in reasons]
    lines = [
        "| text | mutants | judged | caught | equivalent | survive | undecided |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]

    def row(name, mutants, all_mutants):
        alive = [one for one in mutants if not one["caught_by"]]
        known = sum(key(one) in reasons for one in alive)
        untried = sum(bool(one.get("untried")) and key(one) not in reasons for one in alive)
        lines.append(
            f"| {name} | {len(all_mutants)} | {len(mutants)} | {len(mutants) - len(alive)} "
            f"| {known} | {len(alive) - known - untried} | {untried} |"
        )

    for file in sorted({one["file"] for one in everything}):
        row(f"`{file}`", *([one for one in those if one["file"] == file] for those in (done, everything)))
    row("**all**", done, everything)
    lines.append("")
    for one in sorted(survivors, key=lambda one: (one["file"], one["number"])):
        untried = f" ({one['untried']} tests not run)" if one.get("untried") else ""
        reason = reasons.get(key(one), f"Not explained{untried}.")
        lines.append(f"- `{one['file']}`: `{one['line']}`: {one['what']}. {reason}")
    into.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 1 if unexplained else 0
