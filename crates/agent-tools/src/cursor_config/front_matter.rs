//! The front matter of a rule or a skill: a few lines of YAML between two `---` lines.
//!
//! This is not a YAML parser, because users write `globs: *.ts, *.tsx` and other values that YAML
//! rejects. It reads keys, plain and quoted values, lists, block text, and one level of nesting
//! under the parent's name (`metadata.environments`).

/// A file split into front matter and body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FrontMatter<'a> {
    /// The lines between the `---` lines, trimmed.
    pub(super) head: &'a str,
    /// The text after them, unchanged.
    pub(super) body: &'a str,
    fields: Vec<(String, FieldValue)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldValue {
    Text(String),
    List(Vec<String>),
    True,
}

/// Splits a file; returns `None` if it has no front matter.
pub(super) fn parse(text: &str) -> Option<FrontMatter<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim_start();
    let first = text.lines().next()?;
    if first.trim_end() != "---" {
        return None;
    }
    let rest = text.get(first.len()..)?.trim_start_matches(['\r', '\n']);
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            let head = rest[..at].trim();
            return Some(FrontMatter {
                head,
                body: &rest[at + line.len()..],
                fields: fields(head),
            });
        }
        at += line.len();
    }
    None
}

impl FrontMatter<'_> {
    fn value(&self, key: &str) -> Option<&FieldValue> {
        let found = self.fields.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value)
    }

    /// Returns the text of a key, unless it is blank or a list.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.value(key)? {
            FieldValue::Text(text) => Some(text.as_str()).filter(|text| !text.trim().is_empty()),
            FieldValue::True => Some("true"),
            FieldValue::List(_) => None,
        }
    }

    /// Whether a key is an unquoted `true`.
    pub(super) fn is_bare_true(&self, key: &str) -> bool {
        self.value(key) == Some(&FieldValue::True)
    }

    /// Whether a key is `true`, quoted or not.
    pub(super) fn is_true(&self, key: &str) -> bool {
        self.text(key) == Some("true")
    }

    /// Returns the items of a list, or the parts of a text split at commas outside braces.
    pub(super) fn list(&self, key: &str) -> Vec<String> {
        match self.value(key) {
            Some(FieldValue::List(items)) => items.clone(),
            Some(FieldValue::Text(text)) => cut(text),
            Some(FieldValue::True) => vec!["true".into()],
            None => Vec::new(),
        }
    }
}

fn fields(head: &str) -> Vec<(String, FieldValue)> {
    let lines: Vec<&str> = head.lines().collect();
    let mut fields = Vec::new();
    let mut parent: Option<String> = None;
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        let indented = line.starts_with([' ', '\t']);
        if !indented {
            parent = None;
        }
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let Some((key, value)) = trimmed.split_once(':') else {
            continue;
        };
        let key = match &parent {
            Some(parent) => format!("{parent}.{}", plain(key)),
            None => plain(key).to_owned(),
        };
        let value = value.trim();
        if let Some(fold) = block_mark(value) {
            let text: Vec<&str> = lines[at..]
                .iter()
                .take_while(|line| line.trim().is_empty() || line.starts_with([' ', '\t']))
                .map(|line| line.trim())
                .collect();
            at += text.len();
            let mut text = text.join(fold).trim().to_owned();
            if !value.ends_with('-') {
                text.push('\n');
            }
            fields.push((key, FieldValue::Text(text)));
        } else if value.is_empty() {
            let items: Vec<String> = lines[at..]
                .iter()
                .map_while(|line| line.trim_start().strip_prefix('-'))
                .map(|item| plain(item).to_owned())
                .collect();
            at += items.len();
            if !items.is_empty() {
                fields.push((key, FieldValue::List(items)));
            } else if !indented {
                parent = Some(key);
            }
        } else if let Some(items) = bracketed(value) {
            fields.push((key, FieldValue::List(items)));
        } else {
            fields.push((
                key,
                match value {
                    "true" => FieldValue::True,
                    value => FieldValue::Text(plain(value).to_owned()),
                },
            ));
        }
    }
    fields
}

/// Returns the separator for the lines of a block text (`>` or `|`), if one starts here.
fn block_mark(value: &str) -> Option<&'static str> {
    let mut marks = value.chars();
    let joint = match marks.next()? {
        '>' => " ",
        '|' => "\n",
        _ => return None,
    };
    marks
        .all(|mark| matches!(mark, '+' | '-' | '1'..='9'))
        .then_some(joint)
}

/// Parses an inline list such as `[a, "b"]`.
fn bracketed(value: &str) -> Option<Vec<String>> {
    let inside = value.strip_prefix('[')?.strip_suffix(']')?;
    Some(cut(inside).iter().map(|item| plain(item).into()).collect())
}

/// Removes surrounding blanks and quotes.
fn plain(text: &str) -> &str {
    let text = text.trim();
    for quote in ['"', '\''] {
        if let Some(inside) = text
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote))
        {
            return inside;
        }
    }
    text
}

/// Splits at commas outside braces.
fn cut(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0_usize;
    for letter in text.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    let parts = parts.iter().map(|part| plain(part).to_owned());
    parts.filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_as_cursor_writes_it() {
        let text = "---\r\ndescription: \"Use tabs: always\"\r\nglobs: *.{ts,tsx}, src/**\r\nalwaysApply: false\r\n---\r\n\r\n# Tabs\r\n";
        let document = parse(text).unwrap();
        assert_eq!(document.text("description"), Some("Use tabs: always"));
        assert_eq!(document.list("globs"), ["*.{ts,tsx}", "src/**"]);
        assert!(!document.is_true("alwaysApply"));
        assert_eq!(document.body.trim(), "# Tabs");
        assert!(document.head.starts_with("description"));
    }

    #[test]
    fn lists_blocks_and_nesting() {
        let text = "---\nname: x # not a comment\nglobs:\n  - 'a'\n  - b\npaths: [c, \"d\"]\ndescription: >-\n  one\n  two\nmetadata:\n  environments: web, cli\n  scopedTo:\n    - y\nalwaysApply: true\n---\nbody";
        let document = parse(text).unwrap();
        assert_eq!(document.text("name"), Some("x # not a comment"));
        assert_eq!(document.list("globs"), ["a", "b"]);
        assert_eq!(document.list("paths"), ["c", "d"]);
        assert_eq!(document.text("description"), Some("one two"));
        assert_eq!(document.list("metadata.environments"), ["web", "cli"]);
        assert_eq!(document.list("metadata.scopedTo"), ["y"]);
        assert!(document.is_true("alwaysApply") && document.is_bare_true("alwaysApply"));
        assert_eq!(document.body, "body");
        let quoted = parse("---\nalwaysApply: \"true\"\n---\n").unwrap();
        assert!(quoted.is_true("alwaysApply") && !quoted.is_bare_true("alwaysApply"));
    }

    #[test]
    fn text_that_is_not_a_head_is_refused() {
        for text in [
            "",
            "# A title",
            "---\nopen: end",
            "----\na: b\n----\n",
            "---",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse("\n---\n---\n").unwrap().head, "");
        assert_eq!(parse("---\n: - [\n]\n---\n").unwrap().text("x"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text in "(---\n)?[-a-z:\\[\\]{},|> \n\t\"'#\u{e9}]{0,80}(\n---\n)?.{0,20}") {
            if let Some(document) = parse(&text) {
                let _ = document.list("a");
                proptest::prop_assert!(text.contains(document.head));
            }
        }
    }
}
