//! Bytes in hexadecimal.

/// Returns two lower-case digits for each byte. A turn needs this for each of its blobs, and
/// formatting byte by byte takes many times as long.
pub(crate) fn hex(bytes: impl AsRef<[u8]>) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bytes = bytes.as_ref();
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 0xf)].into());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(hex([0, 1, 0x9a, 0xff]), "00019aff");
        assert_eq!(hex([]), "");
    }
}
