//! One run of the script against one broker: raw connections, and the transcript of what was answered.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_response::FetchResponse;
use kafka_protocol::protocol::Request;
use sharestream_base::{BoxIo, Env, HostPort};
use sharestream_wire::frame::{self, FrameDecoder};
use sharestream_wire::messages::share_fetch::{ShareFetchRequest, ShareFetchResponse};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

use sharestream_wire::share_state::state_partition_of_key;

use crate::fields::{Fields, Mapping};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(6);
/// Longest wait until a broker has come to rest.
const REST: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);
/// Codes that pass by themselves: leaders and coordinators that load, markers under way.
const PASSING: [i16; 6] = [5, 6, 14, 15, 16, 51];

/// What was answered at one step.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) fields: Fields,
}

struct Connection {
    io: BoxIo,
    buffer: BytesMut,
    correlation_id: i32,
}

/// Partitions of `__consumer_offsets`: of the Kafka that tests start, of the embedded broker, and of Kafka by default.
const OFFSETS_PARTITIONS: [i32; 3] = [4, 8, 50];

/// Whether the offsets of a group that the script stages to without having added it are in another partition than those of
/// the group that it has added. What is said of it before version 5 hangs on whether that partition is in the
/// transaction, and so on the hash of the names.
fn has_groups_apart(run: &str) -> bool {
    let place = |name: &str, count| state_partition_of_key(&format!("{name}-{run}"), count);
    OFFSETS_PARTITIONS.iter().all(|count| place("unknown", *count) != place("group of refused", *count))
}

/// A run.
pub(crate) struct Play {
    env: Env,
    address: HostPort,
    connections: Vec<Option<Connection>>,
    current: usize,
    mapping: Mapping,
    names: BTreeSet<String>,
    steps: Vec<Step>,
    /// What became of the connection when the last answer did not come.
    silence: &'static str,
    /// Ends the name of everything that this run makes.
    pub(crate) run: String,
    /// First timestamp of its records.
    pub(crate) base_ms: i64,
}

impl Play {
    /// Its records are stamped from `base_ms` on.
    pub(crate) fn new(env: Env, address: HostPort, base_ms: i64) -> Self {
        let run = loop {
            let run = env.rng.uuid().simple().to_string()[..12].to_owned();
            if has_groups_apart(&run) {
                break run;
            }
        };
        let (connections, mapping) = (Vec::new(), Mapping::new(&run, base_ms));
        Play {
            env,
            address,
            connections,
            current: 0,
            mapping,
            names: BTreeSet::new(),
            steps: Vec::new(),
            silence: "closed",
            run,
            base_ms,
        }
    }

    pub(crate) fn transcript(self) -> Vec<Step> {
        self.steps
    }

