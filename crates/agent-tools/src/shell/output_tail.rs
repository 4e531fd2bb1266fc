//! The end of a text of any length, within the limits of pi's own shell tool.

use cursor_proto::agent::v1::PiTruncation;

/// The most lines of a tail.
pub(crate) const MAX_LINES: usize = 2000;
/// The most bytes of a tail.
pub(crate) const MAX_BYTES: usize = 50 * 1024;
/// The bytes kept in memory, which must be at least those of a tail.
const KEPT: usize = 4 * MAX_BYTES;

/// Collects the end of a text that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct OutputTail {
    text: String,
    bytes: usize,
    line_breaks: usize,
}

impl OutputTail {
    pub(crate) fn push(&mut self, text: &str) {
        self.bytes += text.len();
        self.line_breaks += text.matches('\n').count();
        self.text.push_str(text);
        if self.text.len() > 2 * KEPT {
            let cut = char_boundary(&self.text, self.text.len() - KEPT);
            self.text.drain(..cut);
        }
    }

    /// Returns the length of the whole text.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the lines of the whole text; a line break at its end begins no line.
    pub(crate) fn lines(&self) -> usize {
        self.line_breaks + usize::from(!self.text.ends_with('\n'))
    }

    /// Returns the last lines that fit, and what was left out.
    pub(crate) fn shown(&self) -> (&str, Option<PiTruncation>) {
        last_lines(&self.text, self.bytes, self.line_breaks + 1)
    }
}

fn char_boundary(text: &str, from: usize) -> usize {
    (from..=text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len())
}

/// Returns the last lines of a text that fit, and what was left out. `bytes` and `lines` are those
/// of the whole text if this is only its end.
pub(crate) fn last_lines(text: &str, bytes: usize, lines: usize) -> (&str, Option<PiTruncation>) {
    if bytes <= MAX_BYTES && lines <= MAX_LINES && bytes <= text.len() {
        return (text, None);
    }
    let (mut length, mut kept) = (0, 0);
    let mut by = "lines";
    for line in text.rsplit('\n') {
        let next = length + line.len() + usize::from(kept > 0);
        if kept == MAX_LINES {
            break;
        }
        if next > MAX_BYTES {
            by = "bytes";
            break;
        }
        (length, kept) = (next, kept + 1);
    }
    let is_partial = kept == 0;
    if is_partial {
        // The last line alone is too long: return its end.
        let start = char_boundary(text, text.len() - MAX_BYTES.min(text.len()));
        (length, kept) = (text.len() - start, 1);
    }
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let truncation = PiTruncation {
        truncated: true,
        truncated_by: by.into(),
        total_lines: number(lines),
        output_lines: number(kept),
        output_bytes: number(length),
        max_lines: Some(number(MAX_LINES)),
        max_bytes: Some(number(MAX_BYTES)),
        first_line_exceeds_limit: false,
        last_line_partial: is_partial,
    };
    (&text[text.len() - length..], Some(truncation))
}

/// Returns which part of a text is shown, in the words of pi's shell tool.
pub(crate) fn shown_part(cut: &PiTruncation) -> String {
    let last = cut.total_lines;
    if cut.last_line_partial {
        let kilobytes = cut.output_bytes / 1024;
        return format!(
            "last {kilobytes}KB of line {last} ({}KB limit)",
            MAX_BYTES / 1024
        );
    }
    let first = last.saturating_sub(cut.output_lines) + 1;
    format!("lines {first}-{last} of {last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_has_the_last_lines_of_a_text_in_pieces() {
        let mut tail = OutputTail::default();
        for n in 1..=100_000 {
            tail.push(&format!("{n}\n"));
        }
        assert_eq!(tail.lines(), 100_000);
        let (text, cut) = tail.shown();
        let cut = cut.unwrap();
        assert!(text.ends_with("\n99999\n100000\n"), "{text}");
        assert_eq!((cut.total_lines, cut.output_lines), (100_001, 2000));
        assert_eq!(shown_part(&cut), "lines 98002-100001 of 100001");
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let mut tail = OutputTail::default();
        tail.push(&"ä".repeat(MAX_BYTES));
        let (text, cut) = tail.shown();
        let cut = cut.unwrap();
        assert!(cut.last_line_partial && text.len() <= MAX_BYTES && text.len() > MAX_BYTES - 2);
        assert_eq!(shown_part(&cut), "last 50KB of line 1 (50KB limit)");
        let mut short = OutputTail::default();
        short.push("a\nb");
        assert_eq!(short.shown(), ("a\nb", None));
    }
}
