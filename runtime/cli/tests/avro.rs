//! Avro by job files: with a registry, without one, and what is refused before anything starts.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../../connector/kafka/tests/avro/fake_registry.rs"]
mod fake_registry;
mod process;

use std::collections::BTreeMap;

use fake_registry::FakeRegistry;
use process::{Broker, write_job};
use serde_json::Value;

/// Colours other than these have no place in the output.
const ORDER: &str = r#"{"type":"record","name":"Order","fields":[
    {"name":"id","type":"long"},
    {"name":"color","type":{"type":"enum","name":"Color","symbols":["RED","GREEN"]}},
    {"name":"price","type":["null","double"],"default":null}]}"#;

const COLUMNS: &str = r#"format = "csv"
columns = [{ name = "id", type = "int64" }, { name = "color", type = "string" }, { name = "price", type = "float64?" }]
nulls = ["NA"]"#;

struct World {
    broker: Broker,
    folder: tempfile::TempDir,
}

impl World {
    /// A broker with lines of orders; every tenth is of a colour without a place, and one is no order.
    fn start() -> World {
        let world = World { broker: Broker::start(), folder: tempfile::tempdir().unwrap() };
        world.broker.text(&["topic", "create", "lines", "--partitions", "2"], "");
        let mut lines = "id,color,price\n".to_owned();
        for id in 0..200 {
            let color = if id % 10 == 9 { "PUCE" } else { ["RED", "GREEN"][id % 2] };
            let price = if id % 3 == 0 { "NA".to_owned() } else { format!("{id}.5") };
            lines += &format!("{id},{color},{price}\n");
        }
        lines += "many,RED,1\n";
        world.broker.text(&["produce", "lines", "--header"], &lines);
        world
    }

    /// A job called `name`, in a file.
    fn job(&self, name: &str, topic: &str, source: &str, sql: &str, sink: &str) -> String {
        let text = format!(
            "[job]\nname = \"{name}\"\n[source]\nbrokers = \"127.0.0.1:1\"\ntopics = [\"{topic}\"]\ngroup = \"{name}\"\n{source}\n\
             [source.group_config]\nshare.auto.offset.reset = \"earliest\"\nshare.isolation.level = \"read_committed\"\n\
             [transform]\nsql = \"{sql}\"\n[sink]\ntopic = \"{name}\"\npartitions = 2\n{sink}\n[dead_letter]\ntopic = \"{name}-bad\"\n"
        );
        write_job(self.folder.path(), &text)
    }

    /// Runs it to the end of its input, and has every record checked.
    fn run(&self, job: &str) {
        self.broker.text(&["run", job, "--until-caught-up"], "");
        let report: Value = serde_json::from_str(&self.broker.text(&["verify", job, "--json"], "")).unwrap();
        assert_eq!(report["violations"], Value::Array(Vec::new()), "{report}");
        assert_eq!(report["remaining"], 0, "{report}");
    }

