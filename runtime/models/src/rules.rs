//! The rules of ledger mode and of the roll-out, each of which can be left out.
//!
//! Numbers 1 to 13 and F1 to F7 are those of the protocol's rule list; letters split a rule that has several
//! parts. R rules belong to the replay generation, M rules to the mode record.

/// A rule that a configuration may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// 1: a replica reads the log up to its own claim before it decides.
    ReadOwnPosition,
    /// 2: an earlier open claim that overlaps is waited for.
    RespectOpenClaims,
    /// 3: an earlier committed claim that overlaps means abort.
    AbortOnCommittedClaim,
    /// 4: another's transaction is ended before it is presumed dead.
    EndBeforePresumingDead,
    /// 5: success of InitProducerId says that the transaction is over, not that it was aborted.
    MarkerTellsOutcome,
    /// 6: earlier claims of the own transactional id count like anyone's.
    OwnEarlierClaimsCount,
    /// 7: a restarted replica reads the log from its start.
    ReadFromStart,
    /// 8: nothing is acknowledged on a lost EndTxn answer.
    NoAckOnLostAnswer,
    /// 9a: a floor is raised over a prefix of decided records only.
    FloorOverPrefix,
    /// 9b: a floor is never raised over an open claim.
    FloorNotOverOpen,
    /// 10a: a claim is tombstoned only after a floor that covers it was read back.
    TombstoneAfterFloor,
    /// 10b: a claim is tombstoned only when the floor covers all of it.
    TombstoneWhollyCovered,
    /// 10c: the floor is consulted like a committed claim of everything below it.
    ConsultFloor,
    /// 11: the key of a claim is never used again.
    UniqueKeys,
    /// 12: a replica reads past its own position. Needed only where compaction may pass the last stable
    /// offset.
    ReadPastOwnPosition,
    /// 13: anyone may end the transaction of a dead owner.
    EndDeadOwners,
    /// F1a: the key of a floor holds its value.
    FloorValueInKey,
    /// F1b: the floor is the highest that was read, not the last.
    FloorIsMaximum,
    /// F1c: a lower floor is tombstoned only after a higher one was read back.
    LowerFloorStays,
    /// F2: a replica reads until a response ends at its own high watermark, not up to one that was fixed
    /// before.
    ReadUntilCaughtUp,
    /// F3: the newest claim of a transactional id stays in the log.
    NewestClaimStays,
    /// F4: recovery fences the transactional id that the pending manifest names, not only its own.
    FenceManifestOwner,
    /// F5a: a transaction has exactly one claim record.
    OneClaimRecord,
    /// F5b: claims of one replica are produced in the order of its checkpoints.
    ClaimInOrder,
    /// F5c: an abort of checkpoint `n` aborts `n + 1` before `n` is claimed again.
    AbortCascades,
    /// F6a: a transactional replica arbitrates until every ledger claim below the mode record has its marker.
    ArbitrateUntilResolved,
    /// F6b: and until the start offset has passed those that committed.
    ArbitrateUntilPassed,
    /// F6c: and until it has been caught up beyond the mode record, with the start offset at or above the
    /// floor.
    ArbitrateUntilCaughtUp,
    /// F7: a replica that passed the last stable offset without the marker of a claim below it reads from the
    /// start.
    RebuildView,
    /// R1: claims and floors carry their generation, and older ones are not consulted.
    GenerationsApart,
    /// R2: a claim whose generation is not the newest that its replica has read aborts.
    AbortOlderGeneration,
    /// R3: the generation record is written before the group's offsets are reset.
    GenerationBeforeOffsets,
    /// R4: a member reads until caught up after it has joined, before it drops anything as decided.
    CatchUpAfterJoining,
    /// R5: the offsets are reset only while the group is empty.
    ResetEmptyGroup,
    /// R6: nobody raises a floor between a generation record and the record that says that the offsets were
    /// reset.
    WaitForReset,
    /// M1: a ledger replica aborts when a `transactional` mode record lies below its claim.
    LedgerObeysMode,
    /// M2: the way back to ledger mode is taken only when every transactional replica is stopped.
    StopBeforeWayBack,
}

