//! Selection of messages by a subscription's filter in records that do not come from the store.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::message::record::RecordView;
use crate::message::sql::SqlFilter;
use crate::message::tag::TagCodes;
use crate::store::{CopyError, Room, UnitGroup, group_units};

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
}

impl RecordFilter {
    fn takes_tag(&self, tags_code: i64) -> bool {
        self.codes.matches(tags_code)
    }

    /// Returns whether a record matches whose tag may; false for an invalid record.
    fn takes(&self, record: &[u8]) -> bool {
        let Some(sql) = &self.sql else { return true };
        RecordView::parse(record).is_ok_and(|record| sql.matches(record.properties()))
    }
}

/// Messages of a queue whose records are close together in a copied file of the log.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct RecordGroup(UnitGroup);

/// The records that a group added to a page.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct SelectedRecords {
    /// How many messages.
    count: usize,
    /// Their records, one after the other.
    records: Py<PyBytes>,
    /// The offset of the first message without room; `None` if all had room.
    refused: Option<u64>,
}

#[pymethods]
impl RecordGroup {
    /// Group copied entries of a queue, the first of which has the offset `first`, so that at most `count_max`
    /// records of `bytes_max` are read together. [begin, end) is the range of the copied file. `accepts` leaves
    /// messages out by the hash of their tag; consumers compare tags. Raises `ValueError` for a damaged copy.
    #[staticmethod]
    #[pyo3(signature = (units, *, first, begin, end, count_max, bytes_max, accepts=None))]
    fn of(
        units: &[u8],
        first: u64,
        begin: u64,
        end: u64,
        count_max: usize,
        bytes_max: u64,
        accepts: Option<&RecordFilter>,
    ) -> PyResult<Vec<Self>> {
        let wanted = |code| accepts.is_none_or(|filter| filter.takes_tag(code));
        let groups =
            group_units(units, first, &(begin..end), count_max, bytes_max, wanted).map_err(damaged)?;
        Ok(groups.into_iter().map(Self).collect())
    }

    /// The offset of the first message.
    #[getter]
    fn first(&self) -> u64 {
        self.0.first()
    }

    /// The position of the first record in the log.
    #[getter]
    fn begin(&self) -> u64 {
        self.0.range().start
    }

    /// The position after the last one.
    #[getter]
    fn end(&self) -> u64 {
        self.0.range().end
    }

    /// Select records from the bytes [begin, end) of the log that match the filter: at most `count_left`, and of
    /// `bytes_left` together, or one if the page is empty. Raises `ValueError` if they are not the entries' records.
    #[pyo3(signature = (part, *, count_left, bytes_left, is_empty, accepts=None))]
    fn select<'py>(
        &self,
        part: &Bound<'py, PyBytes>,
        count_left: usize,
        bytes_left: usize,
        is_empty: bool,
        accepts: Option<&RecordFilter>,
    ) -> PyResult<SelectedRecords> {
        let bytes = part.as_bytes();
        let takes = |record: &[u8]| accepts.is_none_or(|filter| filter.takes(record));
        let room = Room { count: count_left, bytes: bytes_left, is_empty };
        let selected = self.0.select(bytes, room, takes).map_err(damaged)?;
        let records = match selected.parts.as_slice() {
            // Nothing lies between them: no copy.
            [whole] if *whole == (0..bytes.len()) => part.clone(),
            parts => {
                let parts: Vec<&[u8]> = parts.iter().filter_map(|range| bytes.get(range.clone())).collect();
                PyBytes::new(part.py(), &parts.concat())
            }
        };
        Ok(SelectedRecords { count: selected.count, records: records.unbind(), refused: selected.refused })
    }
}

fn damaged(error: CopyError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
