//! `$NAME` in scenario strings: values that are known only during a run.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Names the simulator sets.
pub(super) const BUILT_IN: [&str; 6] = [
    "WS",
    "RUN_ID",
    "CONVERSATION_ID",
    "REQUEST_ID",
    "USER_TEXT",
    "CHECKPOINT",
];

/// Values by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables(HashMap<String, Value>);

/// A built-in name that has no value yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("${0} is not known yet")]
pub(super) struct UnsetVariable(String);

impl Variables {
    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// Replaces names by their values in strings and member names. A string that is only a name
    /// takes the value with its type; unknown names stay as written.
    pub(super) fn fill(&self, value: &Value) -> Result<Value, UnsetVariable> {
        Ok(match value {
            Value::String(text) => {
                if let Some(name) = variable_name(text)
                    && let Some(value) = self.lookup(name)?
                {
                    value.clone()
                } else {
                    Value::String(self.fill_text(text)?)
                }
            }
            Value::Array(items) => items
                .iter()
                .map(|item| self.fill(item))
                .collect::<Result<_, _>>()?,
            Value::Object(members) => {
                let mut filled = Map::new();
                for (name, value) in members {
                    // `$contains` and the like are operators, not names.
                    let name = if variable_name(name).is_some_and(|n| !self.is_known(n)) {
                        name.clone()
                    } else {
                        self.fill_text(name)?
                    };
                    filled.insert(name, self.fill(value)?);
                }
                Value::Object(filled)
            }
            other => other.clone(),
        })
    }

    /// Replaces names by their values in a text; `$$` is a dollar sign.
    pub(super) fn fill_text(&self, text: &str) -> Result<String, UnsetVariable> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            filled.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                filled.push('$');
                rest = after;
                continue;
            }
            let name = &rest[..name_length(rest)];
            match self.lookup(name)? {
                Some(Value::String(value)) => filled.push_str(value),
                Some(value) => filled.push_str(&value.to_string()),
                None => {
                    filled.push('$');
                    filled.push_str(name);
                }
            }
            rest = &rest[name.len()..];
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn is_known(&self, name: &str) -> bool {
        self.0.contains_key(name) || BUILT_IN.contains(&name)
    }

    fn lookup(&self, name: &str) -> Result<Option<&Value>, UnsetVariable> {
        match self.0.get(name) {
            Some(value) => Ok(Some(value)),
            None if BUILT_IN.contains(&name) => Err(UnsetVariable(name.to_owned())),
            None => Ok(None),
        }
    }
}

fn name_length(text: &str) -> usize {
    text.bytes()
        .take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        .count()
}

fn variable_name(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    (!name.is_empty() && name_length(name) == name.len()).then_some(name)
}

/// Returns whether a string is a name and nothing else.
pub(super) fn is_variable(text: &str) -> bool {
    variable_name(text).is_some()
}

/// Returns whether a string may contain a name.
pub(super) fn has_variable(text: &str) -> bool {
    text.contains('$')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn variables() -> Variables {
        let mut variables = Variables::default();
        variables.set("WS", json!("/ws"));
        variables.set("SHELL", json!(7));
        variables
    }

    #[test]
    fn names_are_replaced_in_strings_and_member_names() {
        let filled = variables()
            .fill(
                &json!({"path": "$WS/a.txt", "$WS": ["$SHELL", "id $SHELL"], "x": {"$any": true}}),
            )
            .unwrap();
        assert_eq!(
            filled,
            json!({"path": "/ws/a.txt", "/ws": [7, "id 7"], "x": {"$any": true}})
        );
    }

    #[test]
    fn other_dollar_signs_stay_as_written() {
        let fill = |text| variables().fill_text(text).unwrap();
        assert_eq!(fill("echo $HOME $x $$WS $"), "echo $HOME $x $WS $");
    }

    #[test]
    fn a_built_in_name_without_a_value_is_an_error() {
        let error = variables().fill(&json!("$RUN_ID")).unwrap_err();
        assert_eq!(error.to_string(), "$RUN_ID is not known yet");
    }
}
