//! The chart of the ratios: one bar for each, on a logarithmic scale around the line where both
//! programs are equal.

use std::fmt::Write as _;

use super::{Figure, goals, number};

const WIDTH: f64 = 1080.0;
const LABELS: f64 = 640.0;
const ROW: f64 = 22.0;
const TOP: f64 = 40.0;
/// Ratios beyond this are drawn as this.
const LARGEST: f64 = 1000.0;
/// The colours of bars whose goal is met, is missed, and that have none.
const MET: &str = "#3a9d5d";
const MISSED: &str = "#d9822b";
const NO_GOAL: &str = "#4a90d9";

/// Draws the ratios of all figures that have something beside them.
pub(super) fn draw(figures: &[Figure]) -> String {
    let bars: Vec<(String, f64, &str)> = figures
        .iter()
        .flat_map(|figure| {
            figure.theirs.iter().map(|other| {
                let more = if figure.unit.ends_with("/s") {
                    " (more is better)"
                } else {
                    ""
                };
                let label = format!("{}, {}{more}", figure.what, other.name);
                let color = match goals::of(figure, other) {
                    Some(goal) if goal.is_reached(figure) => MET,
                    Some(_) => MISSED,
                    None => NO_GOAL,
                };
                (label, figure.median / other.median, color)
            })
        })
        .filter(|(_, ratio, _)| ratio.is_finite() && *ratio > 0.0)
        .collect();
    let height = TOP + ROW * bars.len() as f64 + 10.0;
    let middle = (LABELS + WIDTH) / 2.0;
    let half = (WIDTH - LABELS) / 2.0 - 60.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#888\">\n\
         <text x=\"{middle}\" y=\"16\" text-anchor=\"middle\">ours divided by theirs (logarithmic); \
         <tspan fill=\"{MET}\">goal met</tspan>, <tspan fill=\"{MISSED}\">missed</tspan>, \
         <tspan fill=\"{NO_GOAL}\">no goal</tspan></text>\n\
         <line x1=\"{middle}\" y1=\"24\" x2=\"{middle}\" y2=\"{height}\" stroke=\"#888\"/>\n"
    );
    for (at, (label, ratio, color)) in bars.iter().enumerate() {
        let y = TOP + ROW * at as f64;
        let share = ratio.clamp(1.0 / LARGEST, LARGEST).log10() / LARGEST.log10();
        let length = (half * share).abs().max(1.0);
        let (x, end, anchor) = if share < 0.0 {
            (middle - length, middle - length - 4.0, "end")
        } else {
            (middle, middle + length + 4.0, "start")
        };
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"14\" fill=\"{color}\"/>\
             <text x=\"{end:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{} ×</text>",
            LABELS - 8.0,
            y + 11.0,
            escaped(label),
            y + 11.0,
            number(*ratio),
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
