//! Commands that do the work of a file tool, for hosts whose only tool for it is a shell. Pure.

use std::path::Path;

use serde_json::Value as Json;

use super::tool_shapes::{Operands, Operation};

/// Returns the command for an operation; `None` if a command cannot do it.
pub(super) fn command(operation: Operation, values: &Operands) -> Option<String> {
    let text = |name: &str| values.get(name).and_then(Json::as_str);
    let path = || Some(quoted(text("abs_path")?));
    Some(match operation {
        Operation::Read => {
            let number = |name: &str| values.get(name).and_then(Json::as_i64);
            let path = path()?;
            match (number("offset"), number("end_line")) {
                (None, None) => format!("cat -- {path}"),
                (first, last) => {
                    let first = first.unwrap_or(1);
                    let last = last.map_or_else(|| "$".to_owned(), |last| last.to_string());
                    format!("sed -n '{first},{last}p' -- {path}")
                }
            }
        }
        Operation::List => format!("ls -1Ap -- {}", path()?),
        Operation::Find => {
            let glob = text("pattern")?;
            let place = path().unwrap_or_else(|| ".".to_owned());
            let name = glob.strip_prefix("**/").unwrap_or(glob);
            format!(
                "if command -v rg >/dev/null; then rg --files -g {} {place}; else find {place} -type f -path {}; fi",
                quoted(glob),
                quoted(&format!("*/{name}")),
            )
        }
        Operation::Search => {
            let mut options = Vec::new();
            if values.get("ignore_case") == Some(&Json::Bool(true)) {
                options.push("-i".to_owned());
            }
            if let Some(lines) = values.get("context").and_then(Json::as_i64) {
                options.push(format!("-C {lines}"));
            }
            let glob = |option: &str| {
                let glob = text("glob").map(|glob| format!("{option}{} ", quoted(glob)));
                glob.unwrap_or_default()
            };
            let options = options
                .iter()
                .map(|option| format!("{option} "))
                .collect::<String>();
            let pattern = quoted(text("pattern")?);
            let place = path().unwrap_or_else(|| ".".to_owned());
            format!(
                "if command -v rg >/dev/null; then rg -nH --no-heading --color=never {options}{}-e {pattern} {place}; \
                 else grep -rnHIE {options}{}-e {pattern} {place}; fi",
                glob("-g "),
                glob("--include="),
            )
        }
        Operation::Write => {
            let path = text("abs_path")?;
            let folder = Path::new(path).parent()?.to_str()?;
            format!(
                "mkdir -p -- {} && printf %s {} > {}",
                quoted(folder),
                quoted(text("content")?),
                quoted(path)
            )
        }
        Operation::Delete => format!("rm -- {}", path()?),
        Operation::Shell | Operation::Edit | Operation::Fetch => return None,
    })
}

/// Runs a command in a folder.
pub(super) fn in_folder(command: &str, folder: &str) -> String {
    format!("cd {} && {{ {command}\n}}", quoted(folder))
}

/// Quotes a text as one word of a shell command.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
