//! The table of transitions that each log has.

/// Returns the phase after an event. What is not listed leaves the phase as it is.
pub(crate) fn next<P: Copy + PartialEq, E: Copy + PartialEq>(
    transitions: &[(P, E, P)],
    phase: P,
    event: E,
) -> P {
    let found = transitions
        .iter()
        .find(|(from, by, _)| (*from, *by) == (phase, event));
    found.map_or(phase, |(.., to)| *to)
}

/// Asserts that the state diagram of `docs/architecture.md` below a heading has exactly these
/// transitions, and that none of them is ambiguous or without effect.
#[cfg(test)]
pub(crate) fn assert_diagram<P, E>(heading: &str, transitions: &[(P, E, P)])
where
    P: Copy + PartialEq + std::fmt::Debug,
    E: Copy + PartialEq + std::fmt::Debug,
{
    for (from, by, to) in transitions {
        assert_ne!(from, to, "{by:?}");
        assert_eq!(next(transitions, *from, *by), *to, "{from:?} {by:?} twice");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/architecture.md");
    let page = std::fs::read_to_string(path).expect("docs/architecture.md");
    let heading = format!("# {heading}\n");
    let (_, section) = page.split_once(&heading).expect("the heading");
    let (_, diagram) = section.split_once("stateDiagram-v2\n").expect("a diagram");
    let (diagram, _) = diagram.split_once("```").expect("its end");
    // The start has no event.
    let shown = diagram
        .lines()
        .map(str::trim)
        .filter(|line| line.contains(':'));
    let mut shown: Vec<String> = shown.map(str::to_owned).collect();
    let lines = transitions.iter();
    let lines = lines.map(|(from, by, to)| format!("{from:?} --> {to:?}: {by:?}"));
    let mut expected: Vec<String> = lines.collect();
    shown.sort();
    expected.sort();
    assert_eq!(shown, expected);
}
