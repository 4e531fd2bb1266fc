//! Tests of rules, and of spellings that try to avoid them.

use proptest::prelude::*;

use super::*;

#[tokio::test]
async fn rules_name_commands_wherever_they_are() {
    for (command, rule) in [
        ("git push", "git *"),
        ("git push", "g*sh"),
        ("rm -f x", "rm:-f*"),
        ("rm -v -f x", "rm:*-f*"),
        ("curl a b", "curl:a b"),
        ("rm 'a b'", "rm a b"),
        ("rm 'a b'", "rm 'a b'"),
        ("rm a  b", "rm  a b"),
        ("ls", " ls "),
        ("rm -rf /x", "rm -rf /*"),
        ("git push x --force", "git push * --force"),
    ] {
        let reason = denial_reason(command, &[rule.into()]).await;
        let expected = format!("(denylist rule: {rule})");
        assert!(
            reason.as_ref().is_some_and(|text| text.contains(&expected)),
            "{command} {rule}: {reason:?}"
        );
    }
    for (command, rule) in [
        ("rm", "rm *"),
        ("rm -f x", "rm:-f"),
        ("lsx", "ls"),
        ("ls", "l?"),
        ("axb", "a.b"),
        ("git pushy", "git push"),
        ("ls", ""),
    ] {
        assert_eq!(
            denial_reason(command, &[rule.into()]).await,
            None,
            "{command}"
        );
    }
}

#[tokio::test]
async fn commands_that_cannot_be_parsed_are_refused() {
    for command in [
        "if",
        "",
        "# only words",
        "x=1",
        "export A=1",
        "echo $'\\x72m'",
    ] {
        let reason = denial_reason(command, &["rm".into()]).await;
        assert!(
            reason.is_some_and(|text| text.contains("fail-closed")),
            "{command}"
        );
    }
    assert_eq!(denial_reason("if", &[]).await, None);
}

