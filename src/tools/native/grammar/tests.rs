//! Commands, taken apart.

use super::*;
use proptest::prelude::*;

fn names(text: &str) -> Vec<String> {
    let commands = simple_commands(text).unwrap();
    commands
        .into_iter()
        .map(|command| command.plain.into_iter().next().unwrap())
        .collect()
}

#[test]
fn every_command_is_found() {
    for text in [
        "rm x",
        "echo a; rm x",
        "echo $(rm x)",
        "echo \"$(rm x)\"",
        "echo `rm x`",
        "echo ${A:-$(rm x)}",
        "cat <<E\n$(rm x)\nE",
        "cat <<E\nE\nrm x",
        "cat <<-E | rm x\n\tE",
        "if true; then rm x; fi",
        "FOO=1 rm x",
        "'r'm x",
        "r\\m x",
        "$'rm' x",
        "r\"m\" x",
        "f() { rm x; }; f",
        "function f { rm x; }",
        "(rm x)",
        "! rm x",
        "{ rm x; }",
        "while rm x; do break; done",
        "for x do rm x; done",
        "case x in x) rm x;; esac",
        "diff <(rm x) b",
        "> f rm x",
        "2>&1 rm x",
        "&>f rm x",
        "rm x &",
        "echo a |& rm x",
        "echo a\nrm x",
        "A=$(rm x)",
        "export A=$(rm x)",
        "echo $((1 + $(rm x)))",
        "cat <<< $(rm x)",
        "echo a > $(rm x)",
    ] {
        assert!(
            names(text).contains(&"rm".into()),
            "{text}: {:?}",
            names(text)
        );
    }
}

#[test]
fn words_are_no_commands() {
    for text in [
        "echo rm",
        "cat <<E\nrm x\nE",
        "cat <<'E'\n$(rm x)\nE",
        "echo a > rm",
        "echo a # rm",
        "for rm in a; do echo; done",
        "case rm in rm) echo;; esac",
        "rm() { echo; }",
        "function rm { echo; }",
        "echo $((rm << 2))",
        "((rm = 1)); echo",
        "echo 'a; rm x'",
        "echo a\\;rm x",
        "$X rm",
        "[[ -f rm ]]; echo",
    ] {
        assert!(
            !names(text).contains(&"rm".into()),
            "{text}: {:?}",
            names(text)
        );
    }
}

proptest! {
    /// Whatever the text: an answer, and soon.
    #[test]
    fn any_text_gets_an_answer(text in "[a-z $(){}<>|&;`'\"\\\\\n#=!-]{0,60}") {
        let _ = simple_commands(&text);
    }
}
