//! The simple commands in a command: what the shell would look up and run.
//!
//! This is no shell. It finds where commands begin, in lists, substitutions and documents,
//! and rather finds one too many. What it cannot follow is an error.

/// A simple command, word by word.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Simple {
    /// Without quotes.
    pub(super) plain: Vec<String>,
    /// As it is written.
    pub(super) written: Vec<String>,
}

/// The command cannot be taken apart.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command cannot be taken apart")]
pub(super) struct Unclear;

/// Substitutions in substitutions that are followed.
const DEPTH: usize = 50;

/// All simple commands of a text the shell has found valid.
pub(super) fn simple_commands(text: &str) -> Result<Vec<Simple>, Unclear> {
    let mut reader = Reader::new(text, 0);
    reader.list(None)?;
    Ok(reader.found)
}

#[derive(Debug, Default)]
struct Word {
    plain: String,
    written: String,
}

/// A document that follows the line.
struct Document {
    end: String,
    indented: bool,
    quoted: bool,
}

struct Reader {
    text: Vec<char>,
    at: usize,
    depth: usize,
    words: Vec<Word>,
    documents: Vec<Document>,
    found: Vec<Simple>,
}

impl Reader {
    fn new(text: &str, depth: usize) -> Self {
        Self {
            text: text.chars().collect(),
            at: 0,
            depth,
            words: Vec::new(),
            documents: Vec::new(),
            found: Vec::new(),
        }
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn is_next(&self, text: &str) -> bool {
        let mut rest = self.text[self.at..].iter();
        text.chars().all(|letter| rest.next() == Some(&letter))
    }

    fn next(&mut self) -> Result<char, Unclear> {
        let letter = self.peek().ok_or(Unclear)?;
        self.at += 1;
        Ok(letter)
    }

    /// Commands up to the closing parenthesis, or the end of the text.
    fn list(&mut self, end: Option<char>) -> Result<(), Unclear> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(Unclear);
        }
        let outer = std::mem::take(&mut self.words);
        loop {
            let Some(letter) = self.peek() else {
                self.end_command();
                if end.is_some() {
                    return Err(Unclear);
                }
                break;
            };
            if Some(letter) == end {
                self.end_command();
                self.at += 1;
                break;
            }
            self.step(letter)?;
        }
        self.words = outer;
        self.depth -= 1;
        Ok(())
    }

    fn step(&mut self, letter: char) -> Result<(), Unclear> {
        match letter {
            '\\' if self.is_next("\\\n") => self.at += 2,
            '\n' => {
                self.at += 1;
                self.end_command();
                self.read_documents()?;
            }
            letter if letter.is_whitespace() => self.at += 1,
            '&' if self.is_next("&>") => {
                self.at += 1;
                self.redirect()?;
            }
            ';' | '&' | '|' => {
                self.at += 1;
                self.end_command();
            }
            '(' if self.words.len() == 1 && self.is_next("()") => {
                // A function: its name is none of a command.
                self.words.clear();
                self.at += 2;
            }
            '(' => {
                self.end_command();
                match self.is_next("((") {
                    true => self.arithmetic()?,
                    false => {
                        self.at += 1;
                        self.list(Some(')'))?;
                    }
                }
            }
            ')' => {
                // The end of a pattern in `case`.
                self.words.clear();
                self.at += 1;
            }
            '<' | '>' if !self.is_next("<(") && !self.is_next(">(") => self.redirect()?,
            '#' => {
                while self.peek().is_some_and(|letter| letter != '\n') {
                    self.at += 1;
                }
            }
            _ => {
                let word = self.word()?;
                let is_number = word.written.bytes().all(|byte| byte.is_ascii_digit());
                if !(is_number && matches!(self.peek(), Some('<' | '>'))) {
                    self.words.push(word);
                }
            }
        }
        Ok(())
    }

    /// `> file`, `<<END` and their like: no words of the command.
    fn redirect(&mut self) -> Result<(), Unclear> {
        let document = self.is_next("<<") && !self.is_next("<<<");
        let mut operator = 0;
        while matches!(self.peek(), Some('<' | '>' | '&' | '|')) && operator < 3 {
            if operator > 0 && (self.is_next("<(") || self.is_next(">(")) {
                break;
            }
            self.at += 1;
            operator += 1;
            if document && operator == 2 {
                break;
            }
        }
        let indented = document && self.peek() == Some('-');
        self.at += usize::from(indented);
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.at += 1;
        }
        let target = self.word()?;
        if document {
            self.documents.push(Document {
                quoted: target.plain != target.written,
                end: target.plain,
                indented,
            });
        }
        Ok(())
    }

    fn read_documents(&mut self) -> Result<(), Unclear> {
        for document in std::mem::take(&mut self.documents) {
            let mut body = String::new();
            while self.at < self.text.len() {
                let rest = &self.text[self.at..];
                let length = rest.iter().position(|letter| *letter == '\n');
                let line: String = rest[..length.unwrap_or(rest.len())].iter().collect();
                self.at += length.map_or(rest.len(), |length| length + 1);
                let shown = match document.indented {
                    true => line.trim_start_matches('\t'),
                    false => &line,
                };
                if shown == document.end {
                    break;
                }
                body.push_str(&line);
                body.push('\n');
            }
            if !document.quoted {
                let mut inside = Reader::new(&body, self.depth);
                inside.expansions(None, &mut Word::default())?;
                self.found.append(&mut inside.found);
            }
        }
        Ok(())
    }

    /// One word; what it substitutes is taken apart too.
    fn word(&mut self) -> Result<Word, Unclear> {
        let mut word = Word::default();
        let start = self.at;
        while let Some(letter) = self.peek() {
            match letter {
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '(' | ')' => break,
                '<' | '>' => {
                    if !self.is_next("<(") && !self.is_next(">(") {
                        break;
                    }
                    self.at += 2;
                    self.list(Some(')'))?;
                    word.plain.push(letter);
                }
                '\\' => {
                    self.at += 1;
                    if let Ok(next) = self.next()
                        && next != '\n'
                    {
                        word.plain.push(next);
                    }
                }
                '\'' => {
                    self.at += 1;
                    loop {
                        match self.next()? {
                            '\'' => break,
                            letter => word.plain.push(letter),
                        }
                    }
                }
                '"' => {
                    self.at += 1;
                    self.expansions(Some('"'), &mut word)?;
                }
                '$' => self.dollar(&mut word)?,
                '`' => self.backticks(&mut word)?,
                letter => {
                    self.at += 1;
                    word.plain.push(letter);
                }
            }
        }
        word.written = self.text[start..self.at].iter().collect();
        // A word is always read where one must be.
        if start == self.at {
            Err(Unclear)
        } else {
            Ok(word)
        }
    }

    /// Text in which only expansions count, up to its end.
    fn expansions(&mut self, end: Option<char>, word: &mut Word) -> Result<(), Unclear> {
        loop {
            let Some(letter) = self.peek() else {
                return if end.is_some() { Err(Unclear) } else { Ok(()) };
            };
            match letter {
                letter if Some(letter) == end => {
                    self.at += 1;
                    return Ok(());
                }
                '\\' => {
                    self.at += 1;
                    match self.peek() {
                        Some('\n') => self.at += 1,
                        Some(next @ ('$' | '`' | '"' | '\\')) => {
                            self.at += 1;
                            word.plain.push(next);
                        }
                        _ => word.plain.push('\\'),
                    }
                }
                '$' if !self.is_next("$'") && !self.is_next("$\"") => self.dollar(word)?,
                '`' => self.backticks(word)?,
                letter => {
                    self.at += 1;
                    word.plain.push(letter);
                }
            }
        }
    }

    /// What a dollar begins. Its value is not known: the word is no plain one.
    fn dollar(&mut self, word: &mut Word) -> Result<(), Unclear> {
        let start = self.at;
        self.at += 1;
        match self.peek() {
            Some('(') if self.is_next("((") => self.arithmetic()?,
            Some('(') => {
                self.at += 1;
                self.list(Some(')'))?;
            }
            Some('{') => {
                self.at += 1;
                self.braces()?;
            }
            Some('\'') => {
                self.at += 1;
                loop {
                    match self.next()? {
                        '\'' => return Ok(()),
                        '\\' => return Err(Unclear),
                        letter => word.plain.push(letter),
                    }
                }
            }
            Some('"') => {
                self.at += 1;
                return self.expansions(Some('"'), word);
            }
            _ => {}
        }
        word.plain.extend(&self.text[start..self.at]);
        Ok(())
    }

    /// `${…}`: anything up to its brace, whose own expansions count.
    fn braces(&mut self) -> Result<(), Unclear> {
        let mut ignored = Word::default();
        loop {
            match self.peek().ok_or(Unclear)? {
                '}' => {
                    self.at += 1;
                    return Ok(());
                }
                '\\' => {
                    self.at += 1;
                    self.next()?;
                }
                '\'' => {
                    self.at += 1;
                    while self.next()? != '\'' {}
                }
                '"' => {
                    self.at += 1;
                    self.expansions(Some('"'), &mut ignored)?;
                }
                '$' => self.dollar(&mut ignored)?,
                '`' => self.backticks(&mut ignored)?,
                '<' | '>' if self.is_next("<(") || self.is_next(">(") => {
                    self.at += 2;
                    self.list(Some(')'))?;
                }
                _ => self.at += 1,
            }
        }
    }

    /// `((…))`. What looks like it and is none is not followed.
    fn arithmetic(&mut self) -> Result<(), Unclear> {
        let mut open = 0;
        let mut ignored = Word::default();
        loop {
            match self.peek().ok_or(Unclear)? {
                '(' => {
                    self.at += 1;
                    open += 1;
                }
                ')' => {
                    self.at += 1;
                    open -= 1;
                    match open {
                        0 => return Ok(()),
                        1 if self.peek() != Some(')') => return Err(Unclear),
                        _ => {}
                    }
                }
                '$' => self.dollar(&mut ignored)?,
                '`' => self.backticks(&mut ignored)?,
                _ => self.at += 1,
            }
        }
    }

    fn backticks(&mut self, word: &mut Word) -> Result<(), Unclear> {
        self.at += 1;
        let mut inside = String::new();
        loop {
            match self.next()? {
                '`' => break,
                '\\' => match self.next()? {
                    letter @ ('`' | '\\' | '$') => inside.push(letter),
                    letter => inside.extend(['\\', letter]),
                },
                letter => inside.push(letter),
            }
        }
        let mut reader = Reader::new(&inside, self.depth);
        reader.list(None)?;
        self.found.append(&mut reader.found);
        word.plain.push('`');
        Ok(())
    }

    /// The words so far are a command, less what stands before its name.
    fn end_command(&mut self) {
        let mut words = std::mem::take(&mut self.words);
        loop {
            let Some(first) = words.first() else { return };
            let before = match first.written.as_str() {
                "!" | "if" | "then" | "elif" | "else" | "fi" | "while" | "until" | "do"
                | "done" | "esac" | "{" | "}" | "time" | "coproc" => 1,
                "function" => 2,
                "for" | "select" => words
                    .iter()
                    .position(|word| word.written == "do")
                    .unwrap_or(words.len()),
                "case" => words.len(),
                written if is_assignment(written) => 1,
                _ => break,
            };
            words.drain(..before.min(words.len()));
        }
        let declares = [
            "[", "[[", "export", "declare", "local", "readonly", "typeset", "unset",
        ];
        if declares.contains(&words[0].plain.as_str()) {
            return;
        }
        let mut simple = Simple::default();
        for word in words {
            simple.plain.push(word.plain);
            simple.written.push(word.written);
        }
        self.found.push(simple);
    }
}

/// `NAME=value`, `NAME+=value`, `NAME[1]=value`.
fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else {
        return false;
    };
    let name = name.strip_suffix('+').unwrap_or(name);
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    let mut letters = name.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests;