    /// A name of this run.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{name}-{}", self.run)
    }

    /// Gives the id of a topic a name in the transcript.
    pub(crate) fn know_topic(&mut self, id: Uuid, name: &str) {
        self.mapping.topic(&id.to_string(), name);
    }

    /// From now on requests go over connection number `number`.
    pub(crate) fn over(&mut self, number: usize) {
        self.current = number;
    }

    /// Closes connection number `number`.
    pub(crate) fn hang_up(&mut self, number: usize) {
        if let Some(connection) = self.connections.get_mut(number) {
            *connection = None;
        }
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        self.env.clock.sleep(duration).await;
    }

    /// Kafka's brokers learn of changed settings a little after they were answered.
    pub(crate) async fn settings_arrive(&self) {
        self.sleep(Duration::from_millis(500)).await;
    }

    /// Sends a request and waits; none when the broker closed the connection or never answers.
    pub(crate) async fn call<R: Request>(&mut self, request: &R, version: i16) -> Option<R::Response> {
        while self.connections.len() <= self.current {
            self.connections.push(None);
        }
        let mut connection = match self.connections[self.current].take() {
            Some(connection) => connection,
            None => {
                let io = self.env.network.connect(&self.address).await.unwrap();
                Connection { io, buffer: BytesMut::new(), correlation_id: 0 }
            }
        };
        connection.correlation_id += 1;
        let id = connection.correlation_id;
        let bytes = frame::encode_request(request, version, id, "differential").unwrap();
        connection.io.write_all(&bytes).await.unwrap();
        let answer = self.env.clock.timeout(PATIENCE, receive(&mut connection)).await;
        self.silence = if answer.is_ok() { "closed" } else { "no answer" };
        let answer = answer.ok().flatten()?;
        let (answered, response) = frame::decode_response::<R>(answer, version).unwrap();
        assert_eq!(answered, id);
        self.connections[self.current] = Some(connection);
        Some(response)
    }

    /// One step of the transcript.
    pub(crate) fn note(&mut self, name: &str, answer: Option<&dyn Debug>, more: Fields) {
        let mut fields = match answer {
            Some(answer) => self.mapping.fields(&format!("{answer:#?}")),
            None => vec![("connection".to_owned(), self.silence.to_owned())],
        };
        fields.extend(more);
        assert!(self.names.insert(name.to_owned()), "two steps are called {name}");
        self.steps.push(Step { name: name.to_owned(), fields });
    }

    /// Sends, waits, notes.
    pub(crate) async fn step<R>(&mut self, name: &str, request: R, version: i16) -> Option<R::Response>
    where
        R: Request,
        R::Response: Debug,
    {
        let answer = self.call(&request, version).await;
        self.note(name, answer.as_ref().map(|answer| answer as &dyn Debug), Fields::new());
        answer
    }

    /// Sends until the answer is at rest, and notes that one.
    pub(crate) async fn settled<R>(&mut self, name: &str, request: R, version: i16) -> Option<R::Response>
    where
        R: Request,
        R::Response: Debug,
    {
        self.until(name, request, version, |_| true).await
    }

    /// Sends until the answer is at rest and as wanted, and notes that one, or the last.
    pub(crate) async fn until<R>(
        &mut self,
        name: &str,
        request: R,
        version: i16,
        wanted: impl Fn(&R::Response) -> bool,
    ) -> Option<R::Response>
    where
        R: Request,
        R::Response: Debug,
    {
        let answer = self.quietly_until(&request, version, wanted).await;
        self.note(name, answer.as_ref().map(|answer| answer as &dyn Debug), Fields::new());
        answer
    }

    /// The same without a note.
    pub(crate) async fn quietly_until<R>(
        &mut self,
        request: &R,
        version: i16,
        wanted: impl Fn(&R::Response) -> bool,
    ) -> Option<R::Response>
    where
        R: Request,
        R::Response: Debug,
    {
        let deadline = self.env.clock.now() + REST;
        loop {
            let answer = self.call(request, version).await?;
            let rests = !is_passing(&format!("{answer:#?}"));
            if (rests && wanted(&answer)) || self.env.clock.now() >= deadline {
                return Some(answer);
            }
            self.env.clock.sleep(PAUSE).await;
        }
    }

    /// A Fetch, with the batches that it gives.
    pub(crate) async fn fetch(
        &mut self,
        name: &str,
        request: FetchRequest,
        version: i16,
    ) -> Option<FetchResponse> {
        let answer = self.call(&request, version).await;
        let (mut shown, mut more) = (answer.clone(), Fields::new());
        for (topic, partitions) in shown.iter_mut().flat_map(|answer| &mut answer.responses).enumerate() {
            for (place, partition) in partitions.partitions.iter_mut().enumerate() {
                let bytes = taken(&mut partition.records);
                more.extend(
                    self.mapping.batches(&format!("responses.{topic}.partitions.{place}.batch"), bytes),
                );
            }
        }
        self.note(name, shown.as_ref().map(|answer| answer as &dyn Debug), more);
        answer
    }

    /// Sends a ShareFetch and notes its answer, with the batches that it gives.
    pub(crate) async fn share_fetch(
        &mut self,
        name: &str,
        request: &ShareFetchRequest,
        version: i16,
    ) -> Option<ShareFetchResponse> {
        let answer = self.call(request, version).await;
        self.note_share_fetch(name, answer.as_ref());
        answer
    }

    pub(crate) fn note_share_fetch(&mut self, name: &str, answer: Option<&ShareFetchResponse>) {
        let (mut shown, mut more) = (answer.cloned(), Fields::new());
        for (topic, partitions) in shown.iter_mut().flat_map(|answer| &mut answer.responses).enumerate() {
            partitions.partitions.sort_by_key(|partition| partition.partition_index);
            for (place, partition) in partitions.partitions.iter_mut().enumerate() {
                let bytes = taken(&mut partition.records);
                more.extend(
                    self.mapping.batches(&format!("responses.{topic}.partitions.{place}.batch"), bytes),
                );
            }
        }
        self.note(name, shown.as_ref().map(|answer| answer as &dyn Debug), more);
    }
}

/// Takes the records out of an answer, whose debug form then tells only whether there was a place for them: none is
/// `None`, an empty one is not.
fn taken(records: &mut Option<Bytes>) -> Bytes {
    records.as_mut().map(std::mem::take).unwrap_or_default()
}

/// True when a code of an answer passes by itself.
fn is_passing(debug: &str) -> bool {
    let codes = debug.lines().filter_map(|line| {
        let (name, value) = line.trim().trim_end_matches(',').split_once(": ")?;
        name.ends_with("error_code").then(|| value.parse::<i16>().ok())?
    });
    codes.into_iter().any(|code| PASSING.contains(&code))
}

/// The next frame; none when the broker has closed the connection.
async fn receive(connection: &mut Connection) -> Option<Bytes> {
    loop {
        let next = FrameDecoder::new(frame::FRAME_BYTES_MAX).next(&mut connection.buffer).unwrap();
        if next.is_some() {
            return next;
        }
        if connection.io.read_buf(&mut connection.buffer).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}
