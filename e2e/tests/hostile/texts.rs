//! Text that does something to whoever looks at it.

use anyhow::{Result, ensure};
use e2e::wait::told;
use e2e::{GENEROUS, Policy, wait_for};

use crate::tenancy::{Ending, Tenancy};
use crate::tenant::event;

/// Colours and titles of terminals, carriage returns, C1, zero, text that runs the other way, marks that nobody sees,
/// separators, formats.
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

/// Of each, more than the spam filter lets through.
const EACH: usize = 40;

/// Neither a control character, but for the ends of lines and tabs, nor one of Unicode's invisible or turning ones.
pub(crate) fn is_plain(char: char) -> bool {
    match char {
        '\n' | '\t' => true,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' => false,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => false,
        '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => false,
        other => !other.is_control(),
    }
}

/// In every field that is text.
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
            // Beyond the filter's burst, whatever the group does.
            event["reason"] = format!("{text}{}", number % 20).into();
            tenancy.creates(&event).await?;
        }
    }
    let policy = Policy::named(tenancy.test.client(), &namespace, "policy");
    let listed = wait_for("what was dropped most to be listed", GENEROUS, async || {
        let listed = policy.top_dropped().await.map_err(told)?;
        let foreign = listed.iter().filter(|line| line["component"] != "kubelet").count();
        if foreign > 0 { Ok(foreign) } else { Err(format!("{listed:?}")) }
    })
    .await?;
    ensure!(listed > 0, "nothing of it is listed");
    Ok(format!("{} texts, {listed} listed as dropped; {}", TEXTS.len(), tenancy.ends(Ending::Counted).await?))
}
