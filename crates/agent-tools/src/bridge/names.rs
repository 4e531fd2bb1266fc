//! Names under which the host's tools are offered.

use sha2::{Digest as _, Sha256};

/// Returns offered names for the host's names, in the same order and without duplicates.
pub fn offered<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut used: Vec<String> = Vec::new();
    for name in names {
        let plain = format!("pi__{}", sanitize(name));
        let mut candidate = plain.clone();
        if used.contains(&candidate) {
            candidate = format!("{plain}__{}", short_hash(name));
            let hashed = candidate.clone();
            let mut count = 2;
            while used.contains(&candidate) {
                candidate = format!("{hashed}_{count}");
                count += 1;
            }
        }
        used.push(candidate);
    }
    used
}

/// Replaces runs of anything but letters, digits, `_` and `-` by one `_`, with none at the ends.
fn sanitize(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut gap = false;
    for c in name.trim().chars() {
        if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
            if std::mem::take(&mut gap) {
                out.push('_');
            }
            out.push(c);
        } else {
            gap = true;
        }
    }
    match out.trim_matches('_') {
        "" => "tool".into(),
        name => name.into(),
    }
}

fn short_hash(name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
