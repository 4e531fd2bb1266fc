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
        classify(remote(Code::Unauthenticated, "who?")).remedy(),
        Some(UserAction::Login)
    );
    let denied = classify(remote(Code::PermissionDenied, "no"));
    assert_eq!((denied.retry(), denied.remedy()), (Retry::Never, None));
    for code in [Code::Canceled, Code::Aborted] {
        assert_eq!(classify(remote(code, "")).retry(), Retry::Transport);
    }
}

#[test]
fn cursor_errors_name_their_remedy() {
    let cases = [
        (Cursor::NotLoggedIn, UserAction::Login),
        (Cursor::GithubAppNoAccess, UserAction::Login),
        (Cursor::FreeUserUsageLimit, UserAction::Upgrade),
        (Cursor::RateLimitedChangeable, UserAction::Upgrade),
        (Cursor::UsagePricingRequired, UserAction::Pay),
        (Cursor::BadUserApiKey, UserAction::CheckKey),
        (Cursor::OutdatedClient, UserAction::UpdateClient),
        (Cursor::ConversationTooLong, UserAction::Compact),
        (Cursor::MaxTokens, UserAction::Compact),
        (Cursor::UnsupportedRegion, UserAction::ChangeRegion),
        (Cursor::ModelNoLongerSupported, UserAction::ChangeModel),
    ];
    for (kind, remedy) in cases {
        let failure = classify(detailed(Code::Internal, kind, Some(false)));
        assert_eq!(failure.remedy(), Some(remedy), "{kind:?}");
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
        ("CONVERSATION_TOO_LONG", Some(UserAction::Compact)),
        ("ERROR_MAX_TOKENS", Some(UserAction::Compact)),
        ("MODEL_NO_LONGER_SUPPORTED", Some(UserAction::ChangeModel)),
        ("UNSUPPORTED_REGION", Some(UserAction::ChangeRegion)),
        ("OUTDATED_CLIENT", Some(UserAction::UpdateClient)),
        ("CONTENT_POLICY", None),
    ];
    for (name, remedy) in cases {
        let mut error = remote(Code::Internal, "Error");
        error
            .metadata
            .insert(INFERENCE_ERROR.into(), vec![name.into()]);
        let failure = classify(error);
        assert_eq!(
            (failure.retry(), failure.remedy()),
            (Retry::Never, remedy),
            "{name}"
        );
    }
}

#[test]
fn resource_exhausted_by_its_words() {
    let cases = [
        ("You've hit your usage limit", Some(UserAction::Upgrade)),
        (
            "This region is not available for your team",
            Some(UserAction::ChangeRegion),
        ),
        ("Please update to continue", Some(UserAction::UpdateClient)),
        ("maximum context length is 200k", Some(UserAction::Compact)),
        ("too many tools", Some(UserAction::TrimTools)),
        ("The model is overloaded", Some(UserAction::Wait)),
        ("Error", None),
    ];
    for (text, remedy) in cases {
        let failure = classify(remote(Code::ResourceExhausted, text));
        assert_eq!(failure.remedy(), remedy, "{text}");
    }
}

#[test]
fn a_bare_resource_exhausted_by_what_was_sent() {
    let bare = WireError::from(remote(Code::ResourceExhausted, "Error"));
    let remedy = |evidence: Evidence| Failure::classify(&bare, &evidence).remedy();
    assert_eq!(
        remedy(Evidence {
            tools: 340,
            ..Evidence::default()
        }),
        Some(UserAction::TrimTools)
    );
    assert_eq!(
        remedy(Evidence {
            tool_bytes: 443 * 1024,
            ..Evidence::default()
        }),
        Some(UserAction::TrimTools)
    );
    assert_eq!(
        remedy(Evidence {
            schema_combinators: Presence::Present,
            ..Evidence::default()
        }),
        Some(UserAction::SimplifySchemas)
    );
    let occupancy = Some(ContextUsage {
        used: 150_000,
        limit: 200_000,
    });
    assert_eq!(
        remedy(Evidence {
            occupancy,
            ..Evidence::default()
        }),
        Some(UserAction::Compact)
    );
    assert_eq!(
        remedy(Evidence {
            failures_in_a_row: 2,
            ..Evidence::default()
        }),
        Some(UserAction::NewConversation)
    );
    // After output, the request itself was accepted, so the failure may be temporary.
    let late = Evidence {
        tools: 340,
        output: Presence::Present,
        ..Evidence::default()
    };
    assert_eq!(remedy(late), None);
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