/// Spellings that execute `rm`, or may.
const REFUSED: &[&str] = &[
    "rm x",
    "rm",
    "echo a; rm x",
    "echo a && rm x",
    "false || rm x",
    "rm x &",
    "echo $(rm x)",
    "echo \"$(rm x)\"",
    "echo `rm x`",
    "echo \"`rm x`\"",
    "echo `echo \\`rm x\\``",
    "echo ${A:-$(rm x)}",
    "echo \"${A:-'$(rm x)'}\"",
    "cat <<E\n$(rm x)\nE",
    "cat <<E\nit's $(rm x)\nE",
    "cat <<E\nE\nrm x",
    "cat <<-E | rm x\n\tE",
    "cat <<A <<B\nx\nA\ny\nB\nrm x",
    "if true; then rm x; fi",
    "if rm x; then :; fi",
    "if false; then :; elif rm x; then :; fi",
    "if false; then :; else rm x; fi",
    "FOO=1 rm x",
    "'r'm x",
    "r\\m x",
    "\\rm x",
    "$'rm' x",
    "$\"rm\" x",
    "r\"m\" x",
    "r''m x",
    "\"rm\" x",
    "r\\\nm x",
    "f() { rm x; }; f",
    "function f { rm x; }",
    "f() ( rm x ); f",
    "(rm x)",
    "( (rm x) )",
    "! rm x",
    "{ rm x; }",
    "while rm x; do break; done",
    "until rm x; do break; done",
    "while :; do rm x; done",
    "for x do rm x; done",
    "for x in a; do rm x; done",
    "for x in $(rm x); do :; done",
    "for ((i=0;i<1;i++)); do rm x; done",
    "select x in a; do rm x; done",
    "case x in x) rm x;; esac",
    "case $(rm x) in x) :;; esac",
    "case x in (x) rm x;; esac",
    "case x in y) :;; *) rm x;; esac",
    "diff <(rm x) b",
    "tee >(rm x)",
    "> f rm x",
    "2>&1 rm x",
    "&>f rm x",
    "echo a |& rm x",
    "echo a | rm x",
    "echo a\nrm x",
    "A=$(rm x)",
    "export A=$(rm x)",
    "declare A=$(rm x)",
    "echo $((1 + $(rm x)))",
    "((a = $(rm x)))",
    "echo $((rm x);(rm y))",
    "cat <<< $(rm x)",
    "echo a > $(rm x)",
    "[[ -n $(rm x) ]]",
    "[ -n \"$(rm x)\" ]",
    "a=($(rm x))",
    "a[$(rm x)]=1",
    "echo ${a[$(rm x)]}",
    "echo \"a\"#; rm x",
    "echo a;# it's\nrm x\n# it's",
    "echo a # b\nrm x",
    "coproc rm x",
    "time rm x",
    "echo a;rm x",
    "echo a&rm x",
    "\trm x",
    "rm\tx",
    "A=1 B=2 rm x",
    "rm>f x",
    "x=1;rm $x",
    "true;! rm x",
    "echo \\\nb; rm x",
    // By another name or place.
    "/bin/rm x",
    "/usr/bin/../bin/rm x",
    "./rm x",
    "~/bin/rm x",
    "../bin/rm",
    // After other commands.
    "command rm x",
    "command -p rm x",
    "builtin rm x",
    "env rm x",
    "env -i A=1 rm x",
    "env -u A rm x",
    "env - rm x",
    "/usr/bin/env rm x",
    "env -S 'rm x'",
    "env 'BASH_FUNC_ls%%=() { rm x; }' bash -c ls",
    "exec rm x",
    "exec -a y rm x",
    "nohup rm x",
    "time -p rm x",
    "\\time -f %e rm x",
    "nice rm x",
    "nice -n 5 rm x",
    "nice -5 rm x",
    "timeout 5 rm x",
    "timeout -k 1 5 rm x",
    "timeout --signal KILL 5 rm x",
    "stdbuf -oL rm x",
    "setsid rm x",
    "sudo rm x",
    "sudo -u me rm x",
    "sudo -s",
    "coproc X { rm; }",
    "coproc { rm x; }",
    "xargs rm",
    "echo x | xargs rm",
    "xargs -0 -n 1 rm",
    "xargs -I{} rm {}",
    "echo rm | xargs -I X X y",
    "echo rm x | xargs env",
    "xargs $X",
    "find . -exec rm {} +",
    "find . -exec env rm {} \\;",
    "find . -exec {} \\;",
    "find . $X",
    "busybox rm x",
    "watch 'rm x'",
    "su -c 'rm x'",
    "parallel rm ::: x",
    "strace -f rm x",
    "fd -x rm",
    // In another shell, or later.
    "bash -c 'rm x'",
    "bash -lc 'rm x'",
    "sh -ec 'echo; rm x'",
    "bash -c \"$X\"",
    "bash -s",
    "bash <<E\nrm x\nE",
    "echo rm x | bash",
    "bash <(echo rm x)",
    "bash /dev/stdin",
    "bash",
    "fish -c 'rm x'",
    "eval rm x",
    "eval 'rm x'",
    "eval \"$X\"",
    "eval eval rm x",
    "source f",
    ". f",
    "trap 'rm x' EXIT",
    "trap \"$X\" EXIT",
    "trap -- 'rm x' EXIT",
    "alias y=rm",
    "alias y=rm; y x",
    "shopt -s expand_aliases; alias \"$X\"",
    "hash -p /bin/rm y; y x",
    "enable -f f y",
    "complete -C 'rm x' y",
    "mapfile -C 'rm x' -c 1 a < f",
    // By expansion.
    "$X x",
    "\"$X\" x",
    "${x:-rm} x",
    "$(echo rm) x",
    "`echo rm` x",
    "x=rm; $x y",
    "{rm,victim}",
    "rm{,} x",
    "rm${IFS}x",
    "{rm,-rf,x}",
    "r?",
    "/bin/r?",
    "/bin/[r]m x",
    "r* x",
    "${!x}",
    "$@",
    "x='a[$(rm y)]'; echo $((x))",
    "x='$(rm y)'; echo ${x@P}",
    "let 'a[$(rm x)]=1'",
    "printf -v 'a[$(rm x)]' y",
    "[[ 'a[$(rm x)]' -eq 1 ]]",
    "test -v 'a[$(rm x)]'",
    "unset 'a[$(rm x)]'",
    "read 'a[$(rm x)]' <<< 1",
    // Texts that the parser and the shell may read differently.
    "echo a\u{b}#; rm x",
    "echo a\u{a0}#; rm x",
    "echo a\r#; rm x",
    "echo $'\\x72m'",
];

