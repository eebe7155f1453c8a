//! SQL transforms, planned once by DataFusion and evaluated per batch. The only crate that knows DataFusion.
//!
//! A transform is one stateless `SELECT ... FROM source [WHERE ...]`. It is parsed, checked, typed and simplified
//! once per job; what runs per batch is a compiled filter and compiled projections, nothing else:
//!
//! ```text
//! text --parse--> AST --validate--> AST --SqlToRel, type coercion--> plan --simplify, compile--> expressions
//!                                                                                                    |
//! batch --WHERE on all rows--> mask --filter needed columns only--> narrow batch --projections--> output batch
//!                  |                                                                   |
//!                  +------------------ rows that fail, one by one: rejected -----------+
//! ```
//!
//! - `*` means the user's columns. The hidden coordinate columns ([`sharestream_core::coordinates`]) pass through
//!   whatever the SELECT lists; an expression can use them by name, but its output needs another name.
//! - The result of a row depends on that row alone, so that it is the same when the row is processed again:
//!   functions like `now()` or `random()` are refused, with a hint.
//! - A row whose evaluation fails (a cast, a division by zero) is rejected alone, with the expression named.
//! - DataFusion's planner and physical expressions are used without the `datafusion` crate: no execution plans, no
//!   catalog, no file formats (ADR 0003).
//!
//! ```
//! use std::sync::Arc;
//! use arrow_schema::{DataType, Field, Schema};
//! use sharestream_core::coordinates;
//! use sharestream_core::operator::OperatorFactory;
//! use sharestream_sql::SqlTransform;
//!
//! let columns = Schema::new(vec![
//!     Field::new("carrier", DataType::Utf8, false),
//!     Field::new("dep_delay", DataType::Int32, true),
//! ]);
//! let input = coordinates::with_coordinates(&columns);
//! let sql = "SELECT carrier, dep_delay / 60.0 AS hours FROM source WHERE dep_delay > 15";
//! let transform = SqlTransform::plan(sql, input.clone())?;
//! assert_eq!(transform.output_schema(input).unwrap().field(1).name(), "hours");
//!
//! let error = SqlTransform::plan("SELECT carier FROM source", coordinates::with_coordinates(&columns)).unwrap_err();
//! assert_eq!(error.to_string(), "line 1 column 8: no column 'carier' in source (did you mean carrier?)");
//! # Ok::<(), sharestream_sql::SqlError>(())
//! ```

mod error;
mod evaluate;
mod functions;
mod planner;
mod row_errors;
mod transform;
mod validate;

pub use error::SqlError;
pub use transform::SqlTransform;
