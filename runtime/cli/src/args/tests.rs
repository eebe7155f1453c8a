//! The command line.

use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn steps_are_read_by_their_stable_names() {
    for step in CommitStep::ALL {
        assert_eq!(parse_step(&step_name(step)), Ok(step));
    }
    let crash = "between_staged_leaders:3".parse::<CrashAt>();
    assert_eq!(crash, Ok(CrashAt { step: CommitStep::BetweenStagedLeaders, count: 3 }));
    assert!("after_staging:0".parse::<CrashAt>().is_err());
    assert!("sometime".parse::<CrashAt>().unwrap_err().contains("after_staging"));
}

#[test]
fn the_demo_of_the_readme_parses() {
    let cli =
        Cli::try_parse_from(["sharestream", "demo", "--crashes", "3", "--mode", "at-least-once", "--json"]);
    let Command::Demo(demo) = cli.unwrap().command else { panic!("demo was asked for") };
    assert_eq!((demo.crashes, demo.mode, demo.json), (3, Mode::AtLeastOnce, true));
    let defaults = Cli::try_parse_from(["sharestream", "demo"]).unwrap().command;
    let Command::Demo(defaults) = defaults else { panic!("demo was asked for") };
    assert_eq!((defaults.crashes, defaults.mode, defaults.seed), (12, Mode::Auto, None));
    let outside = ["sharestream", "demo", "--brokers", "a:1,b:2", "--mode", "ledger", "--keep"];
    let Command::Demo(outside) = Cli::try_parse_from(outside).unwrap().command else {
        panic!("demo was asked for")
    };
    assert_eq!((outside.brokers.len(), outside.mode, outside.keep), (2, Mode::Ledger, true));
}
