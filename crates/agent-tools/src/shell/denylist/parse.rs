//! The commands in a text: what a shell would look up and execute.
//!
//! The text is parsed by a shell's own parser. A text that cannot be parsed, or whose commands are
//! known only when it is executed, is [`ParseError`].

use std::io::Cursor;

use brush_parser::ast::{
    AndOr, AndOrList, Assignment, AssignmentName, AssignmentValue, Command,
    CommandPrefixOrSuffixItem as Item, CompoundCommand, CompoundList, ExtendedTestExpr,
    IoFileRedirectTarget, IoRedirect, Pipeline, SimpleCommand,
};
use brush_parser::{Parser, ParserOptions, SourceInfo};

use super::word::{ShellWord, hides_code};
use super::wrapper;

pub(super) const OPTIONS: ParserOptions = ParserOptions {
    enable_extended_globbing: true,
    posix_mode: false,
    sh_mode: false,
    tilde_expansion: true,
};

/// It cannot be decided which commands a text executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be decided which commands are executed")]
pub(super) struct ParseError;

/// The most bytes of a command that are parsed.
const MAX_TEXT: usize = 128 * 1024;
/// The most levels of nested texts: substitutions, `eval`, `bash -c`.
const MAX_DEPTH: usize = 20;
/// The most nested parentheses, because the parser's time doubles with each.
const MAX_PARENTHESES: usize = 12;
/// The most words and signs that start a compound command, because the parser's stack grows with
/// each.
const MAX_COMPOUND: usize = 500;

/// One command with its arguments. The text of the first word is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Invocation(pub(crate) Vec<ShellWord>);

/// The commands of a text.
#[derive(Debug, Default)]
pub(super) struct FoundCommands {
    pub(super) invocations: Vec<Invocation>,
    depth: usize,
}

