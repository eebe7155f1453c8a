//! A broker with access control, ours or Apache Kafka 4.4: the same tests run against both.
//!
//! Apache Kafka needs `SHARESTREAM_KAFKA_LAUNCHER`, a program that starts one (`up --auth`, `kill`, `start`,
//! `down`). Without it the tests say so and pass, unless `SHARESTREAM_REQUIRE_WITNESSES` is set, as CI does.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::{CreateAclsRequest, CreateTopicsRequest, DeleteAclsRequest, TopicName};
use kafka_protocol::protocol::Request;
use sharestream_base::{Env, HostPort};
use sharestream_broker::access::{Operation, Permission, Principal, ResourcePattern};
use sharestream_broker::{Broker, RunningBroker};
use uuid::Uuid;

use crate::fixtures::{Connection, TOPIC};

/// Kafka's brokers learn of acls a little later than their controller.
const PATIENCE: Duration = Duration::from_secs(10);

/// A node of Apache Kafka and its folder; stopped with the value.
struct Kafka {
    launcher: String,
    folder: tempfile::TempDir,
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.run(&["down"], &[]);
    }
}

impl Kafka {
    /// The node, and where its listener for users is.
    fn start() -> Option<(Kafka, HostPort)> {
        let Ok(launcher) = std::env::var("SHARESTREAM_KAFKA_LAUNCHER") else {
            let needs = "needs SHARESTREAM_KAFKA_LAUNCHER, the program that starts a real Apache Kafka";
            assert!(std::env::var_os("SHARESTREAM_REQUIRE_WITNESSES").is_none(), "{needs}");
            let _unseen = writeln!(std::io::stderr(), "skipped: {needs}");
            return None;
        };
        let kafka = Kafka { launcher, folder: tempfile::tempdir().unwrap() };
        let port = free_ports();
        assert!(kafka.run(&["up", "--auth", "--port", &port.to_string()], &[]), "Kafka did not start");
        // Nothing is in it yet, so it need not end politely.
        assert!(kafka.run(&["kill"], &["1"]));
        kafka.configure(port);
        assert!(kafka.run(&["start"], &["1"]), "Kafka did not start again");
        Some((kafka, HostPort::new("127.0.0.1", port + 4)))
    }

    fn run(&self, verb: &[&str], last: &[&str]) -> bool {
        // Its output would hold up the test: the broker inherits it.
        let mut command = Command::new(&self.launcher);
        command.args(verb).arg("--dir").arg(self.folder.path()).args(last).stdout(Stdio::null());
        command.status().unwrap().success()
    }

    /// The same users as ours, on a listener of their own, and acls.
    fn configure(&self, port: u16) {
        let file = self.folder.path().join("node1.properties");
        let listener = format!("SASL_SSL://127.0.0.1:{}", port + 3);
        let both = format!("{listener},SASL_PLAINTEXT://127.0.0.1:{}", port + 4);
        let mut properties = std::fs::read_to_string(&file).unwrap().replace(&listener, &both);
        properties =
            properties.replace("SASL_SSL:SASL_SSL", "SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT");
        properties += "listener.name.sasl_plaintext.sasl.enabled.mechanisms=PLAIN\n\
             listener.name.sasl_plaintext.plain.sasl.jaas.config=\
             org.apache.kafka.common.security.plain.PlainLoginModule required \
             user_admin=\"admin-secret\" user_worker=\"worker-secret\";\n\
             authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
             super.users=User:ANONYMOUS;User:admin\n";
        std::fs::write(file, properties).unwrap();
    }
}

/// Five ports in a row that nobody listens on.
fn free_ports() -> u16 {
    let is_free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    (29_410..29_490).step_by(10).find(|port| (*port..port + 5).all(is_free)).expect("free ports")
}

/// The broker, with topic [`TOPIC`] of one partition and the users `admin`, who may do everything, and
/// `worker`.
pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) address: HostPort,
    pub(crate) admin: Connection,
    pub(crate) topic_id: Uuid,
    ours: Option<RunningBroker>,
    theirs: Option<Kafka>,
}

impl World {
    /// Ours.
    pub(crate) async fn embedded() -> World {
        let env = Env::system();
        let users = [("admin", "admin-secret"), ("worker", "worker-secret")];
        let builder = Broker::builder(env.clone()).users(users).super_user(Principal::user("admin"));
        let broker = builder.start().await.unwrap();
        let address = broker.address().clone();
        Self::with_topic(env, address, Some(broker), None).await
    }

