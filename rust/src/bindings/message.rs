//! `Message`: an immutable message to send, validated on construction.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMappingProxy, PyMemoryView, PyString, PyTuple};

use super::ext;
use crate::client::message_fields::{self, Delivery, MessageFields};
use crate::message::tag::java_hash;

/// Body bytes that `repr` shows.
const REPR_BYTES: usize = 64;

/// The arguments of a message that have a default, except properties.
const FIELDS: &[&str] = &[
    "tag",
    "keys",
    "sharding_key",
    "deliver_at",
    "deliver_after",
    "delay_level",
    "priority",
    "lite_topic",
    "flag",
];

pub(super) const EMPTY_BODY: &str =
    "the body is empty: brokers accept that only with a key, which the message deletes in a compacted topic";

/// A message to send. Immutable, comparable by value, picklable.
///
/// `body` may be text, which is sent as UTF-8; `keys` is one word or several. At most one of the delays may be given:
/// `deliver_at` (a `datetime`, or seconds since the epoch), `deliver_after` (a `timedelta`, or seconds) or
/// `delay_level`. Each argument is also an attribute. Raises `ValueError` for what brokers refuse: a bad topic name,
/// a reserved property, an empty body without keys.
///
/// >>> message = Message("orders", "paid in full", tag="paid", keys="A-1", properties={"colour": "red"})
/// >>> message.body, message.keys, dict(message.properties)
/// (b'paid in full', ('A-1',), {'colour': 'red'})
#[pyclass(frozen, module = "rmqpy", name = "Message")]
pub(super) struct Message {
    pub(super) fields: MessageFields,
    body: Py<PyBytes>,
}

impl Message {
    pub(super) fn body_bytes<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        self.body.bind(py).as_bytes()
    }
}

