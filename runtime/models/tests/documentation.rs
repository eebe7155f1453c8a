//! The tables in `docs/models.md` are those of the command: they list every configuration and every rule.

use sharestream_models::catalog::{configurations, removals};
use sharestream_models::rules::Rule;
use sharestream_models::transactional;

const DOCUMENT: &str = include_str!("../../../docs/models.md");

/// The part of the document that the command wrote under `name`.
fn table(name: &str) -> &'static str {
    let begin = format!("<!-- begin {name}: written by the command, do not edit -->");
    let end = format!("<!-- end {name} -->");
    let after = DOCUMENT.split(&begin).nth(1).expect("the document has the table's first line");
    after.split(&end).next().expect("a split has at least one part")
}

#[test]
fn every_rule_is_in_the_table() {
    let rules = table("rules");
    for rule in Rule::ALL {
        assert!(rules.contains(&format!("| {} |", rule.name())), "{} is missing", rule.name());
    }
    for removal in transactional::removals::all() {
        assert!(rules.contains(removal.rule), "{} is missing", removal.rule);
    }
}

#[test]
fn every_configuration_is_in_the_table() {
    let (holding, rules) = (table("configurations"), table("rules"));
    for check in configurations().iter().filter(|check| !check.is_large) {
        assert!(holding.contains(&check.configuration()), "{} is missing", check.configuration());
    }
    for check in removals() {
        assert!(rules.contains(&check.configuration()), "{} is missing", check.configuration());
    }
    for configuration in transactional::configurations::all() {
        assert!(holding.contains(configuration.name), "{} is missing", configuration.name);
    }
}

#[test]
fn no_table_shows_a_verdict_that_was_not_expected() {
    assert!(!DOCUMENT.contains("NOT AS EXPECTED"));
}
