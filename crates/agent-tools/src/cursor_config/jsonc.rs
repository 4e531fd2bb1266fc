//! JSON with comments and trailing commas, as users write it in settings.

use serde_json::Value as Json;

/// Parses JSON with comments and trailing commas.
pub(super) fn parse(text: &str) -> Result<Json, serde_json::Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // Try plain JSON first: most files are, and its error has the right line number.
    serde_json::from_str(text).or_else(|error| {
        let plain = plain(text);
        serde_json::from_str(&plain).map_err(|_| error)
    })
}

/// Replaces comments with blanks and removes trailing commas.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut quoted = false;
    while let Some(letter) = rest.next() {
        match letter {
            '"' => {
                quoted = !quoted;
                out.push('"');
            }
            '\\' if quoted => {
                out.push('\\');
                out.extend(rest.next());
            }
            '/' if !quoted && rest.peek() == Some(&'/') => {
                while rest.peek().is_some_and(|letter| *letter != '\n') {
                    rest.next();
                }
            }
            '/' if !quoted && rest.peek() == Some(&'*') => {
                let mut last = ' ';
                rest.next();
                for letter in rest.by_ref() {
                    if (last, letter) == ('*', '/') {
                        break;
                    }
                    last = letter;
                }
                out.push(' ');
            }
            '}' | ']' if !quoted => {
                let kept = out.trim_end();
                if let Some(before) = kept.strip_suffix(',') {
                    out.truncate(before.len());
                }
                out.push(letter);
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn comments_and_commas() {
        let text = r#"// head
        { "a": "http://x/*y*/\"//", /* b */ "c": [1, 2,], }
        // end"#;
        let read = parse(text).unwrap();
        assert_eq!(read, json!({"a": "http://x/*y*/\"//", "c": [1, 2]}));
        assert!(parse("{,}").is_ok_and(|json| json == json!({})));
        assert!(parse("{\"a\" 1}").is_err());
        assert!(parse("/* open").is_err());
    }
}