#[pymethods]
impl Message {
    #[new]
    #[pyo3(signature = (topic, body, *, tag=None, keys=None, properties=None, sharding_key=None, deliver_at=None,
                        deliver_after=None, delay_level=None, priority=None, lite_topic=None, flag=0))]
    fn new(
        topic: String,
        body: &Bound<'_, PyAny>,
        tag: Option<String>,
        keys: Option<&Bound<'_, PyAny>>,
        properties: Option<&Bound<'_, PyAny>>,
        sharding_key: Option<String>,
        deliver_at: Option<&Bound<'_, PyAny>>,
        deliver_after: Option<&Bound<'_, PyAny>>,
        delay_level: Option<i32>,
        priority: Option<i32>,
        lite_topic: Option<String>,
        flag: i32,
    ) -> PyResult<Self> {
        let fields = MessageFields {
            topic,
            tag,
            keys: keys.map_or_else(|| Ok(Vec::new()), words)?,
            properties: properties.map_or_else(|| Ok(Vec::new()), property_pairs)?,
            sharding_key,
            delivery: delivery(deliver_at, deliver_after, delay_level)?,
            priority,
            lite_topic,
            flag,
        };
        fields.check().map_err(|error| PyValueError::new_err(error.to_string()))?;
        let body = bytes_of(body)?;
        if body.as_bytes().is_empty() && fields.keys.is_empty() {
            return Err(PyValueError::new_err(EMPTY_BODY));
        }
        Ok(Self { fields, body: body.unbind() })
    }

    /// The topic it is sent to.
    #[getter]
    fn topic(&self) -> &str {
        &self.fields.topic
    }

    /// The bytes; text is encoded as UTF-8.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.body.bind(py).clone()
    }

    /// A word that consumers can filter by.
    #[getter]
    fn tag(&self) -> Option<&str> {
        self.fields.tag.as_deref()
    }

    /// Words that can be queried to find the message.
    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.fields.keys)
    }

    /// The user's properties, without those that the library and brokers add.
    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMappingProxy>> {
        Ok(PyMappingProxy::new(py, self.property_dict(py)?.as_mapping()))
    }

    /// Messages with equal keys go to one queue, in order.
    #[getter]
    fn sharding_key(&self) -> Option<&str> {
        self.fields.sharding_key.as_deref()
    }

    /// Java's hash of the sharding key.
    #[getter]
    fn sharding_hash(&self) -> Option<i32> {
        self.fields.sharding_key.as_deref().map(|key| java_hash(key.as_bytes()))
    }

    /// The delivery time in seconds since the epoch.
    #[getter]
    fn deliver_at(&self) -> Option<f64> {
        match self.fields.delivery {
            Some(Delivery::At(ms)) => Some(ms as f64 / 1000.0),
            _ => None,
        }
    }

    /// The delay in seconds from the broker's receipt.
    #[getter]
    fn deliver_after(&self) -> Option<f64> {
        match self.fields.delivery {
            Some(Delivery::After(ms)) => Some(ms as f64 / 1000.0),
            _ => None,
        }
    }

    /// The number, from 1, of a delay in the broker's configuration.
    #[getter]
    fn delay_level(&self) -> Option<i32> {
        match self.fields.delivery {
            Some(Delivery::Level(level)) => Some(level),
            _ => None,
        }
    }

    /// The priority: the number of the queue, or of the last one if it is larger.
    #[getter]
    fn priority(&self) -> Option<i32> {
        self.fields.priority
    }

    /// The lite topic that it belongs to, one of those of its topic.
    #[getter]
    fn lite_topic(&self) -> Option<&str> {
        self.fields.lite_topic.as_deref()
    }

    /// A number for the application's use.
    #[getter]
    fn flag(&self) -> i32 {
        self.fields.flag
    }

    /// Whether it has no sharding key, time, priority or lite topic.
    #[getter]
    fn _is_plain(&self) -> bool {
        self.fields.is_plain()
    }

    /// The size of body and properties in bytes, before compression.
    #[getter]
    fn size(&self, py: Python<'_>) -> usize {
        self.body.bind(py).as_bytes().len() + self.fields.properties_bytes()
    }

    /// Whether RocketMQ reserves this property name.
    ///
    /// >>> Message.is_reserved("TAGS"), Message.is_reserved("colour")
    /// (True, False)
    #[staticmethod]
    fn is_reserved(name: &str) -> bool {
        message_fields::is_reserved(name)
    }

    /// Return a copy with some arguments changed.
    ///
    /// >>> Message("orders", b"x", tag="new").replace(tag="paid").tag
    /// 'paid'
    #[pyo3(signature = (**changes))]
    fn replace<'py>(
        slf: &Bound<'py, Self>,
        changes: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let arguments = arguments(slf)?;
        if let Some(changes) = changes {
            let is_delivery = |name: &str| matches!(name, "deliver_at" | "deliver_after" | "delay_level");
            for (name, value) in changes.iter() {
                // The three delays exclude each other: setting one drops the others.
                if is_delivery(name.cast::<PyString>()?.to_cow()?.as_ref()) && !value.is_none() {
                    for other in ["deliver_at", "deliver_after", "delay_level"] {
                        arguments.set_item(other, py.None())?;
                    }
                }
            }
            arguments.update(changes.as_mapping())?;
        }
        slf.get_type().call((), Some(&arguments))
    }

    /// Return a copy with reserved properties, for use by the library.
    fn _with_reserved(&self, py: Python<'_>, properties: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut fields = self.fields.clone();
        fields.properties.extend(property_pairs(properties)?);
        fields.check_size().map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { fields, body: self.body.clone_ref(py) })
    }

    fn __getnewargs_ex__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        Ok((PyTuple::empty(slf.py()), arguments(slf)?))
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| {
            let other = other.get();
            self.fields == other.fields && self.body.bind(py).as_bytes() == other.body.bind(py).as_bytes()
        })
    }

    fn __hash__(&self, py: Python<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.fields.hash(&mut hasher);
        self.body.bind(py).as_bytes().hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (py, message) = (slf.py(), slf.get());
        let (topic, body) = (repr_text(py, &message.fields.topic)?, repr_body(message.body.bind(py))?);
        let mut text = format!("Message({topic}, {body}");
        for name in FIELDS {
            let value = slf.getattr(*name)?;
            if value.is_truthy()? {
                text.push_str(&format!(", {name}={}", value.repr()?));
            }
        }
        if !message.fields.properties.is_empty() {
            text.push_str(&format!(", properties={}", message.property_dict(py)?.repr()?));
        }
        text.push(')');
        Ok(text)
    }
}

impl Message {
    fn property_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ext::dict(py, &self.fields.properties)
    }
}

