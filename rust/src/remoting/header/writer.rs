//! Header writer: writes a frame's prefix and header, in either encoding, into an output buffer.

use super::super::codes::{VERSION, language};
use super::super::error::FrameError;
use super::super::frame::{Encoding, PREFIX_BYTES};
use super::swar;

/// Frame and header sizes have 31 and 24 bits.
const FRAME_BYTES_MAX: usize = i32::MAX as usize;
const HEADER_BYTES_MAX: usize = 0xFF_FFFF;
const NAME_BYTES_MAX: usize = i16::MAX as usize;
/// Position of the version in a frame with a binary header.
const BINARY_VERSION_AT: usize = PREFIX_BYTES + 3;
const EXT_OPENING: &[u8] = b",\"extFields\":{";

/// Extension fields common to many headers, encoded once in both encodings. There is at least one.
#[derive(Debug)]
pub(crate) struct ExtBlock {
    json: Box<[u8]>,
    binary: Box<[u8]>,
}

impl ExtBlock {
    /// Encodes `first` and `rest` for reuse.
    pub(crate) fn new(first: (&str, &str), rest: &[(&str, &str)]) -> Self {
        let write = |encoding| {
            let mut out = Vec::new();
            let mut header = HeaderWriter::begin(&mut out, encoding, 0, 0, 0, None);
            let start = header.ext_start;
            for (name, value) in std::iter::once(&first).chain(rest) {
                header.ext(name, value);
            }
            out.split_off(start)
        };
        let json = write(Encoding::Json).split_off(EXT_OPENING.len());
        Self { json: json.into(), binary: write(Encoding::Binary).into() }
    }
}

/// A header being written: call [`begin`](Self::begin), add extension fields, then [`finish`](Self::finish); the body
/// follows.
///
/// The JSON is identical to a Java server's: members in alphabetical order, no blanks, every extension value a
/// string. The Go client refuses any other value in `extFields`. Without extension fields the map is left out.
#[derive(Debug)]
#[must_use = "a header without `finish` has no lengths"]
pub struct HeaderWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    encoding: Encoding,
    language: u8,
    version: i32,
    opaque: i32,
    flag: i32,
    remark: Option<&'a str>,
    /// Position of the first extension field; until one is written, `out` ends here.
    ext_start: usize,
    is_too_long: bool,
}

impl<'a> HeaderWriter<'a> {
    /// Begins a frame at the end of `out`, with the language of rmqpy's servers.
    ///
    /// A code that does not fit the 16 bits of the binary encoding (such as POP's) is written as JSON; readers go by
    /// the encoding byte of the frame.
    pub fn begin(
        out: &'a mut Vec<u8>,
        encoding: Encoding,
        code: i32,
        opaque: i32,
        flag: i32,
        remark: Option<&'a str>,
    ) -> Self {
        Self::begin_as(language::OTHER, out, encoding, code, opaque, flag, remark)
    }

    /// Begins a frame at the end of `out`, with the given `language`.
    pub fn begin_as(
        language: u8,
        out: &'a mut Vec<u8>,
        encoding: Encoding,
        code: i32,
        opaque: i32,
        flag: i32,
        remark: Option<&'a str>,
    ) -> Self {
        let start = out.len();
        let short_code = i16::try_from(code).ok().filter(|_| encoding == Encoding::Binary);
        let encoding = if short_code.is_some() { Encoding::Binary } else { Encoding::Json };
        out.extend_from_slice(&[0, 0, 0, 0, encoding.byte(), 0, 0, 0]);
        match short_code {
            Some(code) => {
                out.extend_from_slice(&code.to_be_bytes());
                out.push(language);
                out.extend_from_slice(&(VERSION as i16).to_be_bytes());
                out.extend_from_slice(&opaque.to_be_bytes());
                out.extend_from_slice(&flag.to_be_bytes());
                push_long_text(out, remark.unwrap_or_default());
                out.extend_from_slice(&[0; 4]);
            }
            None => {
                out.extend_from_slice(b"{\"code\":");
                push_number(out, code);
            }
        }
        let ext_start = out.len();
        let version = VERSION;
        Self { out, start, encoding, language, version, opaque, flag, remark, ext_start, is_too_long: false }
    }

