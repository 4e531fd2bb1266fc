use super::*;
use crate::connect_error::Metadata;
use cursor_proto::aiserver::v1::{CustomErrorDetails, ErrorAnalyticsMetadata, ErrorDetails};
use cursor_proto::state::ContextUsage;

fn remote(code: Code, message: &str) -> RemoteError {
    RemoteError {
        code,
        message: message.into(),
        details: None,
        metadata: Metadata::new(),
        status: None,
    }
}

fn detailed(code: Code, kind: Cursor, retryable: Option<bool>) -> RemoteError {
    RemoteError {
        details: Some(ErrorDetails {
            error: kind as i32,
            details: Some(CustomErrorDetails {
                title: "Title".into(),
                detail: "detail.".into(),
                is_retryable: retryable,
                ..Default::default()
            }),
            is_expected: None,
        }),
        ..remote(code, "Error")
    }
}

fn classify(error: RemoteError) -> Failure {
    Failure::classify(&error.into(), &Evidence::default())
}

#[test]
fn errors_without_details_are_classified_by_code() {
    for code in [
        Code::Internal,
        Code::Unavailable,
        Code::InvalidArgument,
        Code::NotFound,
        Code::FailedPrecondition,
        Code::Unknown,
        Code::Unimplemented,
        Code::DeadlineExceeded,
    ] {
        let failure = classify(remote(code, "boom"));
        assert_eq!(failure, Failure::Server(format!("[{code}] boom")));
        assert_eq!(failure.retry(), Retry::Server);
    }
    assert_eq!(
        classify(remote(Code::Unauthenticated, "who?")).class(),
        "login"
    );
    let denied = classify(remote(Code::PermissionDenied, "no"));
    assert_eq!((denied.retry(), denied.class()), (Retry::Never, "refused"));
    for code in [Code::Canceled, Code::Aborted] {
        assert_eq!(classify(remote(code, "")).retry(), Retry::Transport);
    }
}

#[test]
fn cursor_errors_are_classified_by_kind() {
    let cases = [
        (Cursor::NotLoggedIn, "login"),
        (Cursor::GithubAppNoAccess, "login"),
        (Cursor::FreeUserUsageLimit, "upgrade"),
        (Cursor::RateLimitedChangeable, "upgrade"),
        (Cursor::UsagePricingRequired, "payment"),
        (Cursor::BadUserApiKey, "key"),
        (Cursor::OutdatedClient, "update"),
        (Cursor::ConversationTooLong, "context_too_long"),
        (Cursor::MaxTokens, "context_too_long"),
        (Cursor::UnsupportedRegion, "region"),
        (Cursor::ModelNoLongerSupported, "model"),
    ];
    for (kind, class) in cases {
        let failure = classify(detailed(Code::Internal, kind, Some(false)));
        assert_eq!(failure.class(), class, "{kind:?}");
        assert_eq!(failure.retry(), Retry::Never, "{kind:?}");
        assert_eq!(failure.to_string(), "Title. detail.");
    }
}

#[test]
fn retryable_flags_decide_the_rest() {
    let custom = |flag| classify(detailed(Code::Internal, Cursor::CustomMessage, flag)).retry();
    assert_eq!(custom(None), Retry::Never);
    assert_eq!(custom(Some(true)), Retry::Server);
    let internal = |flag| classify(detailed(Code::Internal, Cursor::Internal, flag)).retry();
    assert_eq!(internal(Some(false)), Retry::Never);
    assert_eq!(internal(None), Retry::Server);
    let aborted = classify(detailed(Code::Aborted, Cursor::UserAbortedRequest, None));
    assert!(matches!(aborted, Failure::Cancelled(_)));
}

#[test]
fn an_error_that_requires_an_action_is_not_retried() {
    let mut error = detailed(Code::Internal, Cursor::Internal, None);
    let details = error.details.as_mut().unwrap().details.as_mut().unwrap();
    details.analytics_metadata = Some(ErrorAnalyticsMetadata {
        action_required: Some("accept terms".into()),
    });
    assert!(matches!(classify(error), Failure::ActionRequired(_)));
}

#[test]
fn inference_errors_are_classified_by_metadata() {
    let cases = [
        ("CONVERSATION_TOO_LONG", "context_too_long"),
        ("ERROR_MAX_TOKENS", "context_too_long"),
        ("MODEL_NO_LONGER_SUPPORTED", "model"),
        ("UNSUPPORTED_REGION", "region"),
        ("OUTDATED_CLIENT", "update"),
        ("CONTENT_POLICY", "refused"),
    ];
    for (name, class) in cases {
        let mut error = remote(Code::Internal, "Error");
        error
            .metadata
            .insert(INFERENCE_ERROR.into(), vec![name.into()]);
        let failure = classify(error);
        assert_eq!(
            (failure.retry(), failure.class()),
            (Retry::Never, class),
            "{name}"
        );
    }
}

#[test]
fn resource_exhausted_by_its_words() {
    let cases = [
        ("You've hit your usage limit", "upgrade"),
        ("This region is not available for your team", "region"),
        ("Please update to continue", "update"),
        ("maximum context length is 200k", "context_too_long"),
        ("too many tools", "too_many_tools"),
        ("The model is overloaded", "capacity"),
        ("Error", "server"),
    ];
    for (text, class) in cases {
        let failure = classify(remote(Code::ResourceExhausted, text));
        assert_eq!(failure.class(), class, "{text}");
    }
}

#[test]
fn a_bare_resource_exhausted_by_what_was_sent() {
    let bare = WireError::from(remote(Code::ResourceExhausted, "Error"));
    let class = |evidence| Failure::classify(&bare, &evidence).class();
    assert_eq!(
        class(Evidence {
            tools: 340,
            ..Evidence::default()
        }),
        "too_many_tools"
    );
    assert_eq!(
        class(Evidence {
            tool_bytes: 443 * 1024,
            ..Evidence::default()
        }),
        "too_many_tools"
    );
    assert_eq!(
        class(Evidence {
            schema_combinators: Presence::Present,
            ..Evidence::default()
        }),
        "tool_schema"
    );
    let occupancy = Some(ContextUsage {
        used: 150_000,
        limit: 200_000,
    });
    assert_eq!(
        class(Evidence {
            occupancy,
            ..Evidence::default()
        }),
        "context_too_long"
    );
    // After output, the request itself was accepted, so the failure may be temporary.
    let late = Evidence {
        tools: 340,
        output: Presence::Present,
        ..Evidence::default()
    };
    assert_eq!(class(late), "server");
    assert_eq!(Failure::classify(&bare, &late).retry(), Retry::Server);
}

#[test]
fn transport_errors_are_classified() {
    let retry =
        |error: TransportError| Failure::classify(&error.into(), &Evidence::default()).retry();
    assert_eq!(retry(TransportError::Reset(8)), Retry::Transport);
    assert_eq!(retry(TransportError::GoAway(11)), Retry::Transport);
    assert_eq!(retry(TransportError::EndedEarly), Retry::Transport);
    let tls = TransportError::Tls {
        host: "h".into(),
        cause: "unknown issuer".into(),
    };
    assert_eq!(retry(tls), Retry::Never);
}

#[test]
fn unknown_kinds_still_say_whether_to_retry() {
    let newer = |flag| {
        let mut error = detailed(Code::Internal, Cursor::Internal, flag);
        error.details.as_mut().unwrap().error = 9_999;
        classify(error).retry()
    };
    assert_eq!(newer(Some(false)), Retry::Never);
    assert_eq!(newer(Some(true)), Retry::Server);
    assert_eq!(newer(None), Retry::Server);
}
