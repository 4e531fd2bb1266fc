//! The plan of an account and its usage, as text for a user.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cursor_client::account::{SubscriptionPlan, UserProfile};

const BAR_WIDTH: usize = 20;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns one line per fact that Cursor reports.
pub(crate) fn lines(
    profile: &UserProfile,
    plan: &SubscriptionPlan,
    now: SystemTime,
) -> Vec<String> {
    let mut lines = Vec::new();
    let owner = profile.email.as_deref().or(profile.name.as_deref());
    lines.extend(owner.map(|owner| format!("Account: {owner}")));
    lines.extend(plan.name.as_ref().map(|name| format!("Plan: {name}")));
    let percent = plan.percent_used.or_else(|| {
        let (used, limit) = (plan.used_cents?, plan.limit_cents?);
        Some(f64::from(used) / f64::from(limit) * 100.0)
    });
    let spent = match (plan.used_cents, plan.limit_cents) {
        (Some(used), Some(limit)) => Some(format!("{} of {}", dollars(used), dollars(limit))),
        (Some(used), None) => Some(dollars(used)),
        (None, _) => None,
    };
    lines.extend(match (percent, spent) {
        (Some(percent), Some(spent)) => Some(format!("Used: {} ({spent})", bar(percent))),
        (Some(percent), None) => Some(format!("Used: {}", bar(percent))),
        (None, Some(spent)) => Some(format!("Used: {spent}")),
        (None, None) => None,
    });
    let share = |name: &str, percent: Option<f64>| {
        percent.map(|percent| format!("{name}: {}", bar(percent)))
    };
    lines.extend(share("Models chosen by Cursor", plan.auto_percent_used));
    lines.extend(share("Models chosen by you", plan.named_percent_used));
    lines.extend(match (plan.on_demand_cents, plan.on_demand_limit_cents) {
        (Some(used), Some(limit)) if limit > 0 => {
            let percent = f64::from(used) / f64::from(limit) * 100.0;
            let spent = format!("{} of {}", dollars(used), dollars(limit));
            Some(format!("Beyond the plan: {} ({spent})", bar(percent)))
        }
        (Some(used), _) if used > 0 => Some(format!("Beyond the plan: {}", dollars(used))),
        _ => None,
    });
    lines.extend(plan.period_ends_ms.and_then(|end| period(end, now)));
    lines.extend(plan.message.clone());
    if lines.is_empty() {
        lines.push("Cursor reports no usage for this account".into());
    }
    lines
}

/// Returns a bar such as `[####----------------] 20 %`.
pub(crate) fn bar(percent: f64) -> String {
    let share = (percent / 100.0).clamp(0.0, 1.0);
    let filled = (share * BAR_WIDTH as f64).round() as usize;
    let (full, empty) = ("#".repeat(filled), "-".repeat(BAR_WIDTH - filled));
    format!("[{full}{empty}] {percent:.0} %")
}

fn dollars(cents: i32) -> String {
    format!("${:.2}", f64::from(cents) / 100.0)
}

fn period(end_ms: i64, now: SystemTime) -> Option<String> {
    let end = UNIX_EPOCH + Duration::from_millis(u64::try_from(end_ms).ok()?);
    let left = end.duration_since(now).ok()?;
    Some(match left.as_secs() / DAY.as_secs() {
        0 => "The period ends within a day".into(),
        1 => "The period ends in 1 day".into(),
        days => format!("The period ends in {days} days"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_cursor_reports_is_listed() {
        let profile = UserProfile {
            email: Some("a@b.c".into()),
            name: None,
        };
        let plan = SubscriptionPlan {
            name: Some("Pro".into()),
            used_cents: Some(250),
            limit_cents: Some(2000),
            percent_used: Some(12.5),
            auto_percent_used: Some(4.0),
            named_percent_used: Some(120.0),
            on_demand_cents: Some(300),
            on_demand_limit_cents: Some(1000),
            period_ends_ms: Some(3 * 24 * 60 * 60 * 1000),
            message: Some("Almost there".into()),
        };
        let text = lines(&profile, &plan, UNIX_EPOCH + DAY).join("\n");
        insta::assert_snapshot!(text, @r"
        Account: a@b.c
        Plan: Pro
        Used: [###-----------------] 12 % ($2.50 of $20.00)
        Models chosen by Cursor: [#-------------------] 4 %
        Models chosen by you: [####################] 120 %
        Beyond the plan: [######--------------] 30 % ($3.00 of $10.00)
        The period ends in 2 days
        Almost there
        ");
    }

    #[test]
    fn nothing_is_invented() {
        let lines = lines(
            &UserProfile::default(),
            &SubscriptionPlan::default(),
            UNIX_EPOCH,
        );
        assert_eq!(lines, ["Cursor reports no usage for this account"]);
    }
}
