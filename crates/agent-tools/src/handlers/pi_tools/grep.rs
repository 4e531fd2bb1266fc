//! The plain-text search (`pi_grep`).

use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::PiToolError;
use crate::handlers::pi_tools;
use crate::handlers::search::{self, OutputLine, Query, SearchOrder, SearchOutput};
use crate::workspace::path_guard::{PathDenied, PathGuard};
use cursor_proto::agent::v1::*;

const MATCHES: usize = 100;
/// The most characters of a line that are shown.
const WIDTH: usize = 500;

/// Searches and returns the matching lines.
pub(crate) fn grep(
    guard: &PathGuard,
    args: &PiGrepExecArgs,
    abort: &CancellationToken,
) -> Result<PiGrepExecSuccess, PiToolError> {
    let target = guard.absolute(pi_tools::named(args.path.as_deref().unwrap_or_default()));
    match guard.read(&target) {
        Ok(_) => {}
        Err(PathDenied::Missing) => {
            return Err(PiToolError(crate::handlers::io_errors::sentence(
                &crate::errno::Errno::NOENT.into(),
                "stat",
                &target,
            )));
        }
        Err(refusal) => return Err(PiToolError(format!("Search blocked: {refusal}"))),
    }
    if crate::handlers::io_errors::readable(&target)
        .is_err_and(|error| crate::handlers::io_errors::is_denied(&error))
    {
        let target = target.display();
        return Err(PiToolError(format!(
            "rg: {target}: Permission denied (os error 13)"
        )));
    }
    let context = args.context.and_then(|lines| usize::try_from(lines).ok());
    let pattern = match args.literal {
        Some(true) => escaped(&args.pattern),
        _ => args.pattern.clone(),
    };
    let query = Query {
        pattern,
        ignore_case: args.ignore_case == Some(true),
        multiline: false,
        output: SearchOutput::Content,
        before: context.unwrap_or(0),
        after: context.unwrap_or(0),
        glob: args.glob.clone().filter(|glob| !glob.is_empty()),
        kind: None,
        order: SearchOrder::Path,
        ascending: true,
        follow_links_inside: false,
    };
    let base = if target.is_dir() {
        target.as_path()
    } else {
        target.parent().unwrap_or(&target)
    };
    let mut result = Matches {
        limit: pi_tools::limit(args.limit, MATCHES),
        lines: Vec::new(),
        matches: 0,
        cut: false,
    };
    search::search(guard, &target, &query, abort, |found| {
        let name = found.path.strip_prefix(base).unwrap_or(&found.path);
        result.take(name, found.lines)
    })
    .map_err(|error| PiToolError(error.to_string().trim_end().to_owned()))?;
    Ok(result.finish())
}

/// Returns a pattern that matches the text literally.
fn escaped(text: &str) -> String {
    let mut pattern = String::new();
    for letter in text.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

struct Matches {
    limit: usize,
    lines: Vec<String>,
    matches: usize,
    cut: bool,
}

impl Matches {
    fn take(&mut self, name: &Path, lines: Vec<OutputLine>) -> bool {
        let name = name.display();
        for line in lines {
            let OutputLine::Text {
                number,
                content,
                context,
            } = line
            else {
                continue;
            };
            if !context {
                if self.matches == self.limit {
                    return false;
                }
                self.matches += 1;
            }
            let shown = match content.char_indices().nth(WIDTH) {
                Some((at, _)) => {
                    self.cut = true;
                    format!("{}... [truncated]", &content[..at])
                }
                None => content,
            };
            self.lines.push(if context {
                format!("{name}-{number}- {shown}")
            } else {
                format!("{name}:{number}: {shown}")
            });
        }
        self.matches < self.limit
    }

    fn finish(self) -> PiGrepExecSuccess {
        if self.lines.is_empty() {
            return PiGrepExecSuccess {
                output: "No matches found".into(),
                ..PiGrepExecSuccess::default()
            };
        }
        let mut output = self.lines.join("\n");
        let truncation = pi_tools::fit(&mut output);
        let limit = self.limit;
        let reached = self.matches == limit;
        let mut notices = Vec::new();
        if reached {
            notices.push(format!(
                "{limit} matches limit reached. Use limit={} for more, or refine pattern",
                limit * 2
            ));
        }
        if self.cut {
            notices.push(format!(
                "Some lines truncated to {WIDTH} chars. Use read tool to see full lines"
            ));
        }
        if !notices.is_empty() {
            output.push_str(&format!("\n\n[{}]", notices.join(". ")));
        }
        PiGrepExecSuccess {
            output,
            truncation,
            match_limit_reached: reached.then(|| u32::try_from(limit).unwrap_or(u32::MAX)),
            lines_truncated: self.cut,
        }
    }
}
