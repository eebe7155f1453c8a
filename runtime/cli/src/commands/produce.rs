//! `sharestream produce`: lines of a file or of standard input become records.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail};
use flate2::read::MultiGzDecoder;
use sharestream_base::{Env, OwnedTask, TaskKind, run_blocking};
use sharestream_client::{Producer, WriterConfig};
use tokio::sync::mpsc;

use super::topic::connect;
use crate::args::ProduceArgs;
use crate::exit::Exit;
use crate::failure::UnreadableInput;
use crate::output;

/// Lines that wait between the reading thread and the producer.
const LINES_WAITING: usize = 64;
/// Lines handed over at once.
const LINES_CHUNK: usize = 512;

/// Sends every line and waits until the brokers have them.
pub(crate) async fn run(env: Env, args: ProduceArgs) -> anyhow::Result<Exit> {
    let client = connect(env.clone(), &args.connection).await?;
    client.topic(&args.topic).await?;
    let mut producer = Producer::connect(client, WriterConfig::default()).await?;
    let (sender, mut chunks) = mpsc::channel(LINES_WAITING);
    let source = args.file.clone();
    let reading = run_blocking("lines", move || read_lines(source.as_deref(), &sender));
    let mut reading = OwnedTask::spawn(&env.spawner, "lines", TaskKind::Service, reading);
    let mut keys = KeyRule::new(&args);
    let mut count = 0u64;
    let limit = args.max.unwrap_or(u64::MAX);
    'all: while let Some(lines) = chunks.recv().await {
        for line in lines {
            let Some((key, value)) = keys.split(&line)? else { continue };
            if count == limit {
                break 'all;
            }
            producer.send(&args.topic, key, Some(value), &[]).await?;
            count += 1;
        }
    }
    drop(chunks);
    producer.flush().await?;
    if let Some(Ok(Err(error))) = reading.join().await?
        && count < limit
    {
        return Err(error);
    }
    output::line(&format!("wrote {} records to {}", output::thousands(count), args.topic));
    Ok(Exit::Done)
}

/// Sends chunks of lines until the file ends or nobody listens.
fn read_lines(path: Option<&Path>, sender: &mpsc::Sender<Vec<Vec<u8>>>) -> anyhow::Result<()> {
    let mut reader = open(path)?;
    loop {
        let mut lines = Vec::with_capacity(LINES_CHUNK);
        while lines.len() < LINES_CHUNK {
            let mut line = Vec::new();
            if reader.read_until(b'\n', &mut line).context("cannot read the input")? == 0 {
                break;
            }
            lines.push(line);
        }
        if lines.is_empty() || sender.blocking_send(lines).is_err() {
            return Ok(());
        }
    }
}

/// The input; a `.gz` file is unpacked.
fn open(path: Option<&Path>) -> anyhow::Result<Box<dyn BufRead>> {
    let Some(path) = path else { return Ok(Box::new(BufReader::new(std::io::stdin()))) };
    let file =
        File::open(path).with_context(|| UnreadableInput(format!("cannot open {}", path.display())))?;
    let is_gzip = path.extension().is_some_and(|extension| extension == "gz");
    let bytes: Box<dyn Read> = if is_gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    Ok(Box::new(BufReader::with_capacity(1 << 20, bytes)))
}

/// A record's key and value.
type KeyAndValue<'a> = (Option<&'a [u8]>, &'a [u8]);

/// How a line becomes key and value.
struct KeyRule {
    column: Option<String>,
    /// Position of the key column, once it is known.
    index: Option<usize>,
    delimiter: u8,
    separator: Option<Vec<u8>>,
    /// The next line is the header.
    header_next: bool,
    line_count: u64,
}

impl KeyRule {
    fn new(args: &ProduceArgs) -> Self {
        let number = args.key_column.as_ref().and_then(|column| column.parse::<usize>().ok());
        KeyRule {
            column: args.key_column.clone(),
            index: number.and_then(|number| number.checked_sub(1)),
            delimiter: u8::try_from(args.key_delimiter).unwrap_or(b','),
            separator: args.key_separator.as_ref().map(|text| text.as_bytes().to_vec()),
            // A column by name can only be found in a header.
            header_next: args.header || (args.key_column.is_some() && number.is_none()),
            line_count: 0,
        }
    }