/// Harmless commands with `rm` denied.
const ALLOWED: &[&str] = &[
    "ls",
    "ls -la /tmp | head -5",
    "echo rm",
    "echo 'rm x'",
    "echo \"rm x\"",
    "git rm x",
    "cat <<E\nrm x\nE",
    "cat <<'E'\n$(rm x)\nE",
    "cat > f <<E\nit's $HOME \"rm\"\nE",
    "echo a > rm",
    "echo a # rm",
    "for rm in a; do echo; done",
    "case rm in rm) echo;; esac",
    "rm() { echo; }; echo",
    "function rm { echo; }; echo",
    "echo $((rm << 2))",
    "((rm = 1)); echo",
    "echo 'a; rm x'",
    "echo a\\;rm x",
    "[[ -f rm ]] && echo",
    "[ -f rm ] && echo yes",
    "cd src && cargo test -- --nocapture 2>&1 | tail -20",
    "for f in *.txt; do wc -l \"$f\"; done",
    "find . -name '*.rs' | xargs grep -n rm",
    "find . -name '*.rs' -exec grep -l foo {} +",
    "FOO=1 make -j4",
    "X=$(date); echo \"$X\"",
    "env",
    "env FOO=1 ls",
    "command -v rm",
    "command ls",
    "timeout 10 cargo test \"$name\"",
    "nice -n 5 make",
    "bash script.sh",
    "bash -n script.sh",
    "bash --version",
    "bash -c 'echo hi'",
    "sh -c \"ls -l\"",
    "trap '' TERM; ls",
    "trap - INT; ls",
    "trap 'echo bye' EXIT; ls",
    "eval echo hi",
    "echo {a,b} *.c ~/x",
    "printf '%s\\n' a",
    "git commit -m \"rm the old file\"",
    "grep -rn 'rm -rf' .",
    "docker run --rm image",
    "docker run \\\n  --rm \\\n  image",
    "python3 -c 'print(1)'",
    "awk '{print $(NF)}' f",
    "ls; alias",
    "export A=b; env | sort",
    "while read -r l; do echo \"$l\"; done < f",
    "sudo -n ls",
    "time ls",
    "time -p ls",
    "! ls",
    "xargs -I{} cp {} x < f",
    "rmdir x",
    "echo $((1 + 2))",
    "test -d x || mkdir x",
    "a=(1 2 3); echo \"${a[@]}\"",
    "diff <(ls a) b",
];

#[tokio::test]
async fn every_spelling_of_a_denied_command_is_refused() {
    let rules = ["rm".to_owned()];
    for command in REFUSED {
        assert!(denial_reason(command, &rules).await.is_some(), "{command}");
    }
}

#[tokio::test]
async fn harmless_commands_are_allowed() {
    let rules = ["rm".to_owned()];
    for command in ALLOWED {
        assert_eq!(denial_reason(command, &rules).await, None, "{command}");
    }
}

#[tokio::test]
async fn unknown_arguments_match_a_rule_they_could_match() {
    for (command, rule, allowed) in [
        ("git $X", "git push", false),
        ("git \"$X\" origin", "git push", false),
        ("git p*", "git push", false),
        ("git {push,pull}", "git push", false),
        ("echo push | xargs git", "git push", false),
        ("git commit -m \"$X\"", "git push", true),
        ("git \"x$X\"", "git push", true),
        ("rm -rf \"$X\"", "rm -rf /*", false),
        ("rm *.o", "rm -rf", true),
        ("curl \"$X\"", "curl:*evil*", false),
        ("wget \"$X\"", "curl:*evil*", true),
    ] {
        let reason = denial_reason(command, &[rule.into()]).await;
        assert_eq!(reason.is_none(), allowed, "{command} {rule}");
    }
}

#[tokio::test]
async fn a_text_that_is_slow_to_parse_is_refused() {
    let deep = format!("{}coproc X {{ ls; }}{}", "( ".repeat(60), " )".repeat(60));
    let ifs = format!("{}ls{}", "if ".repeat(5000), "; then :; fi".repeat(5000));
    let long = "echo hello; ".repeat(20_000);
    for command in [deep, ifs, long] {
        assert!(denial_reason(&command, &["rm".into()]).await.is_some());
    }
}

proptest! {
    /// No text makes the parser panic or hang.
    #[test]
    fn any_text_gets_an_answer(text in "[a-z $(){}<>|&;`'\"\\\\\n#=!-]{0,60}") {
        let _ = FoundCommands::default().program(&text);
    }
}