impl FoundCommands {
    /// Finds the commands of a text.
    pub(super) fn program(&mut self, text: &str) -> Result<(), ParseError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH || !is_parsable(text) {
            return Err(ParseError);
        }
        let reader = Cursor::new(text.as_bytes());
        let mut parser = Parser::new(reader, &OPTIONS, &SourceInfo::default());
        let program = parser.parse_program().map_err(|_| ParseError)?;
        for list in &program.complete_commands {
            self.list(list)?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Finds the commands in an arithmetic expression.
    pub(super) fn arithmetic(&mut self, expression: &str) -> Result<(), ParseError> {
        let mut open = 0_usize;
        for letter in expression.chars() {
            match letter {
                '(' => open += 1,
                // An unmatched parenthesis means that this is not arithmetic.
                ')' => open = open.checked_sub(1).ok_or(ParseError)?,
                ';' | '\'' | '\\' => return Err(ParseError),
                _ => {}
            }
        }
        if hides_code(expression) {
            ShellWord::read(expression, self)?;
        }
        Ok(())
    }

    fn list(&mut self, list: &CompoundList) -> Result<(), ParseError> {
        list.0.iter().try_for_each(|item| self.and_or(&item.0))
    }

    fn and_or(&mut self, list: &AndOrList) -> Result<(), ParseError> {
        self.pipeline(&list.first)?;
        list.additional.iter().try_for_each(|next| match next {
            AndOr::And(pipeline) | AndOr::Or(pipeline) => self.pipeline(pipeline),
        })
    }

    fn pipeline(&mut self, pipeline: &Pipeline) -> Result<(), ParseError> {
        let commands = pipeline.seq.iter();
        commands.into_iter().try_for_each(|it| self.command(it))
    }

    fn command(&mut self, command: &Command) -> Result<(), ParseError> {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirects) => {
                let redirects = redirects.iter().flat_map(|list| &list.0);
                redirects.into_iter().try_for_each(|it| self.redirect(it))?;
                self.compound(compound)
            }
            Command::Function(function) => {
                let redirects = function.body.1.iter().flat_map(|list| &list.0);
                redirects.into_iter().try_for_each(|it| self.redirect(it))?;
                self.compound(&function.body.0)
            }
            Command::ExtendedTest(test) => self.test(&test.expr),
        }
    }

    fn compound(&mut self, compound: &CompoundCommand) -> Result<(), ParseError> {
        match compound {
            CompoundCommand::Arithmetic(arithmetic) => self.arithmetic(&arithmetic.expr.value),
            CompoundCommand::ArithmeticForClause(clause) => {
                let parts = [&clause.initializer, &clause.condition, &clause.updater];
                for part in parts.into_iter().flatten() {
                    self.arithmetic(&part.value)?;
                }
                self.list(&clause.body.list)
            }
            CompoundCommand::BraceGroup(group) => self.list(&group.list),
            CompoundCommand::Subshell(subshell) => self.list(&subshell.list),
            CompoundCommand::ForClause(clause) => {
                for value in clause.values.iter().flatten() {
                    self.word(&value.value)?;
                }
                self.list(&clause.body.list)
            }
            CompoundCommand::CaseClause(clause) => {
                self.word(&clause.value.value)?;
                for case in &clause.cases {
                    for pattern in &case.patterns {
                        self.word(&pattern.value)?;
                    }
                    case.cmd.iter().try_for_each(|list| self.list(list))?;
                }
                Ok(())
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition)?;
                self.list(&clause.then)?;
                for other in clause.elses.iter().flatten() {
                    other.condition.iter().try_for_each(|it| self.list(it))?;
                    self.list(&other.body)?;
                }
                Ok(())
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.list(&clause.0)?;
                self.list(&clause.1.list)
            }
        }
    }

    fn word(&mut self, written: &str) -> Result<ShellWord, ParseError> {
        ShellWord::read(written, self)
    }

    /// A word that is evaluated, perhaps more than once.
    fn evaluated(&mut self, written: &str) -> Result<ShellWord, ParseError> {
        let word = self.word(written)?;
        if word.text().is_some_and(|text| hides_code(&text)) {
            return Err(ParseError);
        }
        Ok(word)
    }

    fn test(&mut self, test: &ExtendedTestExpr) -> Result<(), ParseError> {
        match test {
            ExtendedTestExpr::And(one, other) | ExtendedTestExpr::Or(one, other) => {
                self.test(one)?;
                self.test(other)
            }
            ExtendedTestExpr::Not(inside) | ExtendedTestExpr::Parenthesized(inside) => {
                self.test(inside)
            }
            ExtendedTestExpr::UnaryTest(_, word) => self.evaluated(&word.value).map(drop),
            ExtendedTestExpr::BinaryTest(_, one, other) => {
                self.evaluated(&one.value)?;
                self.evaluated(&other.value).map(drop)
            }
        }
    }

    fn assignment(&mut self, assignment: &Assignment) -> Result<(), ParseError> {
        if let AssignmentName::ArrayElementName(_, index) = &assignment.name {
            self.arithmetic(index)?;
        }
        match &assignment.value {
            AssignmentValue::Scalar(value) => self.evaluated(&value.value).map(drop),
            AssignmentValue::Array(values) => values.iter().try_for_each(|(index, value)| {
                if let Some(index) = index {
                    self.evaluated(&index.value)?;
                }
                self.evaluated(&value.value).map(drop)
            }),
        }
    }

    fn redirect(&mut self, redirect: &IoRedirect) -> Result<(), ParseError> {
        match redirect {
            IoRedirect::File(_, _, target) => match target {
                IoFileRedirectTarget::Filename(word) | IoFileRedirectTarget::Duplicate(word) => {
                    self.word(&word.value).map(drop)
                }
                IoFileRedirectTarget::Fd(_) => Ok(()),
                IoFileRedirectTarget::ProcessSubstitution(_, subshell) => self.list(&subshell.list),
            },
            IoRedirect::HereDocument(_, document) => {
                let text = &document.doc.value;
                if !document.requires_expansion || !text.contains(['$', '`']) {
                    return Ok(());
                }
                if text.contains("@P}") {
                    return Err(ParseError);
                }
                if !hides_code(text) {
                    return Ok(());
                }
                // Quotes in a here-document do not mean the same as in a word.
                if text.contains(['\'', '"', '\\']) {
                    return Err(ParseError);
                }
                self.word(&format!("\"{text}\"")).map(drop)
            }
            IoRedirect::HereString(_, word) | IoRedirect::OutputAndError(word, _) => {
                self.word(&word.value).map(drop)
            }
        }
    }

    fn simple(&mut self, simple: &SimpleCommand) -> Result<(), ParseError> {
        let mut words = Vec::new();
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            words.extend(self.item(item)?);
        }
        // Assignments and redirections before the name are not arguments.
        words.clear();
        if let Some(name) = &simple.word_or_name {
            words.push(self.word(&name.value)?);
        }
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            words.extend(self.item(item)?);
        }
        if words.is_empty() {
            return Ok(());
        }
        self.invocation(words)
    }

    fn item(&mut self, item: &Item) -> Result<Option<ShellWord>, ParseError> {
        match item {
            Item::IoRedirect(redirect) => self.redirect(redirect).map(|()| None),
            Item::Word(word) => self.word(&word.value).map(Some),
            Item::AssignmentWord(assignment, word) => {
                self.assignment(assignment)?;
                self.word(&word.value).map(Some)
            }
            Item::ProcessSubstitution(_, subshell) => {
                self.list(&subshell.list)?;
                Ok(Some(ShellWord::unknown()))
            }
        }
    }

    /// Adds a command, and those it executes in turn.
    pub(super) fn invocation(&mut self, words: Vec<ShellWord>) -> Result<(), ParseError> {
        let Some(first) = words.first() else {
            return Ok(());
        };
        let name = first.known()?;
        if first.written == name && is_reserved(&name) {
            return Err(ParseError);
        }
        let base = name.rsplit('/').next().unwrap_or(&name).to_owned();
        if base != name {
            let mut same = words.clone();
            same[0] = ShellWord::literal(&base);
            self.invocations.push(Invocation(same));
        }
        self.invocations.push(Invocation(words.clone()));
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ParseError);
        }
        wrapper::follow(self, &base, &words[1..])?;
        self.depth -= 1;
        Ok(())
    }
}