    /// Key and value of a line; `None` for the header and for empty lines.
    fn split<'a>(&mut self, line: &'a [u8]) -> anyhow::Result<Option<KeyAndValue<'a>>> {
        self.line_count += 1;
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.header_next {
            self.header_next = false;
            self.read_header(line)?;
            return Ok(None);
        }
        if line.is_empty() {
            return Ok(None);
        }
        if let Some(separator) = &self.separator {
            let Some(at) = line.windows(separator.len().max(1)).position(|part| part == separator.as_slice())
            else {
                bail!("line {}: no '{}' in it", self.line_count, String::from_utf8_lossy(separator));
            };
            return Ok(Some((Some(&line[..at]), &line[at + separator.len()..])));
        }
        let Some(index) = self.index else { return Ok(Some((None, line))) };
        match column(line, self.delimiter, index) {
            Some(key) => Ok(Some((Some(key), line))),
            None => bail!("line {}: it has no column {}", self.line_count, index + 1),
        }
    }

    fn read_header(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let Some(name) = self.column.as_ref().filter(|_| self.index.is_none()) else { return Ok(()) };
        let text = String::from_utf8_lossy(line);
        let names: Vec<&str> =
            text.split(char::from(self.delimiter)).map(|name| name.trim_matches('"')).collect();
        self.index = names.iter().position(|known| known == name);
        if self.index.is_none() {
            bail!("the header has no column '{name}'; it has {}", names.join(", "));
        }
        Ok(())
    }
}

/// The field with that index, quotes of RFC 4180 respected; without its quotes.
fn column(line: &[u8], delimiter: u8, index: usize) -> Option<&[u8]> {
    let (mut start, mut at, mut quoted) = (0, 0, false);
    for (position, byte) in line.iter().enumerate() {
        match *byte {
            b'"' => quoted = !quoted,
            byte if byte == delimiter && !quoted => {
                if at == index {
                    return Some(unquoted(&line[start..position]));
                }
                (start, at) = (position + 1, at + 1);
            }
            _ => {}
        }
    }
    (at == index).then(|| unquoted(&line[start..]))
}

fn unquoted(field: &[u8]) -> &[u8] {
    field.strip_prefix(b"\"").and_then(|inner| inner.strip_suffix(b"\"")).unwrap_or(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(column: Option<&str>, separator: Option<&str>, header: bool) -> KeyRule {
        KeyRule {
            column: column.map(str::to_owned),
            index: column.and_then(|column| column.parse::<usize>().ok()).map(|number| number - 1),
            delimiter: b',',
            separator: separator.map(|text| text.as_bytes().to_vec()),
            header_next: header,
            line_count: 0,
        }
    }

    #[test]
    fn lines_are_keyed_by_column_name_number_or_separator() {
        let mut by_name = rule(Some("carrier"), None, true);
        assert!(by_name.split(b"year,carrier\n").unwrap().is_none(), "the header is no record");
        assert_eq!(by_name.split(b"2013,UA\r\n").unwrap(), Some((Some(&b"UA"[..]), &b"2013,UA"[..])));
        assert_eq!(by_name.split(b"\n").unwrap(), None);
        let mut by_number = rule(Some("1"), None, false);
        assert_eq!(by_number.split(b"\"a,b\",c").unwrap(), Some((Some(&b"a,b"[..]), &b"\"a,b\",c"[..])));
        let mut by_separator = rule(None, Some(": "), false);
        assert_eq!(by_separator.split(b"k: v").unwrap(), Some((Some(&b"k"[..]), &b"v"[..])));
        assert_eq!(rule(None, None, false).split(b"v").unwrap(), Some((None, &b"v"[..])));
    }

    #[test]
    fn a_line_without_its_key_is_named() {
        assert!(rule(Some("3"), None, false).split(b"a,b").unwrap_err().to_string().contains("line 1"));
        assert!(rule(None, Some("|"), false).split(b"ab").unwrap_err().to_string().contains("no '|'"));
        assert!(rule(Some("x"), None, true).split(b"a,b").unwrap_err().to_string().contains("it has a, b"));
    }
}
