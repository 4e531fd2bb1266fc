//! Reads the state diagrams of `docs/architecture.md`, which tests compare with the code.

/// Returns the transitions of the diagram below a heading, sorted: from, event, to.
pub(crate) fn transitions(heading: &str) -> Vec<(String, String, String)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/architecture.md");
    let page = std::fs::read_to_string(path).expect("docs/architecture.md");
    let heading = format!("# {heading}\n");
    let (_, section) = page.split_once(&heading).expect("the heading");
    let (_, diagram) = section.split_once("stateDiagram-v2\n").expect("a diagram");
    let (diagram, _) = diagram.split_once("```").expect("its end");
    let mut found: Vec<_> = diagram.lines().filter_map(transition).collect();
    found.sort();
    found
}

/// Reads `A --> B: event`; `None` for other lines and for the start and end marks.
fn transition(line: &str) -> Option<(String, String, String)> {
    let (from, rest) = line.split_once("-->")?;
    let (to, event) = rest.split_once(':')?;
    Some((from.trim().into(), event.trim().into(), to.trim().into()))
}
