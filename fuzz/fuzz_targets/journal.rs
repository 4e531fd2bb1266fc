//! Any bytes as a journal: damage, or an entry that is written and read as the same.
#![no_main]

use cursor_sidecar::conversation::journal::{Entry, decode, encode};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest as _, Sha256};

fn survives(entry: &Entry) {
    let written = encode(entry).expect("what was read can be written");
    assert_eq!(decode(&written).as_ref(), Ok(entry));
}

fuzz_target!(|data: &[u8]| {
    if let Ok(entry) = decode(data) {
        survives(&entry);
    }
    // No fuzzer guesses a checksum: the same bytes behind a header that fits them.
    let sum: String = Sha256::digest(data)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut journal = format!("{{\"version\":1,\"sha256\":\"{sum}\"}}\n").into_bytes();
    journal.extend_from_slice(data);
    journal.push(b'\n');
    if let Ok(entry) = decode(&journal) {
        survives(&entry);
        // A file cut short is never taken for a whole one.
        assert!(decode(&journal[..journal.len() - 1]).is_err());
    }
});