impl Rule {
    /// Every rule, in the order of the documentation.
    pub const ALL: [Rule; 37] = [
        Rule::ReadOwnPosition,
        Rule::RespectOpenClaims,
        Rule::AbortOnCommittedClaim,
        Rule::EndBeforePresumingDead,
        Rule::MarkerTellsOutcome,
        Rule::OwnEarlierClaimsCount,
        Rule::ReadFromStart,
        Rule::NoAckOnLostAnswer,
        Rule::FloorOverPrefix,
        Rule::FloorNotOverOpen,
        Rule::TombstoneAfterFloor,
        Rule::TombstoneWhollyCovered,
        Rule::ConsultFloor,
        Rule::UniqueKeys,
        Rule::ReadPastOwnPosition,
        Rule::EndDeadOwners,
        Rule::FloorValueInKey,
        Rule::FloorIsMaximum,
        Rule::LowerFloorStays,
        Rule::ReadUntilCaughtUp,
        Rule::NewestClaimStays,
        Rule::FenceManifestOwner,
        Rule::OneClaimRecord,
        Rule::ClaimInOrder,
        Rule::AbortCascades,
        Rule::ArbitrateUntilResolved,
        Rule::ArbitrateUntilPassed,
        Rule::ArbitrateUntilCaughtUp,
        Rule::RebuildView,
        Rule::GenerationsApart,
        Rule::AbortOlderGeneration,
        Rule::GenerationBeforeOffsets,
        Rule::CatchUpAfterJoining,
        Rule::ResetEmptyGroup,
        Rule::WaitForReset,
        Rule::LedgerObeysMode,
        Rule::StopBeforeWayBack,
    ];

    /// Number and short text, as tables show it.
    pub fn name(self) -> &'static str {
        match self {
            Rule::ReadOwnPosition => "1 read up to the own claim",
            Rule::RespectOpenClaims => "2 respect open claims",
            Rule::AbortOnCommittedClaim => "3 abort on a committed claim",
            Rule::EndBeforePresumingDead => "4 end before presuming dead",
            Rule::MarkerTellsOutcome => "5 only the marker tells",
            Rule::OwnEarlierClaimsCount => "6 own earlier claims count",
            Rule::ReadFromStart => "7 read from the start",
            Rule::NoAckOnLostAnswer => "8 no ack on a lost answer",
            Rule::FloorOverPrefix => "9a floor over a prefix",
            Rule::FloorNotOverOpen => "9b floor not over open claims",
            Rule::TombstoneAfterFloor => "10a tombstone after the floor",
            Rule::TombstoneWhollyCovered => "10b tombstone wholly covered claims",
            Rule::ConsultFloor => "10c consult the floor",
            Rule::UniqueKeys => "11 unique keys",
            Rule::ReadPastOwnPosition => "12 read past the own claim",
            Rule::EndDeadOwners => "13 end dead owners",
            Rule::FloorValueInKey => "F1a floor value in the key",
            Rule::FloorIsMaximum => "F1b floor is the maximum",
            Rule::LowerFloorStays => "F1c lower floor stays",
            Rule::ReadUntilCaughtUp => "F2 read until caught up",
            Rule::NewestClaimStays => "F3 newest claim stays",
            Rule::FenceManifestOwner => "F4 fence the manifest's id",
            Rule::OneClaimRecord => "F5a one claim record",
            Rule::ClaimInOrder => "F5b claim in order",
            Rule::AbortCascades => "F5c abort cascades",
            Rule::ArbitrateUntilResolved => "F6a arbitrate until resolved",
            Rule::ArbitrateUntilPassed => "F6b arbitrate until passed",
            Rule::ArbitrateUntilCaughtUp => "F6c arbitrate until caught up",
            Rule::RebuildView => "F7 rebuild the view",
            Rule::GenerationsApart => "R1 generations apart",
            Rule::AbortOlderGeneration => "R2 abort older generations",
            Rule::GenerationBeforeOffsets => "R3 generation before offsets",
            Rule::CatchUpAfterJoining => "R4 catch up after joining",
            Rule::ResetEmptyGroup => "R5 reset an empty group",
            Rule::WaitForReset => "R6 wait for the reset",
            Rule::LedgerObeysMode => "M1 ledger obeys the mode record",
            Rule::StopBeforeWayBack => "M2 stop before the way back",
        }
    }
}

/// The rules that a configuration keeps; by default all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    left_out: u64,
}

impl Rules {
    /// Every rule is kept.
    pub const ALL: Rules = Rules { left_out: 0 };

    /// These rules without one more.
    pub const fn without(self, rule: Rule) -> Rules {
        Rules { left_out: self.left_out | 1 << rule as u32 }
    }

    /// Whether `rule` is kept.
    pub const fn keep(self, rule: Rule) -> bool {
        self.left_out & (1 << rule as u32) == 0
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules::ALL
    }
}
