//! What kind of fault a fault is.

use super::{Fault, Moment};

impl Fault {
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Fault::Weather { .. }
            | Fault::Cut { .. }
            | Fault::CutNodes { .. }
            | Fault::CutPart { .. }
            | Fault::PauseNode { .. }
            | Fault::KillNode { .. }
            | Fault::StepClock { .. }
            | Fault::Store { .. }
            | Fault::Silence { .. }
            | Fault::LoseAnswer { .. }
            | Fault::LoseRequest { .. }
            | Fault::Mute { .. } => true,
            Fault::Reset { .. }
            | Fault::ResetNode { .. }
            | Fault::PauseWorker { .. }
            | Fault::KillPart { .. }
            | Fault::StopPart { .. }
            | Fault::PausePart { .. }
            | Fault::KillWorker { .. }
            | Fault::KillWorkerAt { .. }
            | Fault::Zombie { .. }
            | Fault::StopWorker { .. }
            | Fault::Join { .. }
            | Fault::MoveLeader { .. }
            | Fault::ResumeWorker { .. }
            | Fault::RollOut { .. }
            | Fault::ResetGroup
            | Fault::When { .. } => false,
        }
    }

    /// Its kind, for counts.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Weather { .. } => "weather",
            Fault::Reset { .. } => "reset",
            Fault::ResetNode { .. } => "reset-node",
            Fault::Cut { .. } => "cut",
            Fault::CutNodes { .. } => "cut-nodes",
            Fault::PauseWorker { .. } => "pause-worker",
            Fault::PauseNode { .. } => "pause-node",
            Fault::KillWorker { power: false, .. } => "kill-worker",
            Fault::KillWorker { power: true, .. } => "power-off-worker",
            Fault::KillWorkerAt { .. } => "kill-worker-at",
            Fault::Zombie { .. } => "zombie",
            Fault::StopWorker { .. } => "stop-worker",
            Fault::LoseAnswer { .. } => "lose-answer",
            Fault::LoseRequest { .. } => "lose-request",
            Fault::Mute { .. } => "mute",
            Fault::Join { .. } => "join",
            Fault::KillNode { .. } => "kill-node",
            Fault::MoveLeader { .. } => "move-leader",
            Fault::StepClock { .. } => "step-clock",
            Fault::Store { .. } => "store",
            Fault::ResumeWorker { .. } => "resume-worker",
            Fault::RollOut { .. } => "roll-out",
            Fault::ResetGroup => "reset-group",
            Fault::Silence { .. } => "silence",
            Fault::KillPart { power: false, .. } => "kill-part",
            Fault::KillPart { power: true, .. } => "power-off-part",
            Fault::StopPart { .. } => "stop-part",
            Fault::PausePart { is_replaced: false, .. } => "pause-part",
            Fault::PausePart { is_replaced: true, .. } => "replace-part",
            Fault::CutPart { .. } => "cut-part",
            Fault::When { moment: Moment::Step { .. }, .. } => "at-step",
            Fault::When { .. } => "at-request",
        }
    }
}
