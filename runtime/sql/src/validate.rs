//! Is it one stateless `SELECT ... FROM source [WHERE ...]`? Everything else is refused by its name, with what to do
//! instead, before the planner sees it.
//!
//! The statement is also rewritten where our meaning differs from plain SQL: `*` leaves the hidden columns out, and
//! an output without a name is named by its text.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Distinct, ExceptSelectItem, ExcludeSelectItem, Expr, FunctionArguments, GroupByExpr, Ident, ObjectName,
    Query, Select, SelectItem, SetExpr, Statement, TableFactor, TableWithJoins, Value, Visit, Visitor,
    WildcardAdditionalOptions,
};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::parser::Parser;
use sharestream_core::coordinates;

use crate::SqlError;
use crate::error::nearest;
use crate::functions::{Context, Meaning, TABLE};

const SHAPE: &str = "a transform is SELECT columns FROM source [WHERE condition]";
const STATELESS: &str = "each row is transformed alone; a sink's consumer can combine rows";

/// Parses and checks `sql`, and rewrites it for the planner.
pub(crate) fn parse(sql: &str, context: &Context) -> Result<Statement, SqlError> {
    let mut statements =
        Parser::parse_sql(&GenericDialect {}, sql).map_err(|error| at_end(sql, error.into()))?;
    let (Some(statement), true) = (statements.pop(), statements.is_empty()) else {
        return Err(SqlError::new("expected exactly one statement").hint(SHAPE));
    };
    let Statement::Query(mut query) = statement else {
        let keyword = sql.split_whitespace().next().unwrap_or_default().to_uppercase();
        return Err(SqlError::new(format!("{keyword} is no transform")).at(&statement).hint(SHAPE));
    };
    let select = only_select(&mut query)?;
    check_clauses(select)?;
    check_from(&select.from)?;
    let mut checker = ExprChecker { context };
    for visited in [select.projection.visit(&mut checker), select.selection.visit(&mut checker)] {
        if let ControlFlow::Break(error) = visited {
            return Err(error);
        }
    }
    select.projection.iter_mut().try_for_each(rewrite_item)?;
    Ok(Statement::Query(query))
}

/// Where the parser names no place, the statement ended too early.
fn at_end(sql: &str, error: SqlError) -> SqlError {
    let last = sql.lines().last().unwrap_or_default();
    match error.line {
        Some(_) => error,
        None => error.at_location(sql.lines().count() as u64, last.chars().count() as u64 + 1),
    }
}

fn refuse(what: &str, hint: &str) -> SqlError {
    SqlError::new(format!("{what} is not supported")).hint(hint)
}

/// The SELECT of a query that is nothing else.
fn only_select(query: &mut Query) -> Result<&mut Select, SqlError> {
    if let Some(with) = &query.with {
        return Err(refuse("WITH", "write one SELECT; put the expressions in its list").at(with));
    }
    if let Some(order_by) = &query.order_by {
        return Err(
            refuse("ORDER BY", "a stream has no end to sort by; sort where the output is read").at(order_by)
        );
    }
    if let Some(limit) = &query.limit_clause {
        let hint = "a job runs until it is stopped; filter with WHERE";
        return Err(refuse("LIMIT", hint).at(limit));
    }
    if query.fetch.is_some() {
        return Err(refuse("FETCH", "a job runs until it is stopped; filter with WHERE"));
    }
    let rare = [
        (!query.locks.is_empty(), "FOR UPDATE"),
        (query.for_clause.is_some(), "FOR"),
        (query.settings.is_some(), "SETTINGS"),
        (query.format_clause.is_some(), "FORMAT"),
        (!query.pipe_operators.is_empty(), "|>"),
    ];
    if let Some((_, what)) = rare.iter().find(|(present, _)| *present) {
        return Err(refuse(what, SHAPE));
    }
    match query.body.as_mut() {
        SetExpr::Select(select) => Ok(select),
        SetExpr::SetOperation { op, left, .. } => {
            let hint = "run one job for each SELECT, or list all topics in the job's source";
            Err(refuse(&op.to_string(), hint).at(left.as_ref()))
        }
        SetExpr::Query(inner) => only_select(inner),
        SetExpr::Values(values) => Err(refuse("VALUES", SHAPE).at(values)),
        SetExpr::Table(_) => Err(refuse("TABLE", "write SELECT * FROM source")),
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
            Err(refuse("changing a table", SHAPE))
        }
    }
}