/// Returns whether the parser reads a text as the shell does, and in reasonable time.
fn is_parsable(text: &str) -> bool {
    // The shell accepts no other characters as blanks.
    let is_odd = |letter: char| {
        letter.is_control() && !matches!(letter, '\n' | '\t')
            || letter.is_whitespace() && !letter.is_ascii()
    };
    let (mut open, mut deepest) = (0_usize, 0_usize);
    for letter in text.chars() {
        match letter {
            '(' => open += 1,
            ')' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    let begins = |word: &&str| is_reserved(word) || word.starts_with(['{', '!']);
    let compound = text
        .split(|letter: char| letter.is_whitespace() || matches!(letter, ';' | '&' | '|' | '('))
        .filter(begins)
        .count();
    text.len() <= MAX_TEXT
        && !text.contains(is_odd)
        && deepest <= MAX_PARENTHESES
        && compound <= MAX_COMPOUND
}

/// Returns whether an unquoted word is a reserved word of the shell.
fn is_reserved(word: &str) -> bool {
    matches!(
        word,
        "!" | "{"
            | "}"
            | "[["
            | "]]"
            | "if"
            | "then"
            | "elif"
            | "else"
            | "fi"
            | "while"
            | "until"
            | "for"
            | "in"
            | "do"
            | "done"
            | "case"
            | "esac"
            | "select"
            | "function"
            | "time"
    )
}
