//! JSON with unpaired surrogates.
//!
//! JavaScript can cut a string between the two UTF-16 units of a character and writes the
//! remaining half as an escape without a character. Our JSON parsers reject such input; we
//! replace the halves, because they are no reason to refuse the whole message.

use std::ops::RangeInclusive;

/// High surrogates, which must be followed by one of [`LAST`].
const FIRST: RangeInclusive<u16> = 0xd800..=0xdbff;
const LAST: RangeInclusive<u16> = 0xdc00..=0xdfff;
/// The length of an escaped unit: a backslash, `u` and four digits.
const ESCAPED: usize = 6;

/// Replaces every unpaired surrogate escape with U+FFFD, in place. Nothing else is changed.
pub fn replace_lone(json: &mut [u8]) {
    let mut at = 0;
    // In JSON a backslash occurs only in strings, where it starts an escape.
    while let Some(found) = json.get(at..).and_then(next) {
        at += found;
        let half = |unit: u16| FIRST.contains(&unit) || LAST.contains(&unit);
        at += match (unit(json, at), unit(json, at + ESCAPED)) {
            (Some(first), Some(last)) if FIRST.contains(&first) && LAST.contains(&last) => {
                2 * ESCAPED
            }
            (Some(alone), _) if half(alone) => {
                json[at + 2..at + ESCAPED].copy_from_slice(b"fffd");
                ESCAPED
            }
            (Some(_), _) => ESCAPED,
            (None, _) => 2,
        };
    }
}

/// Returns the offset of the next escape.
fn next(json: &[u8]) -> Option<usize> {
    memchr::memchr(b'\\', json)
}

/// Returns the UTF-16 unit that is escaped here.
fn unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPED)?.strip_prefix(b"\\u")?;
    let mut digits = digits.iter().map(|digit| char::from(*digit).to_digit(16));
    let value = digits.try_fold(0, |value, digit| Some(value * 16 + digit?));
    value.and_then(|value| u16::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn replaced(json: &str) -> String {
        let mut bytes = json.as_bytes().to_vec();
        replace_lone(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn halves_are_replaced_and_letters_are_not() {
        for (json, wanted) in [
            (r#""a\ud83d""#, r#""a\ufffd""#),
            (
                r#""\uDE00\ud83D\uDe00\ud83d\ud83d\ude00""#,
                r#""\ufffd\ud83D\uDe00\ufffd\ud83d\ude00""#,
            ),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\ud83d\\ude00""#, r#""\\\ufffd\\ude00""#),
            (
                r#""\ud83d\n\u0041 \udz00 \u+d83""#,
                r#""\ufffd\n\u0041 \udz00 \u+d83""#,
            ),
            (r"\", r"\"),
            (r"\ud83d", r"\ufffd"),
            (r"\ud83", r"\ud83"),
        ] {
            assert_eq!(replaced(json), wanted);
        }
    }

    /// A string as JavaScript's `JSON.stringify` writes it; `letter` writes complete characters.
    fn stringify(units: &[u16], letter: fn(char) -> String) -> String {
        let written = char::decode_utf16(units.iter().copied()).map(|char| match char {
            Ok(char) => letter(char),
            Err(half) => format!("\\u{:04x}", half.unpaired_surrogate()),
        });
        format!("\"{}\"", written.collect::<String>())
    }

    fn plain(letter: char) -> String {
        let quoted = serde_json::to_string(&letter).unwrap();
        quoted[1..quoted.len() - 1].to_owned()
    }

    fn escaped(letter: char) -> String {
        let mut units = [0; 2];
        let units = letter.encode_utf16(&mut units).iter();
        units.map(|unit| format!("\\u{unit:04X}")).collect()
    }

    /// Characters, unpaired surrogates, and text that looks like an escape.
    fn units() -> impl Strategy<Value = Vec<u16>> {
        let unit = prop_oneof![
            any::<u16>(),
            0xd800..0xe000_u16,
            prop::sample::select("\\\\u\"nd8".encode_utf16().collect::<Vec<_>>()),
        ];
        prop::collection::vec(unit, 0..40)
    }

    proptest! {
        #[test]
        fn a_string_of_javascript_is_read(units in units()) {
            for letter in [plain, escaped] {
                let json = replaced(&stringify(&units, letter));
                let read: String = serde_json::from_str(&json).unwrap();
                prop_assert_eq!(read, String::from_utf16_lossy(&units));
            }
        }

        #[test]
        fn readable_state_is_not_changed(text in any::<String>()) {
            let units: Vec<u16> = text.encode_utf16().collect();
            for letter in [plain, escaped] {
                let json = stringify(&units, letter);
                prop_assert_eq!(replaced(&json), json);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            replace_lone(&mut bytes);
        }
    }
}
