//! A job that calls a service for each record, a service that fails now and then, and a job that dies at every step of a
//! commit: each record has one outcome, and the service sees one key for each record, however often it is called.
#![allow(clippy::unwrap_used, reason = "tests")]

mod fixtures;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fixtures::{ByFate, Fate, Findings, RunningJob, World, stop_at};
use futures::stream;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use sharestream_base::{CancellationToken, Env, HostPort, OwnedTask, TaskKind, TaskSet};
use sharestream_core::async_map::{AsyncMap, AsyncMapOptions};
use sharestream_core::commit::{AckMode, CommitStep, StepHook};
use sharestream_core::operator::OperatorFactory;
use sharestream_core::{JobBuilder, JobId};
use sharestream_http::{Body, FieldType, HttpFunction, HttpSettings, JsonField};
use sharestream_kafka::{KafkaJob, KafkaJobConfig};

const RECORDS: i64 = 3_000;
const NOTHING: Findings = Findings { lost: 0, doubled: 0 };

/// What a record comes to at the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Answers,
    /// The first call of a record gets no answer that is one, in one of three ways.
    FailsFirst(u8),
    Slow,
    /// It never takes this record.
    Refuses,
}

impl Service {
    fn of(id: i64) -> Service {
        match id % 100 {
            4 => Service::Refuses,
            8 => Service::Slow,
            rest if rest % 7 == 0 => Service::FailsFirst((rest % 3) as u8),
            _ => Service::Answers,
        }
    }
}

type AnyBody = UnsyncBoxBody<Bytes, std::io::Error>;
/// What was asked for, by idempotency key.
type Calls = Arc<Mutex<BTreeMap<String, Vec<i64>>>>;

fn whole(text: String) -> AnyBody {
    Full::new(Bytes::from(text)).map_err(|never: Infallible| match never {}).boxed_unsync()
}

async fn answer(request: Request<Incoming>, calls: Calls) -> Result<Response<AnyBody>, std::io::Error> {
    let broken = || std::io::Error::other("broken off on purpose");
    let key = request.headers()["idempotency-key"].to_str().unwrap().to_owned();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let id: i64 = serde_json::from_slice::<serde_json::Value>(&body).unwrap()["id"].as_i64().unwrap();
    let is_first = {
        let mut calls = calls.lock().unwrap();
        let of_key = calls.entry(key).or_default();
        of_key.push(id);
        of_key.len() == 1
    };
    let text = format!("{{\"doubled\": {}}}", 2 * id);
    let mut response = Response::builder();
    let body = match Service::of(id) {
        Service::FailsFirst(0) if is_first => {
            response = response.status(503).header("retry-after", "0");
            whole("busy".to_owned())
        }
        Service::FailsFirst(1) if is_first => return Err(broken()),
        Service::FailsFirst(_) if is_first => {
            StreamBody::new(stream::iter(vec![Ok(Frame::data(Bytes::from("{\"dou"))), Err(broken())]))
                .boxed_unsync()
        }
        Service::Slow => {
            Env::system().clock.sleep(Duration::from_millis(300)).await;
            whole(text)
        }
        Service::Refuses => {
            response = response.status(404);
            whole("nobody knows it".to_owned())
        }
        Service::Answers | Service::FailsFirst(_) => whole(text),
    };
    response.body(body).map_err(std::io::Error::other)
}

