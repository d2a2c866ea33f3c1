//! Test vectors: reads the hex text in `tests/vectors`, shared with the Python tests.

use std::path::{Path, PathBuf};

use rmqpy::remoting::frame::{Encoding, Frame};

/// Bytes, and the name of their source for failure messages.
pub struct Vector {
    pub origin: String,
    pub bytes: Vec<u8>,
}

/// Returns the part `name` of `tests/vectors/golden/<file>.hex`.
pub fn golden(file: &str, name: &str) -> Vec<u8> {
    part(&root().join("golden").join(file).with_extension("hex"), name)
}

/// Returns the part `name` of `tests/vectors/worked/<file>.hex`.
pub fn worked(file: &str, name: &str) -> Vec<u8> {
    part(&root().join("worked").join(file).with_extension("hex"), name)
}

/// Returns every captured request and reply.
pub fn golden_frames() -> Vec<Vector> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(root().join("golden")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut frames = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        for (part, bytes) in parts(&file) {
            if part == "request" || part == "reply" {
                frames.push(Vector { origin: format!("{name} {part}"), bytes });
            }
        }
    }
    frames
}

/// Returns whether a captured frame was truncated; headers never were.
pub fn is_cut(bytes: &[u8]) -> bool {
    u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize + 4 > bytes.len()
}

/// Returns a captured frame, possibly truncated.
pub fn frame(bytes: &[u8]) -> Frame<'_> {
    let header_bytes = u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]) as usize;
    let (header, body) = bytes[8..].split_at(header_bytes);
    Frame { encoding: Encoding::from_byte(bytes[4]).unwrap(), header, body }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors")
}

fn part(file: &Path, name: &str) -> Vec<u8> {
    let found = parts(file).into_iter().find(|(part, _)| part == name);
    found.unwrap_or_else(|| panic!("{} has no part [{name}]", file.display())).1
}

fn parts(file: &Path) -> Vec<(String, Vec<u8>)> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut parts = Vec::new();
    while let Some(title) = lines.next() {
        let (name, size) = title.strip_prefix('[').unwrap().split_once("] ").unwrap();
        let size: usize = size.strip_suffix(" bytes").unwrap().parse().unwrap();
        let bytes = unhex(lines.next().unwrap());
        assert_eq!(bytes.len(), size, "{} [{name}]", file.display());
        parts.push((name.to_owned(), bytes));
    }
    parts
}

fn unhex(text: &str) -> Vec<u8> {
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    assert!(odd.is_empty());
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    pairs.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
}
