//! Light Markdown for a terminal, as it arrives: headings, bold, code and lists. Everything else is
//! printed as it is.

const RESET: &str = "\u{1b}[0m";
const BOLD: &str = "\u{1b}[1m";
const CODE: &str = "\u{1b}[36m";
const DIM: &str = "\u{1b}[2m";

/// Formats a text that arrives in pieces, however they are cut.
#[derive(Debug, Default)]
pub(super) struct Markdown {
    /// What cannot be decided yet: the start of a line, or asterisks.
    held: String,
    line: Line,
    is_bold: bool,
    is_code: bool,
    /// Whether the text is inside a fenced block.
    is_fenced: bool,
}

/// What is known of the current line.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Line {
    #[default]
    Start,
    Text,
    Heading,
    /// The line that begins or ends a fenced block.
    Fence,
}

impl Markdown {
    /// Returns a piece of text as it is printed. It must not contain control characters.
    pub(super) fn format(&mut self, text: &str) -> String {
        let mut out = String::new();
        for c in text.chars() {
            self.take(c, &mut out);
        }
        out
    }

    /// Returns what was held back, and ends all styles.
    pub(super) fn end(&mut self) -> String {
        let mut out = self.take_held();
        if self.is_styled() {
            out.push_str(RESET);
        }
        *self = Self::default();
        out
    }

    /// Returns what was held back and cannot continue.
    fn take_held(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        // The end of a bold text at the end of its line.
        let ends_bold = self.is_bold && held == "**";
        if ends_bold { String::new() } else { held }
    }

    fn is_styled(&self) -> bool {
        self.is_bold || self.is_code || matches!(self.line, Line::Heading | Line::Fence)
    }

    fn take(&mut self, c: char, out: &mut String) {
        match self.line {
            _ if c == '\n' => self.end_line(out),
            Line::Start => self.start(c, out),
            Line::Fence | Line::Heading => out.push(c),
            Line::Text if self.is_fenced => out.push(c),
            Line::Text => self.inline(c, out),
        }
    }

    fn end_line(&mut self, out: &mut String) {
        let held = self.take_held();
        if self.line == Line::Start && self.is_fence(&held) {
            self.begin_fence(&held, out);
        } else {
            out.push_str(&held);
        }
        if self.is_styled() {
            out.push_str(RESET);
        }
        (self.is_bold, self.is_code, self.line) = (false, false, Line::Start);
        out.push('\n');
    }

    /// Handles a character at the start of a line, where markers are.
    fn start(&mut self, c: char, out: &mut String) {
        let marker = self.held.trim_start().to_owned();
        if self.is_fence(&marker) {
            let held = std::mem::take(&mut self.held);
            self.begin_fence(&held, out);
            out.push(c);
            return;
        }
        let is_marker = matches!(c, '#' | '`' | '-' | '*' | '+' | ' ');
        if is_marker && (c != ' ' || marker.is_empty()) {
            self.held.push(c);
            return;
        }
        let held = std::mem::take(&mut self.held);
        self.line = Line::Text;
        let indent = &held[..held.len() - marker.len()];
        match marker.as_str() {
            _ if self.is_fenced => {
                out.push_str(&held);
                out.push(c);
            }
            "-" | "*" | "+" if c == ' ' => {
                out.push_str(indent);
                out.push_str("• ");
            }
            _ if c == ' '
                && (1..=6).contains(&marker.len())
                && marker.bytes().all(|b| b == b'#') =>
            {
                self.line = Line::Heading;
                out.push_str(BOLD);
            }
            _ => {
                out.push_str(indent);
                for c in marker.chars().chain([c]) {
                    self.inline(c, out);
                }
            }
        }
    }

    fn is_fence(&self, held: &str) -> bool {
        held.trim_start().starts_with("```")
    }

    fn begin_fence(&mut self, held: &str, out: &mut String) {
        self.is_fenced = !self.is_fenced;
        self.line = Line::Fence;
        out.push_str(DIM);
        out.push_str(held);
    }

    /// Handles a character of a text: bold and code.
    fn inline(&mut self, c: char, out: &mut String) {
        if self.is_code && c != '`' {
            return out.push(c);
        }
        match (self.held.as_str(), c) {
            ("" | "*", '*') => self.held.push(c),
            ("**", _) => {
                self.held.clear();
                let opens = !self.is_bold && !c.is_whitespace() && c != '*';
                if opens || self.is_bold {
                    self.is_bold = opens;
                    out.push_str(if opens { BOLD } else { RESET });
                } else {
                    out.push_str("**");
                }
                self.inline(c, out);
            }
            ("*", _) => {
                self.held.clear();
                out.push('*');
                self.inline(c, out);
            }
            (_, '`') => {
                self.is_code = !self.is_code;
                out.push_str(match (self.is_code, self.is_bold) {
                    (true, _) => CODE,
                    (false, true) => "\u{1b}[0;1m",
                    (false, false) => RESET,
                });
            }
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a formatted text with names in place of the escape sequences.
    fn formatted(text: &str) -> String {
        let mut markdown = Markdown::default();
        let out = markdown.format(text) + &markdown.end();
        out.replace("\u{1b}[0;1m", "<0;1>")
            .replace(RESET, "<0>")
            .replace(BOLD, "<b>")
            .replace(CODE, "<c>")
            .replace(DIM, "<d>")
    }

    #[test]
    fn headings_bold_code_and_lists_are_formatted() {
        let text = "## A heading\nSome **bold `x` text** and `a**b`.\n- one\n  * two\n\
                    ```rust\n# not a heading\n- **raw**\n```\nEnd *x* 2 ** 3 #1\n";
        insta::assert_snapshot!(formatted(text), @r"
        <b>A heading<0>
        Some <b>bold <c>x<0;1> text<0> and <c>a**b<0>.
        • one
          • two
        <d>```rust<0>
        # not a heading
        - **raw**
        <d>```<0>
        End *x* 2 ** 3 #1
        ");
    }

    #[test]
    fn what_is_open_at_the_end_is_closed() {
        assert_eq!(formatted("**bold"), "<b>bold<0>");
        assert_eq!(formatted("a *"), "a *");
        assert_eq!(formatted("-"), "-");
        assert_eq!(formatted("```\nx\n```"), "<d>```<0>\nx\n```");
        assert_eq!(formatted("---\n**a**\n"), "---\n<b>a<0>\n");
    }

    proptest! {
        #[test]
        fn the_pieces_make_no_difference(
            text in "[a \\n*`#-]{0,40}",
            cuts in prop::collection::vec(1usize..6, 0..20),
        ) {
            let mut markdown = Markdown::default();
            let (mut out, mut rest) = (String::new(), text.as_str());
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                out.push_str(&markdown.format(piece));
                rest = after;
            }
            out.push_str(&markdown.format(rest));
            out.push_str(&markdown.end());
            let mut whole = Markdown::default();
            let expected = whole.format(&text) + &whole.end();
            prop_assert_eq!(out, expected);
        }
    }
}
