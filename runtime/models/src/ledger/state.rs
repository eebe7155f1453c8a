//! What there is: the log, the claims, the transaction coordinator, the replicas, the share group.

use super::ids::{
    CLAIMS_MAX, ClaimId, IDS_MAX, RECORDS_MAX, REPLICAS_MAX, Records, ReplicaId, TransactionalId,
};

/// Positions of the outcome partition. A step that would write beyond is not taken.
pub const LOG_MAX: usize = 16;

/// The whole world.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    /// The outcome partition: the arbiter.
    pub log: Log,
    /// Every claim that was produced, in the order of the log.
    pub claims: [Claim; CLAIMS_MAX],
    /// How many there are.
    pub claim_count: u8,
    /// The transaction coordinator's state, by transactional id.
    pub transactions: [Transaction; IDS_MAX],
    /// The replicas.
    pub replicas: [Replica; REPLICAS_MAX],
    /// The share group.
    pub group: Group,
    /// How far the reset of the group is.
    pub reset: Reset,
    /// End of the log when the reset began: effects from there on belong to the replay.
    pub replay_from: u8,
    /// A record was acknowledged that has no committed effect.
    pub acknowledged_without_effect: bool,
    /// A recovery took a committed manifest for one that never happened, or the reverse.
    pub recovered_wrongly: bool,
    /// Crashes so far.
    pub crashes: u8,
    /// Fences of living owners so far.
    pub fences: u8,
    /// Stops of transactional replicas so far.
    pub stops: u8,
}

/// The outcome partition. Everything below `end` is there, data and control batches alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Log {
    entries: [Entry; LOG_MAX],
    /// The high watermark.
    pub end: u8,
}

/// One position of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Beyond the end.
    Nothing,
    /// Removed by the cleaner.
    Hole,
    /// An outcome record.
    Claim(ClaimId),
    /// The control batch that ends a claim's transaction.
    Marker {
        /// Whose.
        claim: ClaimId,
        /// Whether it is a commit marker.
        committed: bool,
    },
    /// Everything below `end` is decided, in this generation.
    Floor {
        /// Everything below is decided.
        end: u8,
        /// In this generation.
        generation: u8,
    },
    /// A null value under the key of a claim.
    Tombstone(ClaimId),
    /// The group is in transactional mode from here on.
    TransactionalMode,
    /// The group is in ledger mode again.
    LedgerModeAgain,
    /// A replay generation begins; the offsets are not reset yet.
    Generation,
    /// The offsets are reset.
    GenerationReady,
}

impl Log {
    /// The entry at a position below `end`.
    pub fn at(&self, position: u8) -> Entry {
        self.entries[position as usize]
    }

    /// Appends; `None` when the model's log is full.
    pub fn append(&mut self, entry: Entry) -> Option<u8> {
        let position = self.end;
        *self.entries.get_mut(position as usize)? = entry;
        self.end += 1;
        Some(position)
    }

    /// Removes an entry, as the cleaner does.
    pub fn clear(&mut self, position: u8) {
        self.entries[position as usize] = Entry::Hole;
    }

    /// Whether an entry within `from..to` satisfies `wanted`.
    pub fn any(&self, from: u8, to: u8, mut wanted: impl FnMut(Entry) -> bool) -> bool {
        (from..to).any(|position| wanted(self.at(position)))
    }

    /// How many entries satisfy `wanted`.
    pub fn count(&self, wanted: impl Fn(Entry) -> bool) -> u8 {
        (0..self.end).filter(|position| wanted(self.at(*position))).count() as u8
    }
}

/// A claim and its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The records that it claims.
    pub records: Records,
    /// Under which transactional id.
    pub id: TransactionalId,
    /// Whether a transactional replica made it, which stages its acknowledgements.
    pub transactional: bool,
    /// The generation that its replica knew.
    pub generation: u8,
    /// Its position in the log.
    pub position: u8,
    /// What the transaction coordinator decided.
    pub fate: Fate,
    /// Whether an EndTxn(COMMIT) is under way to the coordinator.
    pub commit_in_flight: bool,
    /// Whether its marker is in the log.
    pub marked: bool,
}

/// The coordinator's decision on a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// None yet.
    Open,
    /// Its effects are final.
    Committed,
    /// Its effects never happened.
    Aborted,
}

/// The coordinator's state of one transactional id.
///
/// empty --claim--> ongoing --EndTxn--> prepare_commit --marker--> empty
///                     \--abort, fence, time-out--> prepare_abort --marker--> empty
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transaction {
    /// Empty or completed.
    Empty,
    /// Open.
    Ongoing(ClaimId),
    /// Decided; the marker is not written yet.
    Prepared {
        /// Whose.
        claim: ClaimId,
        /// Whether the decision is commit.
        commit: bool,
    },
}

