//! `sharestream-models`: runs the models and prints tables of what holds and what breaks.

mod args;

use std::process::ExitCode;

use sharestream_models::catalog::{configurations, removals};
use sharestream_models::report::{Expected, Row, json, markdown_table, table};
use sharestream_models::transactional;

use args::{Args, Format, HELP, Model, Request};

/// The command line was not understood.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(Request::Run(args)) => args,
        Ok(Request::Help) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("error: {message}\n\nFor all options try --help.");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let mut rows = configuration_rows(&args);
    if args.with_rules {
        rows.extend(rule_rows(&args));
    }
    print(&rows, &args);
    let unexpected = rows.iter().filter(|row| !row.is_as_expected()).count();
    if unexpected > 0 {
        eprintln!("{unexpected} of {} verdicts are not as expected", rows.len());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn configuration_rows(args: &Args) -> Vec<Row> {
    let mut rows = vec![];
    if args.wants(Model::Transactional) && args.only.is_none() {
        rows.extend(told(transactional::cases::configuration_rows(args.is_large)));
    }
    for check in configurations() {
        if args.wants_check(&check) {
            rows.extend(told(vec![check.run()]));
        }
    }
    rows
}

fn rule_rows(args: &Args) -> Vec<Row> {
    let mut rows = vec![];
    if args.wants(Model::Transactional) && args.only.is_none() {
        rows.extend(told(transactional::cases::rule_rows()));
    }
    for check in removals().iter().filter(|check| args.wants_check(check)) {
        rows.extend(told(vec![check.run()]));
    }
    rows
}

/// Says on the way what has come out, since a run may take minutes.
fn told(rows: Vec<Row>) -> Vec<Row> {
    for row in &rows {
        eprintln!("{}", row.summary());
    }
    rows
}

fn print(rows: &[Row], args: &Args) {
    let (rules, configurations): (Vec<_>, Vec<_>) =
        rows.iter().cloned().partition(|row| row.removed.is_some());
    match args.format {
        Format::Json => print!("{}", json(rows)),
        Format::Markdown => {
            for (name, rows) in [("configurations", &configurations), ("rules", &rules)] {
                if !rows.is_empty() {
                    println!("<!-- begin {name}: written by the command, do not edit -->");
                    print!("{}", markdown_table(rows));
                    println!("<!-- end {name} -->");
                }
            }
        }
        Format::Text => {
            print!("{}", table(&configurations));
            if !rules.is_empty() {
                print!("\n{}", table(&rules));
            }
            let broken =
                |row: &&Row| args.with_steps || !row.is_as_expected() && row.expected == Expected::Holds;
            for row in rows.iter().filter(broken).filter(|row| row.step_count().is_some()) {
                print!("\n{}\n{}", row.summary(), row.counterexample());
            }
        }
    }
}
