//! What a model must know about the tools of a session, besides the host's system prompt. That prompt
//! names the host's tools as the host calls them, and so does the conversation; Cursor's model has
//! other tools, under other names.

/// What the text depends on. It must not change during a conversation without need, because the
/// server caches it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SessionTools<'a> {
    /// The name of one of the host's tools as it is offered; `None` if none is offered.
    pub offered: Option<&'a str>,
    /// Cursor's own tools that are executed.
    pub available: Vec<&'a str>,
    /// Cursor's own tools that nothing here can execute.
    pub missing: Vec<&'a str>,
    /// Cursor's own tools that the user or the host has switched off.
    pub switched_off: Vec<&'a str>,
    /// Whether images of earlier messages are left out of the conversation.
    pub omits_images: bool,
}

/// Returns the rule.
pub fn contract(tools: &SessionTools<'_>) -> String {
    let mut lines = Vec::new();
    if tools.offered.is_none() && tools.available.is_empty() {
        lines.push(
            "No tool can be called in this session: answer with text. Tools that the system prompt \
             or the conversation names are not available."
                .to_owned(),
        );
    } else {
        lines.push(
            "The system prompt and the conversation name tools as the user's editor displays them. \
             Those names cannot be called. Use the tool of yours that does the same work."
                .to_owned(),
        );
        if let Some(offered) = tools.offered {
            lines.push(format!(
                "Tools of the editor are offered as MCP tools. Call them by the exact name that is \
                 offered, for example `{offered}`."
            ));
        }
        if !tools.missing.is_empty() {
            lines.push(format!("Not available: {}.", tools.missing.join(", ")));
        }
        if !tools.switched_off.is_empty() {
            lines.push(format!(
                "Switched off by the user: {}. Do not call them, and do not do the same in another way.",
                tools.switched_off.join(", ")
            ));
        }
    }
    if tools.omits_images {
        lines.push(IMAGES.to_owned());
    }
    lines.join("\n")
}

const IMAGES: &str = "Images are sent only with the message they were attached to. Where the \
     conversation says [image omitted from transcript], the image is not available: if it matters, \
     ask the user to attach it again or to describe it.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_about_the_tools_of_a_session() {
        let all = SessionTools {
            offered: Some("pi__look"),
            available: vec!["read", "grep"],
            missing: vec!["fetch"],
            switched_off: vec!["shell", "write"],
            omits_images: true,
        };
        let native = SessionTools {
            available: vec!["read"],
            ..SessionTools::default()
        };
        let texts = [all, native, SessionTools::default()].map(|tools| contract(&tools));
        insta::assert_snapshot!(texts.join("\n---\n"));
    }
}
