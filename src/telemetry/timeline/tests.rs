use serde_json::json;

use super::*;

/// Returns the lines of a log from microseconds, event and further fields.
fn log(records: &[(u64, &str, Json)]) -> String {
    let lines = records.iter().map(|(us, event, fields)| {
        let mut line = json!({"ts": 1, "us": us, "level": "DEBUG", "target": "x", "event": event});
        let fields = fields.as_object().unwrap().clone();
        line.as_object_mut().unwrap().extend(fields);
        format!("{line}\n")
    });
    lines.collect()
}

fn drawn(text: &str) -> String {
    let style = Style {
        width: 90,
        unicode: false,
        color: false,
    };
    render(&read(text), style)
}

fn good_turn() -> Vec<(u64, &'static str, Json)> {
    let turn = || json!({"turn": "t1", "session": "01234567"});
    let run = || json!({"run": "r1"});
    let with = |mut base: Json, more: Json| {
        let more = more.as_object().unwrap().clone();
        base.as_object_mut().unwrap().extend(more);
        base
    };
    vec![
        (1_000, "turn.started", turn()),
        (
            2_000,
            "run.started",
            with(run(), json!({"model": "gpt-5.5"})),
        ),
        (2_000, "attempt.started", with(run(), json!({"n": 1}))),
        (52_000, "token.exchanged", json!({"life_s": 3600})),
        (
            100_000,
            "stream.opened",
            with(run(), json!({"version": "HTTP/2.0"})),
        ),
        (400_000, "thinking.first", run()),
        (
            600_000,
            "exec.asked",
            with(run(), json!({"exec": 1, "kind": "ReadArgs"})),
        ),
        (
            650_000,
            "exec.asked",
            with(run(), json!({"exec": 2, "kind": "ShellArgs"})),
        ),
        (
            700_000,
            "exec.answered",
            with(run(), json!({"exec": 1, "outcome": "done"})),
        ),
        (
            750_000,
            "exec.answered",
            with(run(), json!({"exec": 2, "outcome": "thrown"})),
        ),
        (800_000, "text.first", run()),
        (
            1_001_000,
            "attempt.closed",
            with(
                run(),
                json!({"outcome": "finished", "text_pieces": 7, "text_bytes": 99,
                       "text_first_ms": 700, "text_last_ms": 850, "thinking_pieces": 3,
                       "thinking_first_ms": 300, "thinking_last_ms": 400}),
            ),
        ),
        (
            1_001_000,
            "run.ended",
            with(
                run(),
                json!({"outcome": "finished", "input": 100, "output": 20}),
            ),
        ),
        (
            1_001_500,
            "turn.answered",
            with(turn(), json!({"stop": "Stop"})),
        ),
    ]
}

