//! Text that affects terminals and viewers.

use anyhow::{Result, ensure};
use e2e::wait::not_yet;
use e2e::{GENEROUS, Policy, wait_for};

use crate::tenancy::{Ending, Tenancy};
use crate::tenant::event;

/// Terminal colours and titles, carriage returns, C1, NUL, bidirectional text, invisible marks, separators, formats.
const TEXTS: [&str; 12] = [
    "\u{1b}[31mred\u{1b}[0m",
    "\u{1b}]0;title\u{7}",
    "\u{1b}[2J\u{1b}[H",
    "a\r\nb\tc\u{8}\u{7f}",
    "\u{9b}31m\u{85}",
    "nul\u{0}nul",
    "\u{202e}drawkcab\u{202c}",
    "\u{2066}isolate\u{2069}\u{200f}",
    "zero\u{200b}width\u{feff}",
    "line\u{2028}paragraph\u{2029}",
    "%s%n{{.}}${HOME}`id`",
    "soft\u{ad}tag\u{e0041}",
];

/// Events per text, more than the spam filter admits.
const EACH: usize = 40;

/// Whether it is neither a control character, except for line ends and tabs, nor an invisible or bidirectional one of
/// Unicode.
pub(crate) fn is_plain(char: char) -> bool {
    match char {
        '\n' | '\t' => true,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' => false,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => false,
        '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => false,
        other => !other.is_control(),
    }
}

/// In every text field.
pub(crate) async fn raw() -> Result<String> {
    let tenancy = Tenancy::begin("raw").await?;
    let namespace = tenancy.namespace().to_owned();
    for (at, text) in TEXTS.iter().enumerate() {
        for number in 0..EACH {
            let mut event =
                event(&namespace, &format!("m.{at}.{number}"), text, text, &format!("{text} {number}"));
            for field in ["kind", "apiVersion", "uid", "fieldPath", "resourceVersion"] {
                event["involvedObject"][field] = (*text).into();
            }
            for field in ["component", "host"] {
                event["source"][field] = (*text).into();
            }
            for field in ["reportingComponent", "reportingInstance", "action"] {
                event[field] = (*text).into();
            }
            // Beyond the filter's burst, independent of aggregation.
            event["reason"] = format!("{text}{}", number % 20).into();
            tenancy.creates(&event).await?;
        }
    }
    let policy = Policy::named(tenancy.test.client(), &namespace, "policy");
    let listed = wait_for("dropped Events to be listed", GENEROUS, async || {
        let listed = policy.top_dropped().await.map_err(not_yet)?;
        let foreign = listed.iter().filter(|line| line["component"] != "kubelet").count();
        if foreign > 0 { Ok(foreign) } else { Err(format!("{listed:?}")) }
    })
    .await?;
    ensure!(listed > 0, "no such Event is listed");
    Ok(format!("{} texts, {listed} listed as dropped; {}", TEXTS.len(), tenancy.ends(Ending::Counted).await?))
}