/// A replica of the job: one process with one transactional id and one tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    /// Its transactional id.
    pub id: TransactionalId,
    /// Whether it came back under a new id once.
    pub has_new_id: bool,
    /// Whether its producer epoch is the newest of its id.
    pub epoch_is_current: bool,
    /// What it is doing.
    pub phase: Phase,
    /// How far it must have read before it may decide on its claim.
    pub reading: Reading,
    /// What it knows of the log.
    pub tail: Tail,
    /// Its pending manifest.
    pub manifest: Manifest,
    /// Its membership of the share group.
    pub membership: Membership,
}

/// What a replica is doing.
///
/// initialising --InitProducerId--> idle --claim--> claimed --EndTxn--> committing --answer--> idle
///        ^----------- fenced, crash, lost answer -----'----------------'
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not running.
    Stopped,
    /// Needs a producer epoch.
    Initialising,
    /// Has no transaction.
    Idle,
    /// Waits for its turn, or decides to abort.
    Claimed(ClaimId),
    /// Has sent EndTxn(COMMIT) and waits for the answer.
    Committing(ClaimId),
}

/// How far a claiming replica has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// Not yet up to its own claim.
    BelowClaim,
    /// Beyond its own claim, and on to this end (only where the end is fixed: rule F2 left out).
    Until(u8),
    /// Beyond its own claim, not caught up.
    UntilCaughtUp,
    /// Far enough to decide.
    Done,
}

/// A replica's knowledge, rebuilt from the log after each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tail {
    /// The next position to read.
    pub position: u8,
    /// What was read of each claim.
    pub seen: [Seen; CLAIMS_MAX],
    /// Everything below is decided.
    pub floor: u8,
    /// The generation that was read last.
    pub generation: u8,
    /// Whether that generation's offsets are known to be reset.
    pub generation_ready: bool,
    /// Position of the record that made the group transactional.
    pub transactional_since: Option<u8>,
    /// Position of the record that made it ledger again.
    pub ledger_again_since: Option<u8>,
    /// Whether the replica was caught up at some time after it had read the mode record.
    pub caught_up_beyond_mode: bool,
}

impl Tail {
    /// Nothing read yet.
    pub const START: Tail = Tail {
        position: 0,
        seen: [Seen::Unread; CLAIMS_MAX],
        floor: 0,
        generation: 0,
        generation_ready: true,
        transactional_since: None,
        ledger_again_since: None,
        caught_up_beyond_mode: false,
    };
}

/// What a replica has read of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// Nothing.
    Unread,
    /// The claim, not its marker.
    Open,
    /// The claim and a commit marker.
    Committed,
    /// The claim and an abort marker; or it is presumed so, where a rule is left out.
    Aborted,
}

/// A manifest in the checkpoint store; it survives crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Manifest {
    /// None that is pending.
    None,
    /// Written before the claim, which it names together with the claim's transactional id.
    Pending(ClaimId),
    /// Recovery has fenced that id.
    OwnerFenced(ClaimId),
    /// Recovery has fenced all ids and must read on.
    ReadUntil {
        /// Whose.
        claim: ClaimId,
        /// Up to here, the high watermark after the last success.
        end: u8,
    },
}

impl Manifest {
    /// The claim that it names.
    pub fn claim(self) -> Option<ClaimId> {
        match self {
            Manifest::None => None,
            Manifest::Pending(claim) | Manifest::OwnerFenced(claim) | Manifest::ReadUntil { claim, .. } => {
                Some(claim)
            }
        }
    }
}

/// Membership of the share group, as far as the reset of its offsets matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Membership {
    /// Not a member: acknowledgements fail.
    Outside,
    /// Joined, and must read up to this end before it drops deliveries as decided.
    Joining {
        /// End of the log when it joined.
        until: u8,
    },
    /// A member.
    Member,
}

/// The share group's state of the records. An adversary: whatever it says, any record may be handed to
/// anyone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// Acknowledged for good.
    pub acknowledged: Records,
    /// Archived by the broker for its own reasons.
    pub archived: Records,
    /// The transactional claim that has staged an acknowledgement of the record.
    pub staged: [Option<ClaimId>; RECORDS_MAX],
}

impl Group {
    /// Acknowledged or archived.
    pub fn finished(&self) -> Records {
        self.acknowledged.and(self.archived)
    }

    /// Records with a staged acknowledgement.
    pub fn pending(&self) -> Records {
        let staged = (0..RECORDS_MAX).filter(|record| self.staged[*record].is_some());
        staged.fold(Records::NONE, |all, record| all.and(Records::one(record as u8)))
    }
}