    fn lines(&self, topic: &str) -> Vec<Value> {
        let text = self.broker.text(&["read", topic, "--json"], "");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The JSON rows of a topic by their id.
    fn rows(&self, topic: &str) -> BTreeMap<i64, Value> {
        let lines = self.lines(topic);
        let rows = lines.iter().map(|line| serde_json::from_str(line["value"].as_str().unwrap()).unwrap());
        let rows: BTreeMap<i64, Value> = rows.map(|row: Value| (row["id"].as_i64().unwrap(), row)).collect();
        assert_eq!(rows.len(), lines.len(), "each id once");
        rows
    }
}

fn registry_in(section: &str, registry: &FakeRegistry) -> String {
    format!("[{section}.schema_registry]\nurl = \"{}\"\npatience = \"6s\"", registry.url)
}

fn served<T>(then: impl FnOnce(&FakeRegistry) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let registry = runtime.block_on(FakeRegistry::start());
    then(&registry)
}

#[test]
fn orders_pass_through_a_registry_and_are_checked_on_both_sides() {
    served(|registry| {
        let world = World::start();
        std::fs::write(world.folder.path().join("order.avsc"), ORDER).unwrap();
        let sink =
            format!("format = \"avro\"\nschema_file = \"order.avsc\"\n{}", registry_in("sink", registry));
        let job = world.job("orders", "lines", COLUMNS, "SELECT id, color, price FROM source", &sink);
        world.run(&job);
        // Twenty without a place in the enum, and the one that is no order.
        assert_eq!((world.lines("orders").len(), world.lines("orders-bad").len()), (180, 21));
        let reader = format!("format = \"avro\"\n{}", registry_in("source", registry));
        // The schema of the output is made of its columns, and registered as well.
        let sink = format!("format = \"avro\"\n{}", registry_in("sink", registry));
        let sql = "SELECT id, color, price * 2 AS twice FROM source";
        let job = world.job("doubled", "orders", &reader, sql, &sink);
        world.run(&job);
        let reader = reader.replace("[source", "parallelism = 2\n[source");
        let job = world.job(
            "plain",
            "doubled",
            &reader,
            "SELECT id, color, twice FROM source",
            "format = \"json\"",
        );
        world.run(&job);
        let rows = world.rows("plain");
        assert_eq!(rows.len(), 180);
        assert_eq!(rows[&4]["color"], "RED");
        assert_eq!(rows[&4]["twice"], 9.0);
        assert_eq!(rows[&3]["twice"], Value::Null);
        assert!(world.lines("doubled-bad").is_empty() && world.lines("plain-bad").is_empty());
    });
}

#[test]
fn without_a_registry_the_job_file_has_the_schema() {
    let world = World::start();
    let sql = "SELECT id, color, price FROM source";
    let job = world.job("bare", "lines", COLUMNS, sql, "format = \"avro\"\nrecord_name = \"shop.Order\"");
    world.run(&job);
    let schema = r#"{"type":"record","name":"Order","fields":[
        {"name":"id","type":"long"},{"name":"color","type":"string"},
        {"name":"price","type":["null","double"],"default":null}]}"#;
    let source = format!("format = \"avro\"\nschema = '''{schema}'''");
    let job = world.job("text", "bare", &source, sql, "format = \"json\"");
    world.run(&job);
    let rows = world.rows("text");
    assert_eq!(rows.len(), 200);
    assert_eq!(rows[&19]["color"], "PUCE");
}

#[test]
fn what_a_registry_refuses_refuses_the_start() {
    served(|registry| {
        let world = World::start();
        let sink = format!("format = \"avro\"\n{}", registry_in("sink", registry));
        let sql = "SELECT id, color FROM source";
        let job = world.job("refused", "lines", COLUMNS, sql, &sink);
        let error = |job: &str| {
            let output = world.broker.run(&["run", job, "--until-caught-up"], "");
            assert!(!output.status.success());
            String::from_utf8(output.stderr).unwrap()
        };
        registry.state.lock().unwrap().refuses = true;
        let told = error(&job);
        assert!(told.contains("incompatible with an earlier schema"), "{told}");
        // Looked up only, it has to be there.
        registry.state.lock().unwrap().refuses = false;
        let job = world.job("refused", "lines", COLUMNS, sql, &format!("{sink}\nregister = false"));
        let told = error(&job);
        assert!(told.contains("does not have the schema"), "{told}");
        assert_eq!(registry.asked("/subjects/refused-value/versions"), 1);
        // A column that the given schema has no place for is told before anything is registered.
        let given = sink.replace("format = \"avro\"", &format!("format = \"avro\"\nschema = '''{ORDER}'''"));
        let job = world.job("refused", "lines", COLUMNS, "SELECT color FROM source", &given);
        let told = error(&job);
        assert!(told.contains("no column gives field 'id' of Order"), "{told}");
        assert_eq!(registry.asked("/subjects/refused-value/versions"), 1);
        // And a source whose topic has no schema.
        let source = format!("format = \"avro\"\n{}", registry_in("source", registry));
        let job = world.job("unknown", "lines", &source, "SELECT 1 AS one FROM source", "");
        let told = error(&job);
        assert!(told.contains("subject lines-value"), "{told}");
    });
}
