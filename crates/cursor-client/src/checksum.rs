//! `x-cursor-checksum`: a header some Cursor clients send. Off by default, because the official
//! SDK does not send it; available for hosts that need it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// Half an hour; the header stays the same within it.
const BUCKET_MS: u64 = 30 * 60 * 1000;

/// Returns the checksum for an access token at a Unix time in milliseconds.
///
/// Three parts: the time, rounded down to half an hour and obfuscated; eight hex digits
/// of the token's payload; eight of the whole token.
pub fn checksum(token: &str, now_ms: u64) -> String {
    let bucket = now_ms - now_ms % BUCKET_MS;
    let time = obfuscate(bucket / 1_000_000);
    let payload = match token.split('.').nth(1) {
        Some(payload) if !payload.is_empty() => short_hash(payload),
        _ => "0".repeat(8),
    };
    format!(
        "{}{payload}/{}",
        URL_SAFE_NO_PAD.encode(time),
        short_hash(token)
    )
}

/// Returns six big-endian bytes, each mixed with the one before it.
fn obfuscate(value: u64) -> [u8; 6] {
    let wide = value.to_be_bytes();
    let mut bytes = [wide[2], wide[3], wide[4], wide[5], wide[6], wide[7]];
    let mut previous = 165_u8;
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = (*byte ^ previous).wrapping_add(index as u8);
        previous = *byte;
    }
    bytes
}

fn short_hash(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::checksum;

    #[test]
    fn the_checksum_matches_a_recorded_one() {
        assert_eq!(
            checksum("h.PAYLOAD.s", 1_794_785_817_937),
            "paaottg-ea36e4da/513b89ea"
        );
    }
}
