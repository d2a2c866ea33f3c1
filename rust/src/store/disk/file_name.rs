//! File names: 20 digits, the position of the file's first byte in an address space.

/// Returns the name of the file whose first byte is at `base`.
pub(crate) fn name_of(base: u64) -> String {
    format!("{base:020}")
}

/// Returns the position of the first byte of a file with this name; `None` for other names.
pub(crate) fn position_of(name: &str) -> Option<u64> {
    let is_position = name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_position { name.parse().ok().filter(|at| *at < 1 << 63) } else { None }
}
