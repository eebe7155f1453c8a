//! The command line, which has too few words to need a parser.

use sharestream_models::catalog::Check;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Explores the models of the exactly-once protocols and prints what holds and what breaks.

Usage: sharestream-models [MODEL...] [OPTIONS]

Models (default: all)
  transactional   one transaction commits outputs and acknowledgements
  ledger          claims in one log decide who may commit
  rollout         ledger and transactional replicas in one group
  waits           replicas that wait for each other

Options
  --rules      also leave out each rule, and show the property that breaks
  --steps      print every counterexample, step by step
  --large      also the configurations that take minutes and gigabytes
  --only TEXT  of ledger, rollout and waits only configurations with TEXT in their words
  --json       one JSON array
  --markdown   the tables of docs/models.md, without times
  --help       this text

Exit code: 0 all verdicts are as expected, 1 one is not, 2 the command line was not understood.
";

/// A model of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Model {
    Transactional,
    Ledger,
    Rollout,
    Waits,
}

impl Model {
    const ALL: [Model; 4] = [Model::Transactional, Model::Ledger, Model::Rollout, Model::Waits];

    fn name(self) -> &'static str {
        match self {
            Model::Transactional => "transactional",
            Model::Ledger => "ledger",
            Model::Rollout => "rollout",
            Model::Waits => "waits",
        }
    }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
    Markdown,
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Args {
    models: Vec<Model>,
    pub(crate) with_rules: bool,
    pub(crate) with_steps: bool,
    pub(crate) is_large: bool,
    pub(crate) only: Option<String>,
    pub(crate) format: Format,
}

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Run(Args),
    Help,
}

impl Args {
    /// Reads the arguments after the command's own name. Errors are sentences for the user.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Request, String> {
        let mut args = Args {
            models: vec![],
            with_rules: false,
            with_steps: false,
            is_large: false,
            only: None,
            format: Format::Text,
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" | "-h" => return Ok(Request::Help),
                "--rules" => args.with_rules = true,
                "--steps" => args.with_steps = true,
                "--large" => args.is_large = true,
                "--only" => args.only = Some(words.next().ok_or("--only needs a text")?),
                "--json" | "--markdown" if args.format != Format::Text => {
                    return Err("--json and --markdown exclude each other".to_owned());
                }
                "--json" => args.format = Format::Json,
                "--markdown" => args.format = Format::Markdown,
                other => match Model::ALL.into_iter().find(|model| model.name() == other) {
                    Some(model) => args.models.push(model),
                    None => return Err(unknown(other)),
                },
            }
        }
        Ok(Request::Run(args))
    }

    /// Whether a model is to be run.
    pub(crate) fn wants(&self, model: Model) -> bool {
        self.models.is_empty() || self.models.contains(&model)
    }

    /// Whether a check of the catalog is to be run.
    pub(crate) fn wants_check(&self, check: &Check) -> bool {
        let is_model = Model::ALL.into_iter().any(|model| model.name() == check.model && self.wants(model));
        let has_text = self.only.as_ref().is_none_or(|text| check.configuration().contains(text));
        is_model && has_text && (self.is_large || !check.is_large)
    }
}

/// What is known, models first.
const WORDS: [&str; 11] = [
    "transactional",
    "ledger",
    "rollout",
    "waits",
    "--rules",
    "--steps",
    "--large",
    "--only",
    "--json",
    "--markdown",
    "--help",
];

fn unknown(word: &str) -> String {
    let kind = if word.starts_with('-') { "option" } else { "model" };
    let nearest = WORDS.into_iter().min_by_key(|known| distance(word, known));
    match nearest.filter(|known| distance(word, known) <= known.len() / 2) {
        Some(known) => format!("unknown {kind} \"{word}\"; did you mean \"{known}\"?"),
        None => format!("unknown {kind} \"{word}\""),
    }
}

/// Number of letters to insert, delete or replace to turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request, String> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn without_a_model_all_are_run() {
        let Ok(Request::Run(args)) = parse("--rules") else { panic!("must be understood") };
        assert!(args.with_rules && Model::ALL.into_iter().all(|model| args.wants(model)));
    }

    #[test]
    fn a_named_model_excludes_the_others() {
        let Ok(Request::Run(args)) = parse("waits --large") else { panic!("must be understood") };
        assert!(args.is_large && args.wants(Model::Waits) && !args.wants(Model::Ledger));
    }

    #[test]
    fn a_typo_gets_a_hint() {
        assert_eq!(parse("legder"), Err("unknown model \"legder\"; did you mean \"ledger\"?".to_owned()));
        assert_eq!(parse("--ruels"), Err("unknown option \"--ruels\"; did you mean \"--rules\"?".to_owned()));
        assert_eq!(parse("--zzzzzzzzzzz"), Err("unknown option \"--zzzzzzzzzzz\"".to_owned()));
    }

    #[test]
    fn only_needs_its_text() {
        assert_eq!(parse("--only"), Err("--only needs a text".to_owned()));
        let Ok(Request::Run(args)) = parse("--only slots") else { panic!("must be understood") };
        assert_eq!(args.only, Some("slots".to_owned()));
    }

    #[test]
    fn two_formats_are_refused() {
        assert!(parse("--json --markdown").is_err());
    }

    #[test]
    fn help_names_every_word() {
        assert!(WORDS.into_iter().all(|word| HELP.contains(word)));
    }
}