    /// Names another release of the sender.
    pub(crate) fn version(mut self, version: i32) -> Self {
        self.version = version;
        if self.encoding == Encoding::Binary {
            let at = self.start + BINARY_VERSION_AT;
            if let Some(place) = self.out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) {
                *place = (version as i16).to_be_bytes();
            }
        }
        self
    }

    /// Adds an extension field with any name.
    pub fn ext(&mut self, name: &str, value: &str) -> &mut Self {
        if self.encoding == Encoding::Binary {
            return self.binary_field(name, [value]);
        }
        self.out.extend_from_slice(self.separator());
        push_json(self.out, name);
        self.out.push(b':');
        push_json(self.out, value);
        self
    }

    /// Adds a signed number; the name is [plain](Self::ext_plain).
    pub fn ext_i64(&mut self, name: &'static str, value: i64) -> &mut Self {
        self.ext_plain(name, itoa::Buffer::new().format(value))
    }

    /// Adds an unsigned number; the name is [plain](Self::ext_plain).
    pub fn ext_u64(&mut self, name: &'static str, value: u64) -> &mut Self {
        self.ext_plain(name, itoa::Buffer::new().format(value))
    }

    /// Adds `true` or `false`; the name is [plain](Self::ext_plain).
    pub fn ext_bool(&mut self, name: &'static str, value: bool) -> &mut Self {
        self.ext_plain(name, if value { "true" } else { "false" })
    }

    /// Adds a field that JSON need not escape: a name of this program, and letters or digits. Neither is scanned.
    pub(crate) fn ext_plain(&mut self, name: &'static str, value: &str) -> &mut Self {
        self.ext_plain_list(name, [value])
    }

    /// Adds such a field with several values, separated by commas.
    pub(crate) fn ext_plain_list<V: AsRef<str>>(
        &mut self,
        name: &'static str,
        values: impl IntoIterator<Item = V>,
    ) -> &mut Self {
        if self.encoding == Encoding::Binary {
            return self.binary_field(name, values);
        }
        self.out.extend_from_slice(self.separator());
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":\"");
        let is_plain = |text: &[u8]| swar::find_escaped(text).is_none();
        debug_assert!(is_plain(name.as_bytes()), "{name} is not plain");
        let value = self.out.len();
        push_joined(self.out, values);
        debug_assert!(self.out.get(value..).is_some_and(is_plain), "the value of {name} is not plain");
        self.out.push(b'"');
        self
    }

    fn binary_field<V: AsRef<str>>(&mut self, name: &str, values: impl IntoIterator<Item = V>) -> &mut Self {
        self.is_too_long |= name.len() > NAME_BYTES_MAX;
        self.out.extend_from_slice(&(name.len() as u16).to_be_bytes());
        self.out.extend_from_slice(name.as_bytes());
        let length_at = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        push_joined(self.out, values);
        patch_length(self.out, length_at);
        self
    }

    /// Adds fields that were encoded before.
    pub(crate) fn ext_block(&mut self, block: &ExtBlock) -> &mut Self {
        match self.encoding {
            Encoding::Json => {
                self.out.extend_from_slice(self.separator());
                self.out.extend_from_slice(&block.json);
            }
            Encoding::Binary => self.out.extend_from_slice(&block.binary),
        }
        self
    }

    /// Returns the JSON separator before the next field.
    fn separator(&self) -> &'static [u8] {
        if self.has_ext() { b"," } else { EXT_OPENING }
    }

    /// Ends the header and fills in the lengths for a body of `body_bytes`, which the caller sends next.
    ///
    /// # Errors
    /// When header or frame exceed their length fields. The frame is then removed from the buffer.
    pub fn finish(self, body_bytes: usize) -> Result<(), FrameError> {
        match self.encoding {
            Encoding::Json => {
                if self.has_ext() {
                    self.out.push(b'}');
                }
                self.out.extend_from_slice(b",\"flag\":");
                push_number(self.out, self.flag);
                self.out.extend_from_slice(b",\"language\":\"");
                self.out.extend_from_slice(language::name(self.language).as_bytes());
                self.out.extend_from_slice(b"\",\"opaque\":");
                push_number(self.out, self.opaque);
                if let Some(remark) = self.remark {
                    self.out.extend_from_slice(b",\"remark\":");
                    push_json(self.out, remark);
                }
                self.out.extend_from_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
                push_number(self.out, self.version);
                self.out.push(b'}');
            }
            Encoding::Binary => patch_length(self.out, self.ext_start - 4),
        }

        let header_bytes = self.out.len() - self.start - PREFIX_BYTES;
        let frame_bytes = header_bytes.saturating_add(PREFIX_BYTES).saturating_add(body_bytes);
        let error = if self.is_too_long || header_bytes > HEADER_BYTES_MAX {
            FrameError::HeaderTooLong { header_bytes, header_bytes_max: HEADER_BYTES_MAX }
        } else if frame_bytes > FRAME_BYTES_MAX {
            FrameError::TooLong { frame_bytes: frame_bytes as u64, frame_bytes_max: FRAME_BYTES_MAX }
        } else {
            let length = (frame_bytes - 4) as u32;
            if let Some(prefix) = self.out.get_mut(self.start..).and_then(<[u8]>::first_chunk_mut::<8>) {
                let [_, h0, h1, h2] = (header_bytes as u32).to_be_bytes();
                let [l0, l1, l2, l3] = length.to_be_bytes();
                *prefix = [l0, l1, l2, l3, self.encoding.byte(), h0, h1, h2];
            }
            return Ok(());
        };
        self.out.truncate(self.start);
        Err(error)
    }

    fn has_ext(&self) -> bool {
        self.out.len() > self.ext_start
    }
}

fn push_number(out: &mut Vec<u8>, number: i32) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn push_long_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Writes the number of following bytes into the four bytes at `at`.
fn patch_length(out: &mut [u8], at: usize) {
    if let Some((length, behind)) = out.get_mut(at..).and_then(<[u8]>::split_first_chunk_mut::<4>) {
        *length = (behind.len() as u32).to_be_bytes();
    }
}

fn push_joined<V: AsRef<str>>(out: &mut Vec<u8>, values: impl IntoIterator<Item = V>) {
    for (index, value) in values.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(value.as_ref().as_bytes());
    }
}

fn push_json(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    push_escaped(out, text);
    out.push(b'"');
}

/// Appends `text` as the inside of a JSON string. Escapes only control characters, quote and backslash.
fn push_escaped(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    while let Some(plain) = swar::find_escaped(rest) {
        let (before, from) = rest.split_at(plain);
        out.extend_from_slice(before);
        let Some((&byte, behind)) = from.split_first() else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x09 => out.extend_from_slice(b"\\t"),
            0x0A => out.extend_from_slice(b"\\n"),
            0x0C => out.extend_from_slice(b"\\f"),
            0x0D => out.extend_from_slice(b"\\r"),
            _ => {
                let digit = |nibble: u8| nibble + if nibble < 10 { b'0' } else { b'A' - 10 };
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            }
        }
        rest = behind;
    }
    out.extend_from_slice(rest);
}
