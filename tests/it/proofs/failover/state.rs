//! A state of the model: an old and a new primary, Postgres, a server and a worker.

/// Votes of the server as a set of bits.
pub(super) type Votes = u8;

/// The votes, in the order in which they are stored.
pub(super) const VOTES: usize = 2;

/// One of the two Redises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Primary {
    Old,
    New,
}

/// An entry into an epoch: in the new primary's key `epoch`, or as Postgres knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Entry {
    /// Into the epoch that the old primary had. The new one has copied the key.
    Old,
    /// A mark: the worker is entering an epoch of the new primary.
    Mark,
    /// Into the new primary's epoch, with the token `moved` that it had.
    New(Moved),
}

/// The token of the last server that came from the old primary; 0: none.
pub(super) type Moved = u8;

/// A vote's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Vote {
    Before,
    /// Its row is committed.
    Stored,
    /// The call that counts it is under way to this primary.
    Called(Primary),
    /// The call got no answer. Its batch has ended, with a suspect, and the call may still run.
    Late(Primary),
    /// It is counted, or its item is suspect, or was and is invalidated.
    Done,
}

/// The server's circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Breaker {
    /// The repair task's connection leads to this primary. All that votes are counted over were made later.
    Closed(Primary),
    Open,
}

/// What the server's repair task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Repair {
    Look,
    /// It has a connection to this primary, and tells workers of it if it is another one.
    Tell(Primary),
    /// It invalidates suspects there, and closes the circuit breaker once there are none.
    Close(Primary),
}

/// What the server's look has found: `tally::live::Place`, without those that note the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Here,
    Elsewhere,
    EnteringElsewhere,
    Behind,
    Unknown,
}

/// What the server does next to note how far its votes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Note {
    Begin,
    /// Waits for the batches of these votes.
    Wait(Votes),
    /// Has looked meanwhile.
    Meanwhile(Votes, Place),
    /// Reads the last entry from Postgres.
    Read(Votes),
    /// Asks its Redis for this entry.
    Look(Votes, Entry),
    /// Acts on what it has found.
    Act(Votes, Place),
    /// Notes these votes as counted.
    Store(Votes),
}

/// What the worker that follows the failover does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Worker {
    Compare,
    /// Notes in Postgres that it enters the epoch with this token.
    NoteMark(Moved),
    Invalidate(Moved),
    /// Sets `epoch` in Redis.
    Enter(Moved),
    /// Commits the entry in Postgres.
    Commit(Moved),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// Rows in Postgres.
    pub stored: Votes,
    pub votes: [Vote; VOTES],
    /// The item's live count in the old primary; `None`: it has no counter.
    pub old: Option<Votes>,
    /// The same in the new one.
    pub new: Option<Votes>,
    pub is_promoted: bool,
    /// The new primary's key `epoch`.
    pub entered: Option<Entry>,
    /// Its key `moved`.
    pub moved: Moved,
    /// The last entry that Postgres knows.
    pub known: Entry,
    pub worker: Worker,
    pub breaker: Breaker,
    pub repair: Repair,
    /// Whether new connections of the server lead to the new primary.
    pub has_heard: bool,
    /// The primary in which the server counted last.
    pub closed_at: Primary,
    pub is_suspect: bool,
    pub note: Note,
    /// How many looks in a row found the counts elsewhere.
    pub elsewhere_looks: u8,
    pub were_elsewhere: bool,
    /// Votes up to here are noted as counted.
    pub noted: Votes,
    /// Votes whose connections are left to crashed-writer recovery.
    pub left: Votes,
    pub is_dead: bool,
    /// How often connections may still be cut.
    pub cuts: u8,
    /// How often looks read a finished entry into the new primary's epoch while the server counted in the old one.
    pub late_looks: u8,
}

impl State {
    pub fn count(&mut self, primary: Primary) -> &mut Option<Votes> {
        match primary {
            Primary::Old => &mut self.old,
            Primary::New => &mut self.new,
        }
    }

    /// Where new connections of the server lead.
    pub fn leads(&self) -> Primary {
        if self.has_heard {
            Primary::New
        } else {
            Primary::Old
        }
    }

    /// Whether a look with this outcome would change nothing.
    pub fn is_same_look(&self, place: Place) -> bool {
        place == Place::Here && self.elsewhere_looks == 0
    }

    /// Whether all batches of these votes have ended.
    pub fn have_ended(&self, votes: Votes) -> bool {
        let mut of = (0..VOTES).filter(|at| votes & (1 << at) != 0);
        of.all(|at| matches!(self.votes[at], Vote::Done | Vote::Late(_)))
    }
}
