//! Records: the framing of a controller's files: length, CRC-32, index and bytes, numbers big-endian.

/// Length, CRC-32 and index of a record.
pub(super) const HEAD_BYTES: usize = 16;

/// Returns the bytes of a record.
pub(super) fn record(index: u64, bytes: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEAD_BYTES + bytes.len());
    record.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    record.extend_from_slice(&digest(index, bytes).to_be_bytes());
    record.extend_from_slice(&index.to_be_bytes());
    record.extend_from_slice(bytes);
    record
}

/// Returns index, bytes and end of a valid record.
pub(super) fn record_at(content: &[u8], at: usize) -> Option<(u64, &[u8], usize)> {
    let (size, rest) = content.get(at..)?.split_first_chunk::<4>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    let (index, rest) = rest.split_first_chunk::<8>()?;
    let (size, index) = (u32::from_be_bytes(*size) as usize, u64::from_be_bytes(*index));
    let bytes = rest.get(..size).filter(|_| size > 0)?;
    (u32::from_be_bytes(*crc) == digest(index, bytes)).then_some((index, bytes, at + HEAD_BYTES + size))
}

/// Index and bytes of each record, and the end of the last one.
pub(super) type Records<'a> = (Vec<(u64, &'a [u8])>, usize);

/// Returns every record of a file, and their end. Bytes behind the end are a torn record: one is written by one call, so
/// nothing valid follows it.
///
/// # Errors
/// The position of the damage, if a valid record follows it.
pub(super) fn valid_records(content: &[u8]) -> Result<Records<'_>, usize> {
    let (mut records, mut at) = (Vec::new(), 0);
    while let Some((index, bytes, end)) = record_at(content, at) {
        records.push((index, bytes));
        at = end;
    }
    if (at + 1..content.len()).any(|later| record_at(content, later).is_some()) {
        return Err(at);
    }
    Ok((records, at))
}

fn digest(index: u64, bytes: &[u8]) -> u32 {
    let mut digest = crc32fast::Hasher::new();
    digest.update(&index.to_be_bytes());
    digest.update(bytes);
    digest.finalize()
}
