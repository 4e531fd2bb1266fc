//! Derives the shape of an unknown tool from its name and JSON Schema. Pure.

use serde_json::{Map, Value as Json};

use super::result_formats::ResultFormat;
use super::tool_shapes::{Operation, ToolShape};

/// Names of tools in lower case without separators, best first.
fn tool_names(operation: Operation) -> &'static [&'static str] {
    match operation {
        Operation::Shell => &[
            "bash",
            "shell",
            "runshellcommand",
            "runcommand",
            "runterminalcommand",
            "runterminalcmd",
            "runinterminal",
            "executecommand",
            "execcommand",
            "exec",
            "terminal",
        ],
        Operation::Read => &["read", "readfile", "viewfile", "openfile", "view", "cat"],
        Operation::List => &[
            "ls",
            "list",
            "listdir",
            "listdirectory",
            "listfiles",
            "viewdirectory",
        ],
        Operation::Find => &[
            "glob",
            "find",
            "findfiles",
            "filesearch",
            "findpath",
            "fileglobsearch",
            "globsearch",
        ],
        Operation::Search => &[
            "grep",
            "grepsearch",
            "search",
            "ripgrep",
            "searchfiles",
            "searchfilecontent",
            "textsearch",
        ],
        Operation::Write => &[
            "write",
            "writefile",
            "createfile",
            "writetofile",
            "createnewfile",
            "savefile",
        ],
        Operation::Edit => &[
            "edit",
            "editfile",
            "strreplace",
            "replace",
            "searchreplace",
            "editexistingfile",
            "replaceinfile",
        ],
        Operation::Delete => &["delete", "deletefile", "removefile", "deletepath"],
        Operation::Fetch => &["fetch", "webfetch", "fetchurl", "urlfetch", "readurl"],
    }
}

const PATH: &[&str] = &[
    "path",
    "filepath",
    "absolutepath",
    "abspath",
    "file",
    "filename",
    "targetfile",
    "uri",
];
const FOLDER: &[&str] = &[
    "path",
    "dirpath",
    "directory",
    "dir",
    "folder",
    "absolutepath",
    "rootpath",
    "relativeworkspacepath",
];

/// The arguments of an operation: the value of the request, and names of the argument in lower
/// case without separators.
fn argument_names(operation: Operation) -> &'static [(&'static str, &'static [&'static str])] {
    match operation {
        Operation::Shell => &[
            ("command", &["command", "cmd"]),
            (
                "cwd",
                &["cwd", "workdir", "workingdirectory", "directory", "dir"],
            ),
            ("timeout", &["timeout", "timeoutms", "timeoutseconds"]),
            (
                "description",
                &["description", "explanation", "justification"],
            ),
        ],
        Operation::Read => &[
            ("abs_path", PATH),
            ("offset", &["offset", "startline", "line", "fromline"]),
            ("limit", &["limit", "numlines", "maxlines"]),
            ("end_line", &["endline", "toline"]),
        ],
        Operation::List => &[("abs_path", FOLDER)],
        Operation::Find => &[
            ("pattern", &["pattern", "glob", "globpattern", "query"]),
            ("abs_path", FOLDER),
        ],
        Operation::Search => &[
            ("pattern", &["pattern", "regex", "regexp", "query"]),
            ("abs_path", FOLDER),
            (
                "glob",
                &["glob", "include", "filepattern", "includepattern"],
            ),
            ("ignore_case", &["ignorecase", "caseinsensitive", "i"]),
            ("context", &["context", "contextlines", "c"]),
        ],
        Operation::Write => &[
            ("abs_path", PATH),
            ("content", &["content", "contents", "text", "filetext"]),
        ],
        Operation::Edit => &[
            ("abs_path", PATH),
            ("old", &["oldstring", "oldtext", "oldstr", "search"]),
            ("new", &["newstring", "newtext", "newstr", "replace"]),
        ],
        Operation::Delete => &[("abs_path", PATH)],
        Operation::Fetch => &[("url", &["url", "uri"]), ("prompt", &["prompt"])],
    }
}

/// Returns a name in lower case without separators.
fn folded(name: &str) -> String {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// Returns how well a name fits an operation; smaller is better.
pub(super) fn rank(name: &str, operation: Operation) -> Option<usize> {
    let name = folded(name);
    let names = tool_names(operation);
    names.iter().position(|known| *known == name)
}

/// Returns the shape of a tool whose name fits the operation.
pub(super) fn derive(tool: &str, operation: Operation, schema: &Json) -> ToolShape {
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let mut arguments = Map::new();
    for (value, names) in argument_names(operation) {
        let found = names.iter().find_map(|name| {
            let mut known = properties.iter();
            known.find(|(known, _)| folded(known) == *name && !arguments.contains_key(*known))
        });
        let Some((name, schema)) = found else {
            continue;
        };
        let value = match *value {
            "timeout" => match timeout_value(name, schema) {
                Some(value) => value,
                None => continue,
            },
            "offset" if says(schema, "0-based") || says(schema, "zero-based") => "offset0",
            value => value,
        };
        let reference = Json::from(format!("${value}"));
        let is_list = schema["type"] == "array";
        arguments.insert(
            name.clone(),
            if is_list {
                Json::Array(vec![reference])
            } else {
                reference
            },
        );
    }
    let format = match operation {
        Operation::Shell => ResultFormat::AnyShell,
        Operation::Read => ResultFormat::AnyRead,
        Operation::List => ResultFormat::AnyList,
        Operation::Find => ResultFormat::FileNames,
        Operation::Search => ResultFormat::GrepLines,
        Operation::Write | Operation::Edit | Operation::Delete | Operation::Fetch => {
            ResultFormat::AnySentence
        }
    };
    ToolShape::derived(tool, operation, arguments, format)
}

fn says(schema: &Json, text: &str) -> bool {
    let description = schema["description"].as_str().unwrap_or_default();
    description.to_lowercase().contains(text)
}

/// Returns the value with the unit that a timeout is given in; `None` if the schema does not say.
fn timeout_value(name: &str, schema: &Json) -> Option<&'static str> {
    let name = folded(name);
    if name.ends_with("ms") || says(schema, "millisecond") || says(schema, "(ms)") {
        Some("timeout_ms")
    } else if name.ends_with("seconds") || says(schema, "second") {
        Some("timeout_s")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_unknown_tool_is_called_by_its_schema() {
        let schema = json!({"properties": {
            "commandLine": {"type": "string"},
            "cmd": {"type": "string"},
            "working_directory": {"type": "string"},
            "timeoutMs": {"type": "number"},
        }});
        assert_eq!(rank("Run-Command", Operation::Shell), Some(3));
        assert_eq!(
            Json::Object(derive("Run-Command", Operation::Shell, &schema).arguments),
            json!({"cmd": "$command", "working_directory": "$cwd", "timeoutMs": "$timeout_ms"})
        );
        let schema = json!({"properties": {
            "target_file": {"type": "string"},
            "offset": {"type": "number", "description": "0-based line"},
            "timeout": {"type": "number"},
        }});
        assert_eq!(
            Json::Object(derive("view_file", Operation::Read, &schema).arguments),
            json!({"target_file": "$abs_path", "offset": "$offset0"})
        );
        assert_eq!(rank("look_around", Operation::Read), None);
    }
}
