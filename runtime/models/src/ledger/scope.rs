//! How much of the world a configuration has: bounds of the state space, and which adversaries take part.

/// Bounds and environment of one configuration. Rules are apart, in [`Rules`](crate::rules::Rules).
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Replicas of the job, at most three.
    pub replicas: u8,
    /// Source records, at offsets 0, 1, 2.
    pub records: u8,
    /// Claims that may be produced in all; each is one transaction.
    pub claims: u8,
    /// Whether a claim may hold several records.
    pub wide_claims: bool,
    /// Crashes in all. A crashed replica comes back with an empty memory.
    pub crashes: u8,
    /// Whether a crashed replica may come back under another transactional id.
    pub new_ids: bool,
    /// Fences or time-outs that may hit the open transaction of a living owner.
    pub fences: u8,
    /// Whether replicas abort only when they must and get an answer to every EndTxn. Fewer states; for
    /// configurations that look for a counterexample which needs no such fault.
    pub patient: bool,
    /// Whether replicas A and B share one transactional id: one of them is always a zombie.
    pub zombie_pair: bool,
    /// Whether the acknowledged set is followed. Off, acknowledgements are judged, but leave no trace.
    pub acks: bool,
    /// Whether the broker may archive any record at any time (delivery limit, retention).
    pub archiving: bool,
    /// What removes entries from the log.
    pub compaction: Compaction,
    /// Whether compaction also removes aborted claims, and the markers and tombstones of claims that are
    /// gone.
    pub cleans_leftovers: bool,
    /// Floor records in all.
    pub floors: u8,
    /// Tombstones of claims in all.
    pub tombstones: u8,
    /// Which replicas raise floors and write tombstones: bit `n` for replica `n`.
    pub keepers: u8,
    /// Whether a floor may also follow the share-partition start offset, not only committed claims.
    pub floor_follows_start_offset: bool,
    /// Whether each claim has a pending manifest in the checkpoint store that recovery must judge.
    pub manifests: bool,
    /// Whether recovery also believes "below the floor, so it committed". Only to show that it must not.
    pub recovery_trusts_floor: bool,
    /// Whether the group is reset once, which opens a replay generation.
    pub reset: bool,
    /// Which replicas are transactional: bit `n` for replica `n`. The others are in ledger mode.
    pub transactional: u8,
    /// How often the mode of the group changes: 0, 1 (to transactional), 2 (and back).
    pub mode_changes: u8,
    /// How often a transactional replica may be stopped and started again.
    pub stops: u8,
    /// Whether a replica without a claim reads on. Needed where its knowledge matters before it claims.
    pub idle_reads: bool,
    /// Whether records are interchangeable, so that states which differ only by their names are taken for
    /// one.
    pub symmetric_records: bool,
    /// Whether a state without any open or possible claim has no successors. Sound for double effects only.
    pub ends_when_settled: bool,
}

/// What the log cleaner may do. It works entry by entry, at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// Nothing is removed.
    Off,
    /// As in Apache Kafka: never at or beyond the last stable offset, and what supersedes must lie below it,
    /// too.
    Kafka,
    /// Anywhere: weaker than any real cleaner.
    Anywhere,
}

impl Scope {
    /// Two replicas, two records, three claims of any records; nothing fails, nothing is compacted.
    pub const SMALL: Scope = Scope {
        replicas: 2,
        records: 2,
        claims: 3,
        wide_claims: true,
        crashes: 0,
        new_ids: true,
        fences: 0,
        patient: false,
        zombie_pair: false,
        acks: false,
        archiving: false,
        compaction: Compaction::Off,
        cleans_leftovers: false,
        floors: 0,
        tombstones: 0,
        keepers: 0b111,
        floor_follows_start_offset: false,
        manifests: false,
        recovery_trusts_floor: false,
        reset: false,
        transactional: 0,
        mode_changes: 0,
        stops: 0,
        idle_reads: false,
        symmetric_records: false,
        ends_when_settled: true,
    };

    /// Whether `replica` is a transactional one.
    pub fn is_transactional(&self, replica: usize) -> bool {
        self.transactional >> replica & 1 == 1
    }

    /// Whether replicas without a claim read on.
    pub fn reads_when_idle(&self) -> bool {
        self.idle_reads
            || self.compaction != Compaction::Off
            || self.floors > 0
            || self.transactional != 0
            || self.manifests
            || self.reset
    }
}