    /// Apache Kafka, where there is one.
    pub(crate) async fn kafka() -> Option<World> {
        let (kafka, address) = Kafka::start()?;
        let env = Env::system();
        let deadline = env.clock.now() + Duration::from_secs(60);
        // The launcher waits for the first listener only.
        while env.network.connect(&address).await.is_err() {
            assert!(env.clock.now() < deadline, "nobody listens on {address}");
            env.clock.sleep(Duration::from_millis(200)).await;
        }
        Some(Self::with_topic(env, address, None, Some(kafka)).await)
    }

    async fn with_topic(
        env: Env,
        address: HostPort,
        ours: Option<RunningBroker>,
        theirs: Option<Kafka>,
    ) -> World {
        let admin = Connection::open_as(&address, &env, "admin").await;
        let mut world = World { env, address, admin, topic_id: Uuid::nil(), ours, theirs };
        world.topic_id = world.create_topic(TOPIC).await;
        world
    }

    pub(crate) fn is_kafka(&self) -> bool {
        self.theirs.is_some()
    }

    pub(crate) async fn create_topic(&mut self, name: &str) -> Uuid {
        let topic = CreatableTopic::default()
            .with_name(TopicName(name.to_owned().into()))
            .with_num_partitions(1)
            .with_replication_factor(1);
        let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
        let created = self.admin.call(request, 7).await;
        assert_eq!(created.topics[0].error_code, 0);
        created.topics[0].topic_id
    }

    pub(crate) async fn worker(&self) -> Connection {
        Connection::open_as(&self.address, &self.env, "worker").await
    }

    /// Gives `worker` a right.
    pub(crate) async fn allow(&mut self, operation: Operation, on: &ResourcePattern) {
        let creation = AclCreation::default()
            .with_resource_type(on.kind.code())
            .with_resource_name(on.name.clone().into())
            .with_resource_pattern_type(if on.is_prefix { 4 } else { 3 })
            .with_principal("User:worker".into())
            .with_host("*".into())
            .with_operation(operation.code())
            .with_permission_type(Permission::Allow.code());
        let request = CreateAclsRequest::default().with_creations(vec![creation]);
        let created = self.admin.call(request, 3).await;
        assert_eq!(created.results[0].error_code, 0, "{:?}", created.results[0].error_message);
    }

    /// Takes every right of `worker` away; gives the number.
    pub(crate) async fn revoke_all(&mut self) -> usize {
        const ANY: i8 = 1;
        let filter = DeleteAclsFilter::default()
            .with_resource_type_filter(ANY)
            .with_resource_name_filter(None)
            .with_pattern_type_filter(ANY)
            .with_principal_filter(Some("User:worker".into()))
            .with_host_filter(None)
            .with_operation(ANY)
            .with_permission_type(ANY);
        let request = DeleteAclsRequest::default().with_filters(vec![filter]);
        let deleted = self.admin.call(request, 3).await;
        assert_eq!(deleted.filter_results[0].error_code, 0);
        deleted.filter_results[0].matching_acls.len()
    }

    /// Asks until the answer is as wanted: at once for ours, for a while for Kafka's. Gives the last answer.
    pub(crate) async fn settled<T>(&self, mut ask: impl AsyncFnMut() -> T, wanted: impl Fn(&T) -> bool) -> T {
        let deadline = self.env.clock.now() + PATIENCE;
        loop {
            let answer = ask().await;
            if !self.is_kafka() || wanted(&answer) || self.env.clock.now() >= deadline {
                return answer;
            }
            self.env.clock.sleep(Duration::from_millis(50)).await;
        }
    }

    /// Asks as `admin` until the answer is as wanted: a fresh Kafka makes its coordinators' topics first.
    pub(crate) async fn settled_as_admin<R: Request + Clone>(
        &mut self,
        request: R,
        version: i16,
        wanted: impl Fn(&R::Response) -> bool,
    ) -> R::Response {
        let deadline = self.env.clock.now() + PATIENCE;
        loop {
            let answer = self.admin.call(request.clone(), version).await;
            if !self.is_kafka() || wanted(&answer) || self.env.clock.now() >= deadline {
                return answer;
            }
            self.env.clock.sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn shutdown(self) {
        if let Some(broker) = self.ours {
            broker.shutdown().await;
        }
    }
}
