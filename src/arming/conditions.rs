//! CEL expressions of the webhook's match conditions. Pure.

use serde_json::{Value, json};

/// Excludes the writes of `own_user`, which is squelch itself.
pub(super) fn not_squelch_itself(own_user: &str) -> Value {
    json!([{
        "name": "not-squelch-itself",
        "expression": format!("request.userInfo.username != '{}'", escaped(own_user)),
    }])
}

/// Selects the dry runs of `own_user`, which is squelch itself.
pub(super) fn only_squelch_itself(own_user: &str) -> Value {
    json!([{
        "name": "only-squelch-itself",
        "expression": format!("request.dryRun && request.userInfo.username == '{}'", escaped(own_user)),
    }])
}

/// Escapes a user name for a CEL string in single quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_in_a_user_name_stays_inside_the_expression() {
        assert_eq!(escaped(r"o'neill\"), r"o\'neill\\");
    }
}
