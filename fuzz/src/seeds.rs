//! Inputs to begin with, made from real messages when a target starts with `FUZZ_SEEDS` set to a folder: nothing binary
//! is kept in the repository for them.

use std::io::Write;
use std::path::PathBuf;

/// Where seeds are written to, if they are asked for.
#[derive(Debug)]
pub struct Seeds {
    folder: PathBuf,
    state: u64,
    written: usize,
}

impl Seeds {
    /// Asked for by `FUZZ_SEEDS`.
    pub fn asked_for() -> Option<Seeds> {
        let folder = PathBuf::from(std::env::var_os("FUZZ_SEEDS")?);
        std::fs::create_dir_all(&folder).expect("the folder of seeds can be created");
        Some(Seeds { folder, state: 0x9e37_79b9, written: 0 })
    }

    /// The same numbers in every run.
    pub fn below(&mut self, end: usize) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % end
    }

    /// Writes a seed that consists of these parts.
    pub fn put(&mut self, parts: &[&[u8]]) {
        let path = self.folder.join(format!("seed-{:04}", self.written));
        let mut file = std::fs::File::create(path).expect("a seed can be created");
        file.write_all(&parts.concat()).expect("a seed can be written");
        self.written += 1;
    }
}

/// A part as [`crate::Parts::part`] takes it off.
pub fn part(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("seeds are short");
    [&length.to_be_bytes(), bytes].concat()
}
