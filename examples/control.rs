//! A running job from outside: watch it, ask for a checkpoint now, let it end.
//!
//! `cargo run -p sharestream-examples --example control`

use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use sharestream_base::Env;
use sharestream_core::{ErrorKind, JobControl, JobEnd, JobState};
use sharestream_examples::{OUTPUT, World};
use sharestream_kafka::Pipeline;

/// Prints each state that the job goes through, to its end.
async fn watch(control: &JobControl) -> Vec<JobState> {
    let mut states = Vec::new();
    let mut statuses = control.status_stream();
    while let Some(status) = statuses.next().await {
        if states.last() != Some(&status.state) {
            println!("{:?}: {} records in {} commits", status.state, status.records_in, status.commits);
            states.push(status.state);
        }
    }
    states
}

#[tokio::main]
async fn main() -> Result<()> {
    let world = World::start().await?;
    world.order((0..2_000).map(|n| format!("ann,{n}"))).await?;

    let control = JobControl::new();
    let job = Pipeline::new(world.config("control"))
        // Left to itself, the job commits when it has caught up, or after a second.
        .options(|options| options.with_latency_goal(Duration::from_secs(1)))
        .run(Env::system(), control.clone());
    let operate = async {
        world.wait_for(OUTPUT, 1).await?;
        world.order((0..10).map(|n| format!("bob,{n}"))).await?;
        let clock = Env::system().clock;
        while control.snapshot().records_in + control.snapshot().in_flight < 2_010 {
            clock.sleep(Duration::from_millis(5)).await;
        }
        // Whatever the job had taken before the call is committed now.
        let checkpoint = control.checkpoint().await?;
        let output = world.wait_for(OUTPUT, 2_010).await?;
        println!("checkpoint {checkpoint:?} holds {} records", output.len());
        assert_eq!(output.len(), 2_010);
        control.drain();
        Ok::<_, anyhow::Error>(checkpoint)
    };
    let (report, states, checkpoint) = tokio::join!(job, watch(&control), operate);

    let (report, checkpoint) = (report?, checkpoint?);
    assert_eq!(report.end, JobEnd::Drained);
    assert!(checkpoint.is_some() && report.status.checkpoint >= checkpoint);
    assert_eq!(states.last(), Some(&JobState::Ended));
    // Nobody waits for a job that is over.
    let error = control.checkpoint().await.expect_err("the job has ended");
    assert_eq!(error.kind(), ErrorKind::Closed);
    println!("drained: {} records, commit p50 {} ms", report.status.records_in, report.status.commit_ms.p50);
    world.shutdown().await;
    Ok(())
}
