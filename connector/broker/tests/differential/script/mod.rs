//! The script: every request in order, the same for both brokers.

mod admin;
mod data;
mod group_offsets;
mod lag;
mod membership;
mod offset_requests;
mod offsets;
mod requests;
mod sharing;
mod transactions;

use kafka_protocol::messages::FindCoordinatorRequest;

use crate::play::{Play, Step};
use requests::text;

/// Plays everything and gives the transcript.
pub(crate) async fn play(mut play: Play) -> Vec<Step> {
    let p = &mut play;
    wake_coordinators(p).await;
    data::play(p).await;
    transactions::play(p).await;
    membership::play(p).await;
    sharing::play(p).await;
    offsets::play(p).await;
    lag::play(p).await;
    group_offsets::play(p).await;
    admin::play(p).await;
    play.transcript()
}

/// Kafka makes its internal topics when somebody first asks for a coordinator.
async fn wake_coordinators(p: &mut Play) {
    for key_type in [0, 1] {
        let key = text(&p.name("nobody"));
        let request =
            FindCoordinatorRequest::default().with_key_type(key_type).with_coordinator_keys(vec![key]);
        p.quietly_until(&request, 6, |_| true).await;
    }
}