/// Returns the constructor arguments of an equal message.
fn arguments<'py>(message: &Bound<'py, Message>) -> PyResult<Bound<'py, PyDict>> {
    let arguments = PyDict::new(message.py());
    for name in ["topic", "body"].iter().chain(FIELDS) {
        arguments.set_item(name, message.getattr(*name)?)?;
    }
    // A view cannot be pickled.
    arguments.set_item("properties", message.get().property_dict(message.py())?)?;
    Ok(arguments)
}

/// Returns `bytes` unchanged, text as UTF-8, and any other buffer as a copy.
pub(super) fn bytes_of<'py>(body: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = body.cast_exact::<PyBytes>() {
        return Ok(bytes.clone());
    }
    if let Ok(text) = body.cast::<PyString>() {
        return text.encode_utf8();
    }
    let view = PyMemoryView::from(body)
        .map_err(|_| wrong_type("body", "bytes, bytearray, memoryview or str", body))?;
    Ok(view.call_method0("tobytes")?.cast_into::<PyBytes>()?)
}

fn words(keys: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(word) = keys.cast::<PyString>() {
        return Ok(vec![word.to_cow()?.into_owned()]);
    }
    let expected = "str or several of them";
    let several = keys.try_iter().map_err(|_| wrong_type("keys", expected, keys))?;
    several
        .map(|key| {
            let key = key?;
            key.extract().map_err(|_| wrong_type("keys", expected, &key))
        })
        .collect()
}

fn property_pairs(properties: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let expected = "a mapping of str to str";
    let items =
        properties.call_method0("items").map_err(|_| wrong_type("properties", expected, properties))?;
    items
        .try_iter()?
        .map(|pair| {
            let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
            let text = |one: &Bound<'_, PyAny>| {
                one.extract::<String>().map_err(|_| wrong_type("properties", expected, one))
            };
            Ok((text(&name)?, text(&value)?))
        })
        .collect()
}

/// Returns an error that names the argument, its expected type and its actual type.
pub(super) fn wrong_type(argument: &str, expected: &str, value: &Bound<'_, PyAny>) -> PyErr {
    match value.get_type().name() {
        Ok(name) => PyTypeError::new_err(format!("{argument} must be {expected}, not {name}")),
        Err(broken) => broken,
    }
}

fn delivery(
    at: Option<&Bound<'_, PyAny>>,
    after: Option<&Bound<'_, PyAny>>,
    level: Option<i32>,
) -> PyResult<Option<Delivery>> {
    match (at, after, level) {
        (None, None, None) => Ok(None),
        (Some(at), None, None) => Ok(Some(Delivery::At(milliseconds(
            "deliver_at",
            at,
            "timestamp",
            "a datetime or seconds since the epoch",
        )?))),
        (None, Some(after), None) => Ok(Some(Delivery::After(milliseconds(
            "deliver_after",
            after,
            "total_seconds",
            "a timedelta or seconds",
        )?))),
        (None, None, Some(level)) => Ok(Some(Delivery::Level(level))),
        _ => Err(PyValueError::new_err("give one of deliver_at, deliver_after and delay_level")),
    }
}

/// Converts seconds, or an object with the given method, to milliseconds.
fn milliseconds(argument: &str, value: &Bound<'_, PyAny>, method: &str, expected: &str) -> PyResult<i64> {
    let number = if value.hasattr(method)? { value.call_method0(method)? } else { value.clone() };
    let seconds: f64 = number.extract().map_err(|_| wrong_type(argument, expected, value))?;
    if !seconds.is_finite() {
        return Err(PyValueError::new_err(format!("{argument} must be finite")));
    }
    Ok((seconds * 1000.0).round() as i64)
}

fn repr_text(py: Python<'_>, text: &str) -> PyResult<String> {
    Ok(PyString::new(py, text).repr()?.to_cow()?.into_owned())
}

/// Returns the body's Python repr, shortened to fit a log line.
pub(super) fn repr_body(body: &Bound<'_, PyBytes>) -> PyResult<String> {
    let bytes = body.as_bytes();
    let Some(start) = bytes.get(..REPR_BYTES).filter(|start| start.len() < bytes.len()) else {
        return Ok(body.repr()?.to_cow()?.into_owned());
    };
    let shown = PyBytes::new(body.py(), start).repr()?.to_cow()?.into_owned();
    Ok(format!("{shown}... ({} bytes)", bytes.len()))
}