fn check_clauses(select: &Select) -> Result<(), SqlError> {
    match &select.distinct {
        None | Some(Distinct::All) => {}
        Some(Distinct::Distinct | Distinct::On(_)) => {
            return Err(refuse("DISTINCT", STATELESS).at(&select.select_token.0));
        }
    }
    match &select.group_by {
        GroupByExpr::Expressions(exprs, modifiers) if exprs.is_empty() && modifiers.is_empty() => {}
        group_by @ (GroupByExpr::Expressions(..) | GroupByExpr::All(_)) => {
            return Err(refuse("GROUP BY", STATELESS).at(group_by));
        }
    }
    if let Some(having) = &select.having {
        return Err(refuse("HAVING", "filter rows with WHERE").at(having));
    }
    if let Some(qualify) = &select.qualify {
        return Err(refuse("QUALIFY", "filter rows with WHERE").at(qualify));
    }
    let rare = [
        (select.top.is_some(), "TOP"),
        (select.into.is_some(), "INTO"),
        (select.exclude.is_some(), "EXCLUDE behind the list (write * EXCLUDE (column))"),
        (select.select_modifiers.is_some(), "a SELECT modifier"),
        (select.prewhere.is_some(), "PREWHERE"),
        (!select.lateral_views.is_empty(), "LATERAL VIEW"),
        (!select.connect_by.is_empty(), "CONNECT BY"),
        (!select.cluster_by.is_empty(), "CLUSTER BY"),
        (!select.distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!select.sort_by.is_empty(), "SORT BY"),
        (!select.named_window.is_empty(), "WINDOW"),
        (select.value_table_mode.is_some(), "SELECT AS STRUCT or VALUE"),
    ];
    match rare.iter().find(|(present, _)| *present) {
        Some((_, what)) => Err(refuse(what, SHAPE).at(&select.select_token.0)),
        None => Ok(()),
    }
}

fn check_from(from: &[TableWithJoins]) -> Result<(), SqlError> {
    let join_hint = "a transform reads one stream; look the value up in a Rust operator";
    let table = match from {
        [] => return Err(SqlError::new("FROM source is missing").hint(SHAPE)),
        [table] => table,
        [_, second, ..] => return Err(refuse("a join", join_hint).at(second)),
    };
    if let [join, ..] = table.joins.as_slice() {
        return Err(refuse("JOIN", join_hint).at(join));
    }
    let TableFactor::Table {
        name,
        alias,
        args,
        with_hints,
        version,
        with_ordinality,
        partitions,
        json_path,
        sample,
        ..
    } = &table.relation
    else {
        let what = match &table.relation {
            TableFactor::Derived { .. } => "a subquery in FROM",
            _ => "anything but the table source in FROM",
        };
        return Err(refuse(what, SHAPE).at(&table.relation));
    };
    let is_source = match name.0.as_slice() {
        [part] => part.as_ident().is_some_and(|ident| folded(ident) == TABLE),
        _ => false,
    };
    if !is_source {
        return Err(SqlError::new(format!("there is no table '{name}'"))
            .at(name)
            .hint(format!("the job's input is the table {TABLE}")));
    }
    let decorated = args.is_some()
        || !with_hints.is_empty()
        || version.is_some()
        || *with_ordinality
        || !partitions.is_empty()
        || json_path.is_some()
        || sample.is_some()
        || alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
    if decorated {
        return Err(refuse("anything behind the table name but an alias", SHAPE).at(name));
    }
    Ok(())
}

/// Unquoted names are read as lower case.
fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// Refuses what cannot be computed from one row.
struct ExprChecker<'a> {
    context: &'a Context,
}

