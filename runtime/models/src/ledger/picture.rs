//! A state in words, for the end of a counterexample.

use std::fmt;

use super::ids::{ClaimId, ReplicaId};
use super::state::{Entry, Seen, State};

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log:")?;
        for position in 0..self.log.end {
            match self.log.at(position) {
                Entry::Claim(claim) => write!(f, " [{claim:?} of {:?}]", self.claim(claim).records)?,
                Entry::Marker { claim, committed: true } => write!(f, " [{claim:?} committed]")?,
                Entry::Marker { claim, .. } => write!(f, " [{claim:?} aborted]")?,
                Entry::Floor { end, generation: 0 } => write!(f, " [floor {end}]")?,
                Entry::Floor { end, generation } => write!(f, " [floor {end} of generation {generation}]")?,
                Entry::Tombstone(claim) => write!(f, " [tombstone of {claim:?}]")?,
                other => write!(f, " [{other:?}]")?,
            }
        }
        write!(f, "; claims:")?;
        for (id, claim) in self.each_claim() {
            write!(f, " {} {:?} {:?}", id.0, claim.records, claim.fate)?;
        }
        for (number, replica) in self.replicas.iter().enumerate() {
            let tail = &replica.tail;
            if tail.position == 0 {
                continue;
            }
            write!(f, "; {:?} has read to {}, floor {}", ReplicaId(number as u8), tail.position, tail.floor)?;
            let known = tail.seen.iter().enumerate().filter(|(_, seen)| **seen != Seen::Unread);
            for (claim, seen) in known {
                write!(f, ", {:?} {seen:?}", ClaimId(claim as u8))?;
            }
        }
        write!(f, "; acknowledged {:?}", self.group.acknowledged)
    }
}
