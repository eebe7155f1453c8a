//! Records a second through source, operator, sink and commits, with the broker in the same process.
//! `cargo bench -p sharestream-kafka --bench throughput`.

#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

use fixtures::World;
use sharestream_base::Env;

const RECORDS: i64 = 500_000;

fn main() {
    let world = World::with_records(RECORDS);
    let clock = Env::system().clock;
    for parallelism in [1, 2] {
        let start = clock.now();
        let job = world.start_group(&format!("group-{parallelism}"), parallelism);
        world.wait_until_group_caught_up(&format!("group-{parallelism}"), &job);
        let seconds = (clock.now() - start).as_secs_f64();
        let status = job.drain().status;
        println!(
            "parallelism {parallelism}: {:.0} records a second, {} commits, commit p50 {:.2} ms p99 {:.2} ms, visible \
             p50 {:.2} ms p99 {:.2} ms",
            RECORDS as f64 / seconds,
            status.commits,
            status.commit_ms.p50,
            status.commit_ms.p99,
            status.visible_ms.p50,
            status.visible_ms.p99
        );
    }
    world.shut_down();
}