impl Visitor for ExprChecker<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        ControlFlow::Break(
            refuse("a subquery", "write the condition or value as an expression on the row").at(query),
        )
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        match expr {
            Expr::Function(function) => {
                let name = function.name.to_string().to_lowercase();
                if function.over.is_some() {
                    return ControlFlow::Break(
                        refuse(&format!("the window function {name}"), STATELESS).at(expr),
                    );
                }
                if matches!(function.args, FunctionArguments::Subquery(_)) {
                    return ControlFlow::Continue(()); // refused when the subquery is visited
                }
                match self.check_function(&name) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => ControlFlow::Break(error.at(&function.name)),
                }
            }
            Expr::Exists { .. } | Expr::Subquery(_) | Expr::InSubquery { .. } => {
                let hint = "write the condition or value as an expression on the row";
                ControlFlow::Break(refuse("a subquery", hint).at(expr))
            }
            Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => {
                ControlFlow::Break(refuse("a placeholder", "write the value into the statement").at(expr))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

impl ExprChecker<'_> {
    fn check_function(&self, name: &str) -> Result<(), SqlError> {
        match self.context.meaning(name) {
            Meaning::Scalar => Ok(()),
            Meaning::Aggregate => Err(refuse(&format!("the aggregate {name}"), STATELESS)),
            Meaning::Window => Err(refuse(&format!("the window function {name}"), STATELESS)),
            Meaning::Volatile => {
                let hint = format!(
                    "a row must give the same result when it is processed again; {} is the record's time, {} with {} \
                     and {} its identity",
                    coordinates::TIMESTAMP,
                    coordinates::TOPIC,
                    coordinates::PARTITION,
                    coordinates::OFFSET
                );
                Err(refuse(&format!("{name}()"), &hint))
            }
            Meaning::Unknown => {
                let near = nearest(name, &self.context.usable_functions());
                let error = SqlError::new(format!("there is no function '{name}'"));
                Err(match near.is_empty() {
                    true => error,
                    false => error.hint(format!("did you mean {}?", near.join(" or "))),
                })
            }
        }
    }
}

fn rewrite_item(item: &mut SelectItem) -> Result<(), SqlError> {
    match item {
        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => exclude_hidden(options),
        SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => Ok(()),
        SelectItem::UnnamedExpr(expr) => {
            let alias = Ident::with_quote('"', expr.to_string());
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            Ok(())
        }
        SelectItem::ExprWithAlias { .. } => Ok(()),
        SelectItem::ExprWithAliases { expr, .. } => {
            Err(refuse("more than one alias for a column", "list the columns one by one").at(expr))
        }
    }
}

/// Adds the hidden columns to what `*` leaves out.
fn exclude_hidden(options: &mut WildcardAdditionalOptions) -> Result<(), SqlError> {
    if let Some(alias) = &options.opt_alias {
        let start = alias.span.start;
        let error = refuse("an alias for *", "name single columns with AS");
        return Err(error.at_location(start.line, start.column));
    }
    if options.opt_rename.is_some() {
        return Err(refuse("* RENAME", "write * EXCLUDE (column), column AS name"));
    }
    let mut excluded = match options.opt_exclude.take() {
        None => Vec::new(),
        Some(ExcludeSelectItem::Single(name)) => vec![name],
        Some(ExcludeSelectItem::Multiple(names)) => names,
    };
    if let Some(ExceptSelectItem { first_element, additional_elements }) = options.opt_except.take() {
        let except = std::iter::once(first_element).chain(additional_elements);
        excluded.extend(except.map(|ident| ObjectName::from(vec![ident])));
    }
    for hidden in coordinates::COLUMNS {
        let listed = excluded.iter().any(|name| name.to_string().eq_ignore_ascii_case(hidden));
        if !listed {
            excluded.push(ObjectName::from(vec![Ident::new(hidden)]));
        }
    }
    options.opt_exclude = Some(ExcludeSelectItem::Multiple(excluded));
    Ok(())
}