/// How far `group reset` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reset {
    /// Not begun.
    NotBegun,
    /// The generation record is written.
    GenerationWritten,
    /// The offsets are reset, before the generation record (rule R3 left out).
    OffsetsFirst,
    /// The offsets are reset.
    OffsetsReset,
    /// The record that says so is written.
    Done,
}

impl Reset {
    /// Whether the group hands out the records once more.
    pub fn replays(self) -> bool {
        match self {
            Reset::NotBegun | Reset::GenerationWritten => false,
            Reset::OffsetsFirst | Reset::OffsetsReset | Reset::Done => true,
        }
    }
}

impl State {
    /// Nothing has happened yet.
    pub fn new() -> State {
        let claim = Claim {
            records: Records::NONE,
            id: TransactionalId(0),
            transactional: false,
            generation: 0,
            position: 0,
            fate: Fate::Open,
            commit_in_flight: false,
            marked: false,
        };
        let replica = |number: usize| Replica {
            id: TransactionalId(number as u8),
            has_new_id: false,
            epoch_is_current: false,
            phase: Phase::Stopped,
            reading: Reading::BelowClaim,
            tail: Tail::START,
            manifest: Manifest::None,
            membership: Membership::Member,
        };
        State {
            log: Log { entries: [Entry::Nothing; LOG_MAX], end: 0 },
            claims: [claim; CLAIMS_MAX],
            claim_count: 0,
            transactions: [Transaction::Empty; IDS_MAX],
            replicas: [replica(0), replica(1), replica(2)],
            group: Group {
                acknowledged: Records::NONE,
                archived: Records::NONE,
                staged: [None; RECORDS_MAX],
            },
            reset: Reset::NotBegun,
            replay_from: 0,
            acknowledged_without_effect: false,
            recovered_wrongly: false,
            crashes: 0,
            fences: 0,
            stops: 0,
        }
    }

    /// Every claim with its number.
    pub fn each_claim(&self) -> impl Iterator<Item = (ClaimId, &Claim)> {
        self.claims[..self.claim_count as usize]
            .iter()
            .enumerate()
            .map(|(number, claim)| (ClaimId(number as u8), claim))
    }

    /// The claim with this number.
    pub fn claim(&self, id: ClaimId) -> &Claim {
        &self.claims[id.0 as usize]
    }

    /// The claim with this number.
    pub fn claim_mut(&mut self, id: ClaimId) -> &mut Claim {
        &mut self.claims[id.0 as usize]
    }

    /// The replica with this number.
    pub fn replica(&self, id: ReplicaId) -> &Replica {
        &self.replicas[id.0 as usize]
    }

    /// The replica with this number.
    pub fn replica_mut(&mut self, id: ReplicaId) -> &mut Replica {
        &mut self.replicas[id.0 as usize]
    }

    /// The coordinator's state of a transactional id.
    pub fn transaction(&self, id: TransactionalId) -> Transaction {
        self.transactions[id.0 as usize]
    }

    /// The last stable offset: the first position of a transaction that has no marker.
    pub fn last_stable_offset(&self) -> u8 {
        let open = self.each_claim().filter(|(_, claim)| !claim.marked);
        open.map(|(_, claim)| claim.position).min().unwrap_or(self.log.end)
    }

    /// The generation in force at a position of the log.
    pub fn generation_at(&self, position: u8) -> u8 {
        u8::from(self.log.any(0, position, |entry| entry == Entry::Generation))
    }

    /// Records with a committed effect, of those claims that satisfy `counts`.
    pub fn committed(&self, counts: impl Fn(&Claim) -> bool) -> Records {
        let committed = self.each_claim().filter(|(_, claim)| claim.fate == Fate::Committed && counts(claim));
        committed.fold(Records::NONE, |all, (_, claim)| all.and(claim.records))
    }

    /// Records that may be acknowledged now: those with a committed effect since the offsets were last reset.
    pub fn effects_of_this_replay(&self) -> Records {
        self.committed(|claim| !self.reset.replays() || claim.position >= self.replay_from)
    }

    /// The share-partition start offset: everything below is acknowledged or archived.
    pub fn start_offset(&self) -> u8 {
        self.group.finished().prefix(RECORDS_MAX as u8)
    }

    /// Whether a living replica owns this open claim.
    pub fn has_owner(&self, id: ClaimId) -> bool {
        self.replicas.iter().any(|replica| match replica.phase {
            Phase::Claimed(claim) => claim == id && replica.epoch_is_current,
            Phase::Committing(claim) => claim == id,
            Phase::Stopped | Phase::Initialising | Phase::Idle => false,
        })
    }
}

impl Default for State {
    fn default() -> Self {
        State::new()
    }
}
