//! The specification and the page of requirements name files and tests: each of them exists.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Rust file below a folder, as text.
fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// Names of functions that these sources define.
fn functions(sources: &[String]) -> BTreeSet<&str> {
    let names = sources.iter().flat_map(|source| source.split("fn ").skip(1));
    names.filter_map(|rest| rest.split(|c: char| c != '_' && !c.is_alphanumeric()).next()).collect()
}

/// What a text has between single backticks.
fn code_words(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| !line.starts_with("```"));
    lines.flat_map(|line| line.split('`').skip(1).step_by(2))
}

fn is_path(word: &str) -> bool {
    ["connector/", "runtime/", "docs/", "checkpoints/"].iter().any(|folder| word.starts_with(folder))
}

/// Tests are named by the rule that they check: many words, nothing but letters, digits and underscores.
fn is_test_name(word: &str) -> bool {
    let plain = word.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit());
    plain && !word.starts_with('_') && word.matches('_').count() >= 4
}

/// Not tests, but methods of the client's interface.
const METHODS: [&str; 1] = ["send_share_acknowledgements_to_transaction"];

#[test]
fn every_file_and_test_that_the_specification_names_exists() {
    let mut texts = Vec::new();
    for folder in ["connector", "runtime"] {
        sources(&root().join(folder), &mut texts);
    }
    let functions = functions(&texts);
    let mut pages = vec![root().join("docs/requirements.md")];
    let protocol = std::fs::read_dir(root().join("docs/protocol")).unwrap();
    pages.extend(protocol.map(|entry| entry.unwrap().path()));
    let (mut named, mut missing) = (0, Vec::new());
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for word in code_words(&text) {
            let exists = if is_path(word) {
                root().join(word).exists()
            } else if is_test_name(word) && !METHODS.contains(&word) {
                functions.contains(word)
            } else {
                continue;
            };
            named += 1;
            if !exists {
                missing.push(format!("{}: {word}", page.display()));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
    assert!(named > 100, "only {named} names were found: the pages are written otherwise now");
}

#[test]
fn every_requirement_has_code_and_a_test_or_says_that_it_is_open() {
    let text = std::fs::read_to_string(root().join("docs/requirements.md")).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| R"))
        .map(|line| line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let ids: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    let expected: Vec<String> = (1..=26).map(|n| format!("R{n}")).collect();
    assert_eq!(ids, expected);
    for row in rows {
        let [id, must, code, tests] = row[..] else { panic!("{row:?} has not four cells") };
        assert!(code_words(code).any(is_path), "{id} names no code");
        let tested = code_words(tests).any(is_test_name);
        assert!(tested || must.contains("Open:"), "{id} names no test and is not marked as open");
    }
}
