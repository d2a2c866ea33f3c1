//! Filter of a subscription for records that do not come from the store.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::message::record::RecordView;
use crate::message::sql::SqlFilter;
use crate::message::tag::TagCodes;

/// The filter of a subscription, as a broker applies it: by the hash of the tag in an entry of a queue, or by SQL92
/// on a record.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct RecordFilter {
    codes: TagCodes,
    sql: Option<SqlFilter>,
}

#[pymethods]
impl RecordFilter {
    /// `kind` is `TAG` or `SQL92`. Raises `ValueError` for an invalid expression.
    #[new]
    #[pyo3(signature = (expression, kind, *, strict=true))]
    fn new(expression: &str, kind: &str, strict: bool) -> PyResult<Self> {
        if kind != "SQL92" {
            let codes = TagCodes::parse(expression).map_err(|_| PyValueError::new_err("too many tags"))?;
            return Ok(Self { codes, sql: None });
        }
        let sql = SqlFilter::parse(expression, strict);
        let sql = sql.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { codes: TagCodes::All, sql: Some(sql) })
    }

    /// Return whether a message with this hash of its tag may match. Hashes may collide; consumers compare tags.
    fn takes_tag(&self, tags_code: i64) -> bool {
        self.codes.matches(tags_code)
    }

    /// Return whether a record matches whose tag may; False for an invalid record.
    fn takes(&self, record: &[u8]) -> bool {
        let Some(sql) = &self.sql else { return true };
        RecordView::parse(record).is_ok_and(|record| sql.matches(record.properties()))
    }
}
