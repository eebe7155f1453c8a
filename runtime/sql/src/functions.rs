//! What a statement can name: one table and DataFusion's scalar functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{Result, TableReference, plan_err};
use datafusion_expr::logical_plan::builder::LogicalTableSource;
use datafusion_expr::planner::{ContextProvider, ExprPlanner};
use datafusion_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, TableSource, Volatility, WindowUDF};
use datafusion_functions::core::planner::CoreFunctionPlanner;
use datafusion_functions::datetime::planner::DatetimeFunctionPlanner;
use datafusion_functions::unicode::planner::UnicodeFunctionPlanner;

/// The only table.
pub(crate) const TABLE: &str = "source";

/// Aggregates and window functions that people will try, to refuse them by their kind and not as unknown.
const AGGREGATES: [&str; 27] = [
    "any_value",
    "approx_distinct",
    "approx_median",
    "approx_percentile_cont",
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar",
    "first_value",
    "grouping",
    "last_value",
    "max",
    "mean",
    "median",
    "min",
    "mode",
    "stddev",
    "stddev_pop",
    "string_agg",
    "sum",
    "var",
    "variance",
];
const WINDOWS: [&str; 9] =
    ["cume_dist", "dense_rank", "lag", "lead", "nth_value", "ntile", "percent_rank", "rank", "row_number"];

/// What a function name means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Scalar,
    /// Its result changes while the row stays the same.
    Volatile,
    Aggregate,
    Window,
    Unknown,
}

/// Table and functions, as the planner asks for them.
pub(crate) struct Context {
    table: Arc<dyn TableSource>,
    functions: BTreeMap<String, Arc<ScalarUDF>>,
    expr_planners: Vec<Arc<dyn ExprPlanner>>,
    options: ConfigOptions,
}

impl Context {
    pub(crate) fn new(input: SchemaRef) -> Self {
        let mut functions = BTreeMap::new();
        for function in datafusion_functions::all_default_functions() {
            for alias in function.aliases() {
                functions.insert(alias.clone(), function.clone());
            }
            functions.insert(function.name().to_owned(), function);
        }
        Context {
            table: Arc::new(LogicalTableSource::new(input)),
            functions,
            expr_planners: vec![
                Arc::new(CoreFunctionPlanner::default()),
                Arc::new(DatetimeFunctionPlanner),
                Arc::new(UnicodeFunctionPlanner),
            ],
            options: ConfigOptions::default(),
        }
    }

    /// What `name`, in lower case, means.
    pub(crate) fn meaning(&self, name: &str) -> Meaning {
        match self.functions.get(name).map(|function| function.signature().volatility) {
            Some(Volatility::Immutable) => Meaning::Scalar,
            Some(Volatility::Stable | Volatility::Volatile) => Meaning::Volatile,
            None if AGGREGATES.contains(&name) => Meaning::Aggregate,
            None if WINDOWS.contains(&name) => Meaning::Window,
            None => Meaning::Unknown,
        }
    }

    /// Names of the functions that can be used.
    pub(crate) fn usable_functions(&self) -> Vec<&str> {
        let usable = self.functions.iter();
        let usable = usable.filter(|(_, function)| function.signature().volatility == Volatility::Immutable);
        usable.map(|(name, _)| name.as_str()).collect()
    }
}

impl ContextProvider for Context {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        match name {
            TableReference::Bare { table } if &*table == TABLE => Ok(self.table.clone()),
            other => plan_err!("there is no table '{other}', only '{TABLE}'"),
        }
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.expr_planners
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.functions.get(name).cloned()
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, _name: &str) -> Option<Arc<AggregateUDF>> {
        None
    }

    fn get_window_meta(&self, _name: &str) -> Option<Arc<WindowUDF>> {
        None
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn udf_names(&self) -> Vec<String> {
        self.functions.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}