#[test]
fn a_good_turn() {
    insta::assert_snapshot!(drawn(&log(&good_turn())), @"
    turn t1 - session 01234567 - gpt-5.5 - 1.00 s - Stop
        +1.0 ms    token exchanged                50 ms  #
         +51 ms    connect HTTP/2.0               48 ms   ##
         +99 ms    wait                          300 ms     ##########
        +399 ms    thinking 3 pieces             100 ms               ####
        +599 ms    tool ReadArgs                 100 ms                      ####
        +649 ms  ! tool ShellArgs                100 ms                        ####
        +799 ms    text 7 pieces                 150 ms                             ######
      first text after 799 ms - 10 deltas, 99 bytes - tools 150 ms - waiting 600 ms - 100 tokens in, 20 out
    ");
}

#[test]
fn a_retry_and_an_error() {
    let run = || json!({"run": "r1"});
    let text = log(&[
        (0, "run.started", json!({"run": "r1", "model": "m"})),
        (0, "attempt.started", run()),
        (
            30_000,
            "stream.failed",
            json!({"run": "r1", "kind": "Connect"}),
        ),
        (30_000, "attempt.closed", run()),
        (
            31_000,
            "run.retry",
            json!({"run": "r1", "class": "transport", "delay_ms": 2000}),
        ),
        (2_031_000, "attempt.started", run()),
        (2_050_000, "stream.opened", run()),
        (2_060_000, "drift", json!({"kind": "a.B.9", "count": 1})),
        (2_060_000, "drift", json!({"kind": "a.B.9", "count": 2})),
        (
            2_080_000,
            "stream.failed",
            json!({"run": "r1", "kind": "Unauthenticated"}),
        ),
        (2_080_000, "attempt.closed", run()),
        (
            2_081_000,
            "run.ended",
            json!({"run": "r1", "outcome": "failed", "class": "login"}),
        ),
        (2_082_000, "log.dropped", json!({"count": 3})),
    ]);
    insta::assert_snapshot!(drawn(&text), @"
    run r1 - m - 2.08 s - login
          +0 us  ! failed Connect                 30 ms  |
         +31 ms  ! pause after transport         2.00 s  ##################################
        +2.03 s    connect                        19 ms                                    |
        +2.05 s    wait                           30 ms                                    |
        +2.08 s  ! failed Unauthenticated          0 us                                    |
      0 deltas, 0 bytes - tools 0 us - waiting 2.08 s - 2 attempts

    wire drift: the server sends fields or kinds this version does not know
      ! a.B.9 (at least 2)
    ! 3 records are missing: the disk was too slow or full
    ");
}

#[test]
fn incomplete_and_foreign_lines_are_reported() {
    let mut records = good_turn();
    records.truncate(8);
    let text = format!("hello\n[1]\n{}{{\"us\": 12", log(&records));
    insta::assert_snapshot!(drawn(&text), @"
    turn t1 - session 01234567 - gpt-5.5 - 649 ms - unfinished when the log ends
        +1.0 ms    token exchanged                50 ms  ##
         +51 ms    connect HTTP/2.0               48 ms    ###
         +99 ms    wait                          300 ms       ################
        +399 ms  ? thinking                      250 ms                       ##############
        +599 ms  ? tool ReadArgs                  50 ms                                  ###
        +649 ms  ? tool ShellArgs                  0 us                                    #
      0 deltas, 0 bytes - tools 50 ms - waiting 399 ms

    ! line 1: not a record of a debug log
    ! line 2: not a record of a debug log
    ! line 11: incomplete: the log was cut off while this line was written
    ");
    assert_eq!(drawn(""), "no turn in this log\n");
}

#[test]
fn concurrent_turns_are_kept_apart() {
    let second = 1_000_000;
    let text = log(&[
        (second, "turn.started", json!({"turn": "a", "session": "s"})),
        (
            second + 10,
            "turn.started",
            json!({"turn": "b", "session": "s"}),
        ),
        (
            second + 20,
            "run.started",
            json!({"run": "rb", "turn": "b"}),
        ),
        (
            second + 30,
            "run.started",
            json!({"run": "ra", "turn": "a"}),
        ),
        (second + 40, "text.first", json!({"run": "ra"})),
        (second + 50, "run.started", json!({"run": "rc"})),
        // Another process continues the same file.
        (5, "turn.started", json!({"turn": "a", "session": "s"})),
        (9, "text.first", json!({})),
    ]);
    let turns = read(&text).turns;
    let shown: Vec<_> = turns
        .iter()
        .map(|turn| {
            (
                turn.name.as_str(),
                turn.runs.join(","),
                turn.totals.first_text_us,
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("a", "ra".into(), Some(40)),
            ("b", "rb".into(), None),
            ("rc", "rc".into(), None),
            ("a", String::new(), Some(4)),
        ]
    );
}

#[test]
fn bars_fit_whatever_the_width_and_numbers() {
    let mut records = good_turn();
    records[13].0 = u64::MAX / 512;
    for width in [0, 40, 80, 300] {
        for unicode in [false, true] {
            let style = Style {
                width,
                unicode,
                color: false,
            };
            let page = render(&read(&log(&records)), style);
            let phases = page.lines().filter(|line| line.contains('+'));
            for line in phases {
                assert!(line.chars().count() <= width.max(66), "{line}");
            }
        }
    }
}

proptest::proptest! {
    #[test]
    fn no_text_causes_a_panic(text in "(\\PC|\n|\"us\"|\"event\"|[{}:,0-9]){0,200}") {
        drawn(&text);
    }
}
