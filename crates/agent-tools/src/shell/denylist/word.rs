//! A word of a command, as far as its text is known before it is executed.

use brush_parser::word::{self, WordPiece, WordPieceWithSource};

use super::parse::{FoundCommands, OPTIONS, ParseError};

/// A piece of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordPart {
    /// A known character.
    Letter(char),
    /// Some text without blanks: a quoted expansion, a pattern.
    Part,
    /// Any text, perhaps several words: an expansion that is split, a brace expansion.
    Parts,
}

/// One word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShellWord {
    /// As it is written.
    pub(super) written: String,
    /// Without quotes.
    pub(super) pieces: Vec<WordPart>,
}

impl ShellWord {
    /// Returns a word of which nothing is known.
    pub(super) fn unknown() -> Self {
        Self {
            written: String::new(),
            pieces: vec![WordPart::Parts],
        }
    }

    /// Returns a word that is this text.
    pub(super) fn literal(text: &str) -> Self {
        Self {
            written: text.to_owned(),
            pieces: text.chars().map(WordPart::Letter).collect(),
        }
    }

    /// Returns its text, or `None` if a part of it is unknown.
    pub(super) fn text(&self) -> Option<String> {
        let letter = |piece: &WordPart| match piece {
            WordPart::Letter(letter) => Some(*letter),
            WordPart::Part | WordPart::Parts => None,
        };
        self.pieces.iter().map(letter).collect()
    }

    /// Returns its text, or an error if a part of it is unknown.
    pub(super) fn known(&self) -> Result<String, ParseError> {
        self.text().ok_or(ParseError)
    }

    /// Parses a word, and adds the commands inside it to `found`.
    pub(super) fn read(written: &str, found: &mut FoundCommands) -> Result<Self, ParseError> {
        let mut reader = WordReader {
            source: written,
            pieces: Vec::new(),
            found,
        };
        let parsed = word::parse(written, &OPTIONS).map_err(|_| ParseError)?;
        reader.all(&parsed, false)?;
        let pieces = reader.pieces;
        let has = |letter| pieces.contains(&WordPart::Letter(letter));
        let is_expanded = is_brace_expansion(&parsed) && has('{') && has('}');
        Ok(Self {
            written: written.to_owned(),
            pieces: if is_expanded {
                vec![WordPart::Parts]
            } else {
                pieces
            },
        })
    }
}

/// Returns whether a text contains something that a shell would expand if it evaluated it.
pub(super) fn hides_code(text: &str) -> bool {
    ["$(", "`", "${", "<(", ">("]
        .iter()
        .any(|mark| text.contains(mark))
}

/// Returns whether the unquoted text of a word looks like `{a,b}` or `{1..3}`.
fn is_brace_expansion(pieces: &[WordPieceWithSource]) -> bool {
    let unquoted: String = pieces
        .iter()
        .map(|piece| match &piece.piece {
            WordPiece::Text(text) => text.as_str(),
            _ => "x",
        })
        .collect();
    let Some(open) = unquoted.find('{') else {
        return false;
    };
    let inside = &unquoted[open..];
    inside.contains('}') && (inside.contains(',') || inside.contains(".."))
}

struct WordReader<'a> {
    source: &'a str,
    pieces: Vec<WordPart>,
    found: &'a mut FoundCommands,
}

impl WordReader<'_> {
    fn all(&mut self, pieces: &[WordPieceWithSource], quoted: bool) -> Result<(), ParseError> {
        pieces.iter().try_for_each(|piece| self.one(piece, quoted))
    }

    fn letters(&mut self, text: &str) {
        self.pieces.extend(text.chars().map(WordPart::Letter));
    }

    /// Adds an expansion, which is a single word if it is quoted.
    fn expansion(&mut self, quoted: bool) {
        let piece = if quoted {
            WordPart::Part
        } else {
            WordPart::Parts
        };
        self.pieces.push(piece);
    }

    fn one(&mut self, piece: &WordPieceWithSource, quoted: bool) -> Result<(), ParseError> {
        let source = self
            .source
            .get(piece.start_index..piece.end_index)
            .ok_or(ParseError)?;
        match &piece.piece {
            WordPiece::Text(text) if quoted => self.letters(text),
            WordPiece::Text(text) => {
                let is_pattern = |letter| matches!(letter, '*' | '?' | '[' | '(' | ')');
                let piece = |letter| {
                    if is_pattern(letter) {
                        WordPart::Part
                    } else {
                        WordPart::Letter(letter)
                    }
                };
                // A single bracket is the name of a command.
                if text == "[" {
                    self.letters(text);
                } else {
                    self.pieces.extend(text.chars().map(piece));
                }
            }
            WordPiece::SingleQuotedText(text) => self.letters(text),
            WordPiece::AnsiCQuotedText(text) if text.contains('\\') => return Err(ParseError),
            WordPiece::AnsiCQuotedText(text) => self.letters(text),
            WordPiece::DoubleQuotedSequence(inside)
            | WordPiece::GettextDoubleQuotedSequence(inside) => self.all(inside, true)?,
            WordPiece::TildePrefix(_) => self.letters(source),
            WordPiece::EscapeSequence(text) => {
                let letters = text.strip_prefix('\\').unwrap_or(text);
                self.letters(letters);
            }
            WordPiece::CommandSubstitution(command) => {
                self.found.program(command)?;
                self.expansion(quoted);
            }
            WordPiece::BackquotedCommandSubstitution(_) => {
                let inside = source.strip_prefix('`').and_then(|it| it.strip_suffix('`'));
                let command = without_escapes(inside.ok_or(ParseError)?, quoted);
                self.found.program(&command)?;
                self.expansion(quoted);
            }
            WordPiece::ArithmeticExpression(expression) => {
                self.found.arithmetic(&expression.value)?;
                self.expansion(quoted);
            }
            WordPiece::ParameterExpansion(_) => {
                self.parameter(source)?;
                let is_list = source.contains('@');
                self.expansion(quoted && !is_list);
            }
        }
        Ok(())
    }

    /// Reads `$x`, `${x:-word}` and similar. The meaning of quotes inside depends on the context,
    /// so nothing inside may be a command.
    fn parameter(&mut self, source: &str) -> Result<(), ParseError> {
        let Some(inside) = source
            .strip_prefix("${")
            .and_then(|it| it.strip_suffix('}'))
        else {
            return Ok(());
        };
        // `${x@P}` executes the value of a variable.
        if inside.ends_with("@P") {
            return Err(ParseError);
        }
        if !hides_code(inside) {
            return Ok(());
        }
        if inside.contains(['\'', '\\']) {
            return Err(ParseError);
        }
        ShellWord::read(inside, self.found).map(drop)
    }
}

/// Returns the command in backquotes as the shell reads it.
fn without_escapes(text: &str, quoted: bool) -> String {
    let mut command = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let is_escaped = |next: &char| matches!(next, '`' | '\\' | '$') || quoted && *next == '"';
        match (letter, letters.peek().copied()) {
            ('\\', Some(next)) if is_escaped(&next) => {
                command.push(next);
                letters.next();
            }
            _ => command.push(letter),
        }
    }
    command
}