/// Serves in the world's runtime, which outlives every job.
async fn serve(calls: Calls) -> (HostPort, OwnedTask<()>) {
    let env = Env::system();
    let mut listener = env.network.bind(&HostPort::new("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_address();
    let spawner = env.spawner.clone();
    let accepting = OwnedTask::spawn(&env.spawner, "service", TaskKind::Service, async move {
        let mut connections = TaskSet::new(&spawner, CancellationToken::new());
        while let Ok((io, _peer)) = listener.accept().await {
            let calls = calls.clone();
            connections.spawn("connection", TaskKind::Connection, async move {
                let service = service_fn(move |request| answer(request, calls.clone()));
                // Answers that break off are errors here: they were asked for.
                let _ended = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(io), service)
                    .await;
            });
        }
    });
    (address, accepting)
}

fn start(
    world: &World,
    address: &HostPort,
    is_ordered: bool,
    parallelism: usize,
    hook: Option<StepHook>,
) -> RunningJob {
    let mut settings = HttpSettings::new("POST", format!("http://{address}/double"));
    settings.body = Body::Columns(vec!["id".to_owned()]);
    settings.body_column = None;
    settings.fields = vec![JsonField {
        name: "doubled".to_owned(),
        pointer: "/doubled".to_owned(),
        field_type: FieldType::Int64,
        is_required: true,
    }];
    let options = AsyncMapOptions::default()
        .with_order(is_ordered)
        .with_concurrency(32)
        .with_backoff(Duration::from_millis(5))
        .with_probe_interval(Duration::from_millis(50));
    let (config, job_options): (KafkaJobConfig, _) = (world.config(), world.options.clone());
    fixtures::spawn(move |control| async move {
        let env = Env::system();
        let id = JobId::new(&config.job, &config.instance);
        let kafka = KafkaJob::connect(env.clone(), config).await?;
        let cluster_id = kafka.client().cluster_id();
        let input = ByFate.output_schema(kafka.schema())?;
        let function =
            HttpFunction::connect(settings, &input, cluster_id.as_deref(), env.clock.clone()).await?;
        let mut builder = JobBuilder::new(id)
            .source(kafka.source_factory(), parallelism)
            .operator(Arc::new(ByFate))
            .async_map(AsyncMap::new("double", Arc::new(function)).options(options))
            .sink(kafka.sink_factory(), parallelism)
            .commit(kafka.commit_protocol(hook.clone()))
            .options(job_options);
        if let Some(hook) = hook {
            builder = builder.step_hook(hook);
        }
        builder.build()?.run(env, control).await
    })
}

/// Every record below `total` has the one outcome that decoder, operator and service give it.
fn check(world: &World, calls: &Calls, total: i64) {
    assert_eq!(world.check_outcomes(AckMode::Transactional), NOTHING);
    let mut written = BTreeSet::new();
    let mut keys = BTreeSet::new();
    let cluster_id = world.client().cluster_id().unwrap();
    for (provenance, value, _headers) in world.committed("output") {
        let row: serde_json::Value = serde_json::from_str(&value).unwrap();
        let id = row["id"].as_i64().unwrap();
        assert_eq!((row["doubled"].as_i64(), row["status"].as_i64()), (Some(2 * id), Some(200)), "{row}");
        assert!(written.insert(id), "{id} is in the output twice");
        let (topic_id, partition) = (provenance.topic_id, provenance.partition);
        keys.insert((format!("{cluster_id}/{topic_id}/{partition}/{}/0", provenance.offset), id));
    }
    let mut dead = BTreeSet::new();
    for (_provenance, value, _headers) in world.committed("dead") {
        let id: i64 = value.split(',').next().unwrap().parse().unwrap();
        assert!(dead.insert(id), "{id} is a dead letter twice");
    }
    for id in 0..total {
        let is_called = Fate::of(id) == Fate::Written;
        let is_refused = is_called && Service::of(id) == Service::Refuses;
        let is_bad = matches!(Fate::of(id), Fate::Undecodable | Fate::Refused);
        assert_eq!(written.contains(&id), is_called && !is_refused, "{id}");
        assert_eq!(dead.contains(&id), is_bad || is_refused, "{id}");
    }
    let calls = calls.lock().unwrap();
    for (key, id) in keys {
        assert!(calls.get(&key).is_some_and(|ids| ids.contains(&id)), "{id} was written and never asked for");
    }
    let mut key_of = BTreeMap::new();
    for (key, ids) in calls.iter() {
        assert!(ids.iter().all(|id| *id == ids[0]), "{key} stands for several records: {ids:?}");
        assert!(Fate::of(ids[0]) == Fate::Written, "{} was filtered and asked for", ids[0]);
        let known = key_of.insert(ids[0], key);
        assert_eq!(known, None, "record {} was asked for under two keys", ids[0]);
    }
    let asked = (0..total).filter(|id| Fate::of(*id) == Fate::Written).count();
    assert_eq!(key_of.len(), asked, "each record is asked for");
}

#[test]
fn a_service_that_fails_now_and_then_and_crashes_at_every_step_change_no_outcome() {
    let steps = [
        CommitStep::BeforeManifest,
        CommitStep::AfterOutcome,
        CommitStep::BetweenStagedLeaders,
        CommitStep::AfterStaging,
        CommitStep::DuringEndTxn,
        CommitStep::AfterEndTxn,
    ];
    let world = World::with_records(RECORDS);
    let calls = Calls::default();
    let (address, _serving) = world.block_on(serve(calls.clone()));
    let mut total = RECORDS;
    for (index, step) in steps.iter().enumerate() {
        let (hook, reached) = stop_at(*step, index as u64 % 3);
        let job = start(&world, &address, index % 2 == 1, 1 + index % 2, Some(hook));
        let mut rounds = 0;
        while reached.recv_timeout(Duration::from_millis(50)).is_err() {
            world.produce(total..total + 20);
            total += 20;
            rounds += 1;
            let end = job.end.try_recv();
            assert!(rounds < 400 && end.is_err(), "{step:?}: {end:?}, {:?}", job.control.snapshot());
        }
        job.crash();
    }
    let job = start(&world, &address, false, 2, None);
    world.wait_until_caught_up(&job);
    let status = job.drain().status;
    assert_eq!(status.calls.len(), 1);
    check(&world, &calls, total);
    let repeated = calls.lock().unwrap().values().filter(|ids| ids.len() > 1).count();
    assert!(repeated as i64 > total / 30, "the service failed and the job died: {repeated} were repeated");
    world.shut_down();
}
