//! Names of files that are one piece of an address space: the position of the first byte, in 20 digits.

/// Name of the file whose first byte is at `base`.
pub(crate) fn name_of(base: u64) -> String {
    format!("{base:020}")
}

/// Position of the first byte of a file with this name; `None` for the names of other things.
pub(crate) fn position_of(name: &str) -> Option<u64> {
    let is_position = name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_position { name.parse().ok().filter(|at| *at < 1 << 63) } else { None }
}
