//! The difference between two texts, by lines.

use std::collections::HashMap;

use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::{Change, DiffOp, DiffableStr as _, group_diff_ops};

/// The lines of two texts, and the operations that turn the old ones into the new ones.
///
/// `similar::TextDiff` has the same result, and compiles each of its six algorithms for several
/// kinds of text; this compiles one, for numbers.
pub(crate) struct LineDiff<'text> {
    old: Vec<&'text str>,
    new: Vec<&'text str>,
    operations: Vec<DiffOp>,
}

impl<'text> LineDiff<'text> {
    pub(crate) fn of(old: &'text str, new: &'text str) -> Self {
        let (old, new) = (old.tokenize_lines(), new.tokenize_lines());
        let mut known = HashMap::new();
        let mut numbers = |lines: &[&'text str]| -> Vec<usize> {
            let numbers = lines.iter().map(|line| {
                let next = known.len();
                *known.entry(*line).or_insert(next)
            });
            numbers.collect()
        };
        let (before, after) = (numbers(&old), numbers(&new));
        let (before, after) = (before.as_slice(), after.as_slice());
        let mut operations = Compact::new(Replace::new(Capture::new()), before, after);
        // It fails only if what receives the operations does, which never fails.
        let Ok(()) = myers::diff(
            &mut operations,
            before,
            0..before.len(),
            after,
            0..after.len(),
        );
        let operations = operations.into_inner().into_inner().into_ops();
        Self {
            old,
            new,
            operations,
        }
    }

    /// Returns the operations in groups, each with this many unchanged lines around it.
    pub(crate) fn groups(&self, context: usize) -> Vec<Vec<DiffOp>> {
        group_diff_ops(self.operations.clone(), context)
    }

    /// Returns the lines of an operation.
    pub(crate) fn changes(&self, operation: &DiffOp) -> impl Iterator<Item = Change<&str>> {
        operation.iter_changes(&self.old, &self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use similar::{Algorithm, capture_diff_slices};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The operations are those of the library's own comparison of texts.
        #[test]
        fn the_operations_are_those_of_a_text_diff(
            old in "([ab]{0,2}(\n|\r\n|\r)){0,150}[ab]{0,1}",
            new in "([ab]{0,2}(\n|\r\n|\r)){0,150}[ab]{0,1}",
        ) {
            let diff = LineDiff::of(&old, &new);
            let (old, new) = (old.tokenize_lines(), new.tokenize_lines());
            prop_assert_eq!(&diff.operations, &capture_diff_slices(Algorithm::Myers, &old, &new));
        }
    }

    #[test]
    fn groups_have_their_lines() {
        let diff = LineDiff::of("a\nb\nc", "a\nB\nc");
        let groups = diff.groups(1);
        let lines = groups.iter().flatten().flat_map(|it| diff.changes(it));
        let lines: String = lines
            .map(|line| format!("{}{}", line.tag(), line.value()))
            .collect();
        assert_eq!(lines, " a\n-b\n+B\n c");
        assert!(
            diff.changes(&groups[0][2])
                .all(|line| line.missing_newline())
        );
    }
}
