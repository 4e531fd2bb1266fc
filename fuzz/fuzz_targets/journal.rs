//! Any bytes as a journal are either rejected as damaged or decode to an entry that round-trips.
#![no_main]

use agent::conversation::journal::{JournalEntry, decode, encode};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest as _, Sha256};

fn survives(entry: &JournalEntry) {
    let written = encode(entry).expect("what was read can be written");
    assert_eq!(decode(&written).as_ref(), Ok(entry));
}

fuzz_target!(|data: &[u8]| {
    if let Ok(entry) = decode(data) {
        survives(&entry);
    }
    // Prepend a matching header, because a fuzzer cannot guess a checksum.
    let sum: String = Sha256::digest(data)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut journal = format!("{{\"version\":1,\"sha256\":\"{sum}\"}}\n").into_bytes();
    journal.extend_from_slice(data);
    journal.push(b'\n');
    if let Ok(entry) = decode(&journal) {
        survives(&entry);
        // A truncated file is never accepted.
        assert!(decode(&journal[..journal.len() - 1]).is_err());
    }
});
