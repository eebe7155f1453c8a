//! From a checked statement to compiled expressions, once per job.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{DFSchema, DataFusionError};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::{Expr, LogicalPlan, Projection};
use datafusion_optimizer::Analyzer;
use datafusion_optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion_sql::planner::{ParserOptions, SqlToRel};
use datafusion_sql::sqlparser::ast::Statement;
use sharestream_core::coordinates;

use crate::error::from_planning;
use crate::functions::{Context, TABLE};
use crate::{SqlError, validate};

/// A statement ready to run.
#[derive(Debug)]
pub(crate) struct CompiledSelect {
    /// What a batch must look like: user columns, then the hidden ones.
    pub(crate) input_schema: SchemaRef,
    /// WHERE, over the input's columns.
    pub(crate) predicate: Option<Arc<dyn PhysicalExpr>>,
    /// Input columns that survive the filter: those that `outputs` read, then the hidden ones.
    pub(crate) needed: Vec<usize>,
    /// Schema of the needed columns.
    pub(crate) needed_schema: SchemaRef,
    /// The SELECT list, over the needed columns.
    pub(crate) outputs: Vec<Output>,
    /// Output columns, then the hidden ones.
    pub(crate) output_schema: SchemaRef,
}

/// One column of the SELECT list.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) expr: Arc<dyn PhysicalExpr>,
}

/// Plans `sql` over `input`.
pub(crate) fn compile(sql: &str, input: SchemaRef) -> Result<CompiledSelect, SqlError> {
    check_input(&input)?;
    let context = Context::new(input.clone());
    let statement = validate::parse(sql, &context)?;
    let user_columns = &input.fields()[..coordinates::user_column_count(&input)];
    let names: Vec<&str> = user_columns.iter().map(|field| field.name().as_str()).collect();
    compile_statement(statement, &context, input.clone()).map_err(|failure| match failure {
        Failure::Planning(error) => from_planning(&error, &names),
        Failure::Ours(error) => error,
    })
}

enum Failure {
    Planning(DataFusionError),
    Ours(SqlError),
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        Failure::Planning(error)
    }
}

/// The hidden columns must be where every task expects them.
fn check_input(input: &Schema) -> Result<(), SqlError> {
    let hidden = &input.fields()[coordinates::user_column_count(input)..];
    if hidden != coordinates::fields().as_slice() {
        return Err(SqlError::new("the input of a transform must end in the hidden coordinate columns"));
    }
    Ok(())
}

fn compile_statement(
    statement: Statement,
    context: &Context,
    input: SchemaRef,
) -> Result<CompiledSelect, Failure> {
    let parser_options = ParserOptions {
        collect_spans: true,
        // Strings stay what the decoders make of them.
        map_string_types_to_utf8view: false,
        ..ParserOptions::default()
    };
    let plan = SqlToRel::new_with_options(context, parser_options).sql_statement_to_plan(statement)?;
    let config = Arc::new(ConfigOptions::default());
    let coercion = Analyzer::with_rules(vec![Arc::new(TypeCoercion::new())]);
    let plan = coercion.execute_and_check(plan, &config, |_, _| {})?;

    let LogicalPlan::Projection(Projection { expr: list, input: below, schema: named, .. }) = &plan else {
        return Err(unexpected(&plan));
    };
    let (predicate, scan) = match below.as_ref() {
        LogicalPlan::Filter(filter) => (Some(&filter.predicate), filter.input.as_ref()),
        other => (None, other),
    };
    let columns = match scan {
        LogicalPlan::TableScan(scan) => &scan.projected_schema,
        LogicalPlan::SubqueryAlias(alias) => &alias.schema,
        other => return Err(unexpected(other)),
    };

    let simplifier = ExprSimplifier::new(
        SimplifyContext::builder().with_schema(columns.clone()).with_config_options(config.clone()).build(),
    );
    let mut execution = ExecutionProps::new();
    execution.config_options = Some(config);
    let compiler = Compiler { simplifier, execution, planning: PhysicalPlanningContext::default() };

    let predicate = predicate.map(|predicate| compiler.simplify(predicate.clone())).transpose()?;
    let predicate = predicate.map(|predicate| compiler.compile(&predicate, columns)).transpose()?;
    let list = list.iter().map(|expr| compiler.simplify(expr.clone())).collect::<Result<Vec<_>, _>>()?;

    let (needed, needed_columns) = needed_columns(&list, columns)?;
    let mut outputs = Vec::with_capacity(list.len());
    let mut output_fields = Vec::with_capacity(list.len() + coordinates::COLUMNS.len());
    for (expr, field) in list.iter().zip(named.fields()) {
        let name = field.name().clone();
        check_output_name(&name)?;
        let expr = compiler.compile(expr, &needed_columns)?;
        let schema = needed_columns.as_arrow();
        output_fields.push(Arc::new(Field::new(&name, expr.data_type(schema)?, expr.nullable(schema)?)));
        outputs.push(Output { name, expr });
    }
    output_fields.extend(coordinates::fields());
    Ok(CompiledSelect {
        input_schema: input,
        predicate,
        needed,
        needed_schema: Arc::new(needed_columns.as_arrow().clone()),
        outputs,
        output_schema: Arc::new(Schema::new(output_fields)),
    })
}

struct Compiler {
    simplifier: ExprSimplifier,
    execution: ExecutionProps,
    planning: PhysicalPlanningContext,
}

impl Compiler {
    fn simplify(&self, expr: Expr) -> Result<Expr, DataFusionError> {
        // The name is kept apart: simplifying may change what an expression would be called.
        self.simplifier.simplify(expr.unalias())
    }

    fn compile(&self, expr: &Expr, columns: &DFSchema) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
        create_physical_expr(expr, columns, &self.execution, &self.planning)
    }
}

/// Indexes and schema of the columns that the list reads, and of the hidden ones.
fn needed_columns(list: &[Expr], columns: &DFSchema) -> Result<(Vec<usize>, DFSchema), DataFusionError> {
    let user_count = columns.fields().len() - coordinates::COLUMNS.len();
    let mut read = BTreeSet::new();
    for expr in list {
        for column in expr.column_refs() {
            read.insert(columns.index_of_column(column)?);
        }
    }
    // Hidden columns are at the end anyway, in order.
    read.extend(user_count..columns.fields().len());
    let fields = read.iter().map(|index| {
        let (qualifier, field) = columns.qualified_field(*index);
        (qualifier.cloned(), field.clone())
    });
    let schema = DFSchema::new_with_metadata(fields.collect(), Default::default())?;
    Ok((read.into_iter().collect(), schema))
}

fn check_output_name(name: &str) -> Result<(), Failure> {
    if coordinates::is_reserved(name) {
        let plain = name.trim_start_matches('_');
        return Err(Failure::Ours(
            SqlError::new(format!("an output column cannot be named '{name}': that is a hidden column"))
                .hint(format!("write {name} AS {plain}")),
        ));
    }
    Ok(())
}

fn unexpected(plan: &LogicalPlan) -> Failure {
    let what = plan.display();
    Failure::Ours(SqlError::new(format!(
        "the statement needs more than a filter and a projection of {TABLE}: {what}"
    )))
}
