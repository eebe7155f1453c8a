//! One MinIO with a bucket, in a folder of its own, gone with the test.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sharestream_base::{Clock, run_blocking};
use tempfile::TempDir;

const USER: &str = "sharestream";
/// With [`options`], what a client needs.
pub(crate) const PASSWORD: &str = "sharestream-witness";
/// The bucket that there is.
pub(crate) const BUCKET: &str = "checkpoints";
/// Longest wait for the server to begin.
const START_TRIES: u32 = 600;

/// A running server.
pub(crate) struct Server {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Starts one; `None` without the program, which is a failure where witnesses are required.
    pub(crate) async fn start() -> Option<Server> {
        let Some(program) = std::env::var_os("SHARESTREAM_S3_SERVER") else {
            let needs = "skipped: needs MinIO (SHARESTREAM_S3_SERVER names the program; CONTRIBUTING.md says how to build it)";
            assert!(std::env::var_os("SHARESTREAM_REQUIRE_WITNESSES").is_none(), "{needs}");
            println!("{needs}");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        // A folder of its root is a bucket.
        std::fs::create_dir_all(folder.path().join("data").join(BUCKET)).unwrap();
        let port = free_port();
        let process = Command::new(program)
            .args(["server", "--quiet", "--address", &format!("127.0.0.1:{port}")])
            .args(["--console-address", &format!("127.0.0.1:{}", free_port())])
            .arg(folder.path().join("data"))
            .env("MINIO_ROOT_USER", USER)
            .env("MINIO_ROOT_PASSWORD", PASSWORD)
            .env("MINIO_BROWSER", "off")
            .env("HOME", folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { process, port, _folder: folder };
        server.wait_ready().await;
        Some(server)
    }

    async fn wait_ready(&self) {
        let clock = Clock::system();
        for _ in 0..START_TRIES {
            if self.status("GET /minio/health/ready HTTP/1.1\r\n", "").await == Some(200) {
                return;
            }
            clock.sleep(Duration::from_millis(50)).await;
        }
        panic!("the S3 server did not begin to answer");
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sends a request as it is, with `head` up to its last own header, and gives the status of the answer.
    pub(crate) async fn status(&self, head: &str, body: &str) -> Option<u16> {
        let port = self.port;
        let length = body.len();
        let request = format!(
            "{head}Host: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let exchange = run_blocking("s3-request", move || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
            stream.write_all(request.as_bytes()).ok()?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).ok()?;
            String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
        });
        exchange.await.unwrap()
    }
}

/// The options that reach the server; `password` may be wrong.
pub(crate) fn options(port: u16, password: &str) -> BTreeMap<String, String> {
    let endpoint = format!("http://127.0.0.1:{port}");
    let options = [
        ("endpoint", endpoint.as_str()),
        ("allow_http", "true"),
        ("access_key_id", USER),
        ("secret_access_key", password),
        ("region", "us-east-1"),
    ];
    options.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

fn free_port() -> u16 {
    #[allow(clippy::disallowed_methods, reason = "a port for another program")]
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
