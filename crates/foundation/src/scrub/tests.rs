use proptest::prelude::*;

use super::*;

fn scrub(text: &str) -> String {
    Scrubber::default().scrub(text).into_owned()
}

#[test]
fn every_known_leak_is_stopped() {
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhdXRoMCJ9.c2lnbmF0dXJl";
    let lines = [
        "Authorization: Basic dXNlcjpwYXNz",
        "authorization: Bearer abc.def",
        "Proxy-Authorization: Digest username=\"jo\", response=\"77\"",
        r#"{"cookie":"a=1; b=2","x":1}"#,
        r#"{"set-cookie":["a=1; Path=/","b=2"],"x":1}"#,
        "Set-Cookie: sid=9; Path=/\r\nDate: today",
        "curl -H 'Cookie: a=1' https://example.com",
        r#"{"password":"correct horse battery","x":1}"#,
        "password=hunter2 user=jo",
        r#"{\"accessToken\":\"abc\",\"x\":1}"#,
        r#"["authorization","Basic dXNlcjpwYXNz"]"#,
        r#"{"password":"cut off in the mid"#,
        "postgres://jo:p@ss@db.example.com/x",
        "jo:hunter2@db.example.com",
        "jo:hunter2@db:5432/x",
        "openai sk-proj-abc123def456 cursor crsr_0123456789abcdef",
        "key_0123456789abcdef0123456789abcdef and ghp_0123456789abcdef01",
        &format!("jwt {jwt}, cut {}", &jwt[..30]),
        "headers: { cookie: abcdefghijk }",
        "GET /x, cookie: sessionvalue",
        "DB_PASS=s3cr3t PGPASSWORD=s3cr3t SSHPASS=s3cr3t psql",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\\nMIIEow",
    ];
    let scrubbed: Vec<String> = lines.iter().map(|line| scrub(line)).collect();
    insta::assert_snapshot!(scrubbed.join("\n"), @r#"
    Authorization: [redacted] [redacted]
    authorization: [redacted] [redacted]
    Proxy-Authorization: [redacted] [redacted]
    {"cookie":"[redacted]","x":1}
    {"set-cookie":[redacted],"x":1}
    Set-Cookie: [redacted]
    Date: today
    curl -H 'Cookie: [redacted]' https://example.com
    {"password":"[redacted]","x":1}
    password=[redacted] user=jo
    {\"accessToken\":\"[redacted]\",\"x\":1}
    ["authorization","[redacted] [redacted]"]
    {"password":"[redacted]
    postgres://[redacted]@db.example.com/x
    [redacted]@db.example.com
    [redacted]@db:5432/x
    openai [redacted] cursor [redacted]
    [redacted] and [redacted]
    jwt [redacted], cut [redacted]
    headers: { cookie: [redacted]
    GET /x, cookie: [redacted]
    DB_PASS=[redacted] PGPASSWORD=[redacted] SSHPASS=[redacted] psql
    -----BEGIN RSA PRIVATE KEY-----[redacted]-----END RSA PRIVATE KEY-----
    -----BEGIN PRIVATE KEY-----[redacted]
    "#);
}

#[test]
fn prose_is_unchanged() {
    for text in [
        "",
        "The bearer of bad news; a bearer token is needed.",
        "I like cookie: dough",
        "max_tokens=55, tokens: 7, token_count=3",
        "git@github.com:a/b.git and jo@example.com",
        "mailto:jo@example.com npm:react@18.0.0 at 12:30@noon",
        "busybox:1.36@sha256:9ae97d36, mycookie: 1, xcookie=2",
        "sk-learn-pipeline is a task-based thing; key_live_abc123",
        "see https://example.com/a@b?c=d",
        "a.b.c eyes.wide.shut",
        "time 10:20:30, ratio 3:4",
        "BYPASS=1, first_pass: done\n-----BEGIN PUBLIC KEY-----\nMIIE",
    ] {
        assert_eq!(scrub(text), text);
    }
}

#[test]
fn secrets_may_be_learned_later() {
    let scrubber = Scrubber::new(["first-secret".into()]);
    assert_eq!(
        scrubber.scrub("first-secret second-secret"),
        "[redacted] second-secret"
    );
    scrubber.learn(&"second-secret-and-more".into());
    scrubber.learn(&"second-secret".into());
    assert_eq!(
        scrubber.scrub("first-secret second-secret second-secret-and-more"),
        "[redacted] [redacted] [redacted]"
    );
    for number in 0..1000 {
        scrubber.learn(&format!("secret-number-{number:04}").into());
    }
    assert_eq!(scrubber.known.read().unwrap().len(), known::MAX_SECRETS);
    assert_eq!(scrubber.scrub("secret-number-0999"), REDACTED);
}

#[test]
fn a_scrubber_does_not_show_what_it_knows() {
    let scrubber = Scrubber::new(["first-secret".into()]);
    assert!(!format!("{scrubber:?}").contains("first"));
}

/// With quadratic time, the test would run into its timeout.
#[test]
fn hostile_text_is_scrubbed_in_linear_time() {
    for unit in [
        "token",
        "token=\"",
        "a://@",
        "Bearer ",
        "cookie: ",
        "eyJ",
        "a:b@",
        "\\\"token\\\":",
        "token=[",
        "authorization: digest ",
        "'Cookie: ",
        "cookie: a ",
        "token=[]",
        "'Cookie: a'",
        "authorization:x,",
        ", cookie: a ",
        "-----BEGIN PRIVATE KEY-----",
    ] {
        let text = unit.repeat(50_000 / unit.len());
        let scrubbed = scrub(&text);
        assert!(scrubbed.len() <= 4 * text.len());
    }
}

/// Returns the secret in every form in which secrets are known to appear.
fn shapes_of(secret: &str) -> Vec<String> {
    let base64 = secret
        .bytes()
        .map(|b| format!("{b:02x}"))
        .collect::<String>();
    vec![
        format!("Authorization: Bearer {secret}"),
        format!("authorization: basic {secret}"),
        format!("bearer {secret}1"),
        format!("\"authorization\":\"Basic {secret}\""),
        format!("[\"authorization\", \"Bearer {secret}\"]"),
        format!("Cookie: sid={secret}; x=1"),
        format!("{{\"cookie\":\"{secret}\"}}"),
        format!("{{\"set-cookie\": [\"a={secret}\"]}}"),
        format!("Set-Cookie: sid={secret}; Path=/"),
        format!("password={secret}"),
        format!("{{\"password\" : \"{secret} {secret}\"}}"),
        format!("{{\\\"token\\\":\\\"{secret}\\\"}}"),
        format!("accessToken: '{secret}'"),
        format!("x-api-key: {secret}"),
        format!("session_id={secret}"),
        format!("https://{secret}@example.com/x"),
        format!("https://jo:{secret}@example.com/x"),
        format!("jo:{secret}@example.com"),
        format!("https://h/p?token={secret}&x=1"),
        format!("sk-{secret}0{base64}"),
        format!("crsr_{secret}"),
        format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIi{secret}.{secret}x"),
        format!("http://127.0.0.1:99/cursor-pi-tool-bridge/{secret}/mcp"),
    ]
}

proptest! {
    #[test]
    fn a_planted_secret_never_survives(
        secret in "[A-Za-z0-9]{12,40}",
        before in "[a-z .,\n]{0,20}",
        after in "[a-z .,\n]{0,20}",
    ) {
        // Line breaks, because surrounding words must not touch the planted secret.
        for shape in shapes_of(&secret) {
            let text = format!("{before}\n{shape}\n{after}");
            let scrubbed = scrub(&text);
            prop_assert!(!scrubbed.contains(&secret), "{text:?} became {scrubbed:?}");
        }
    }

    #[test]
    fn a_known_secret_never_survives(secret in "[!-~]{8,40}", around in ".{0,40}") {
        prop_assume!(!REDACTED.contains(&secret));
        let scrubber = Scrubber::new([secret.as_str().into()]);
        let scrubbed = scrubber.scrub(&format!("{around}{secret}{around}")).into_owned();
        prop_assert!(!scrubbed.contains(&secret), "{scrubbed:?}");
    }

    #[test]
    fn scrubbing_twice_changes_nothing_more(
        pieces in prop::collection::vec(
            prop_oneof![
                Just("token".to_owned()), Just("cookie".to_owned()), Just("set-cookie".to_owned()),
                Just("Authorization".to_owned()), Just("Bearer ".to_owned()), Just("basic ".to_owned()),
                Just("password".to_owned()), Just("https://".to_owned()), Just("[redacted]".to_owned()),
                Just("[".to_owned()), Just("]".to_owned()), Just("digest ".to_owned()),
                "[:=\"'\\\\ ,;{}\n@.]{1,3}", "[a-zA-Z0-9]{1,6}",
            ],
            0..12,
        ),
    ) {
        let text = pieces.concat();
        let once = scrub(&text);
        prop_assert_eq!(scrub(&once), once.clone(), "from {:?}", text);
    }

    #[test]
    fn text_without_secrets_is_unchanged(text in "[a-z ,.!?\n]{0,200}") {
        prop_assert_eq!(scrub(&text), text);
    }
}
