//! Log-safe summaries of private text.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Formats as the length and the first digits of a hash: enough to see whether two texts are
/// the same. Nothing is computed until it is formatted.
#[derive(Clone, Copy)]
pub struct Digest<T>(pub T);

impl<T: AsRef<[u8]>> fmt::Display for Digest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.as_ref();
        write!(f, "len={} sha256=", bytes.len())?;
        let hash = Sha256::digest(bytes);
        hash.iter()
            .take(4)
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<T: AsRef<[u8]>> fmt::Debug for Digest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Formats as the name of a value's variant, without its fields.
#[derive(Clone, Copy)]
pub struct VariantName<T>(pub T);

impl<T: fmt::Debug> fmt::Display for VariantName<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Writes the first identifier, then stops the formatting with an error.
        struct First<'a, 'b>(&'a mut fmt::Formatter<'b>, Result<(), fmt::Error>);
        impl fmt::Write for First<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                let end = text
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(text.len());
                self.1 = self.0.write_str(&text[..end]);
                if end < text.len() {
                    Err(fmt::Error)
                } else {
                    self.1
                }
            }
        }
        let mut first = First(f, Ok(()));
        // The error only stops the value's formatter; the result of our own write is in `first.1`.
        let _ = fmt::write(&mut first, format_args!("{:?}", self.0));
        first.1
    }
}

/// Returns the first eight characters of an id: enough to distinguish two ids in a log.
pub fn prefix(id: &str) -> &str {
    // What precedes the last slash is the same for all sessions of a front end.
    let id = id.rsplit('/').next().unwrap_or(id);
    id.char_indices().nth(8).map_or(id, |(end, _)| &id[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_shows_length_and_hash() {
        assert_eq!(Digest("abc").to_string(), "len=3 sha256=ba7816bf");
        assert_eq!(
            format!("{:?}", Digest(b"abc".as_slice())),
            "len=3 sha256=ba7816bf"
        );
    }

    #[derive(Debug)]
    #[allow(dead_code)]
    enum Sample {
        Unit,
        Tuple(&'static str),
        Named { secret: &'static str },
    }

    #[test]
    fn a_variant_shows_only_its_name() {
        let names = [
            Sample::Unit,
            Sample::Tuple("x"),
            Sample::Named { secret: "y" },
        ];
        let names: Vec<String> = names
            .iter()
            .map(|name| VariantName(name).to_string())
            .collect();
        assert_eq!(names, ["Unit", "Tuple", "Named"]);
        assert_eq!(VariantName("a text is no variant").to_string(), "");
    }

    #[test]
    fn a_prefix_has_at_most_eight_characters() {
        assert_eq!(prefix("0123456789"), "01234567");
        assert_eq!(prefix("äöüß"), "äöüß");
    }
}
