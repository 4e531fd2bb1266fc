//! What a log may say about text that is nobody's business.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Shows length and a few digits of a hash: enough to see whether two texts are the same.
/// Nothing is computed until it is shown.
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

/// Shows the name of a value's variant and nothing of what it holds.
#[derive(Clone, Copy)]
pub struct Variant<T>(pub T);

impl<T: fmt::Debug> fmt::Display for Variant<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Takes the first word and breaks the formatting off there.
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
        // Breaking off is an error to the one who is broken off, not to us.
        let _ = fmt::write(&mut first, format_args!("{:?}", self.0));
        first.1
    }
}

/// The first eight characters of an id: enough to tell two apart.
pub fn prefix(id: &str) -> &str {
    id.char_indices().nth(8).map_or(id, |(end, _)| &id[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_tell_length_and_hash() {
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
    fn variants_tell_their_name_only() {
        let names = [
            Sample::Unit,
            Sample::Tuple("x"),
            Sample::Named { secret: "y" },
        ];
        let names: Vec<String> = names.iter().map(|name| Variant(name).to_string()).collect();
        assert_eq!(names, ["Unit", "Tuple", "Named"]);
        assert_eq!(Variant("a text is no variant").to_string(), "");
    }

    #[test]
    fn prefixes_are_short() {
        assert_eq!(prefix("0123456789"), "01234567");
        assert_eq!(prefix("äöüß"), "äöüß");
    }
}
