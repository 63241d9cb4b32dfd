//! The two tables.

use std::pin::Pin;

use anyhow::Result;
use e2e::rows::{Table, Wanted, judge};

use crate::callers::Callers;
use crate::{bodies, floods, forgeries, frames, globs, imitation, leaked_token, reviews, sockets, texts};

type Outcome<'a> = Pin<Box<dyn Future<Output = Result<String>> + 'a>>;
type Caller = (&'static str, for<'a> fn(&'a Callers) -> Outcome<'a>);
type Tenant = (&'static str, fn() -> Outcome<'static>);

/// Directly at the port of one squelch, one after the other.
const CALLERS: [Caller; 22] = [
    ("a body of 0 bytes", |callers| Box::pin(bodies::empty(callers))),
    ("a body of 3 MiB", |callers| Box::pin(bodies::long(callers))),
    ("a body of 64 MiB, chunked", |callers| Box::pin(bodies::endless(callers))),
    ("a body 10,000 deep", |callers| Box::pin(bodies::deep(callers))),
    ("a body with a million keys", |callers| Box::pin(bodies::wide(callers))),
    ("duplicate keys", |callers| Box::pin(bodies::twice(callers))),
    ("lone surrogates", |callers| Box::pin(bodies::surrogates(callers))),
    ("invalid UTF-8", |callers| Box::pin(bodies::no_text(callers))),
    ("NaN", |callers| Box::pin(bodies::no_number(callers))),
    ("reviews of DELETE and CONNECT, and these methods", |callers| {
        Box::pin(reviews::other_operations(callers))
    }),
    ("reviews of v1beta1 and of a subresource", |callers| Box::pin(reviews::other_versions(callers))),
    ("reviews without the token", |callers| Box::pin(reviews::without_token(callers))),
    ("slow handshakes, headers and bodies", |callers| Box::pin(sockets::slow(callers))),
    ("10,000 idle connections", |callers| Box::pin(sockets::idle(callers))),
    ("handshakes without a request", |callers| Box::pin(sockets::handshakes(callers))),
    ("plain HTTP on the TLS port", |callers| Box::pin(sockets::plain(callers))),
    ("TLS 1.0", |callers| Box::pin(sockets::outdated(callers))),
    ("half-closed sockets", |callers| Box::pin(sockets::half_closed(callers))),
    ("HTTP/2: 1,000 streams reset", |callers| Box::pin(frames::resets(callers))),
    ("HTTP/2: 1,000 streams reset, with heads that decompress to 16 KiB", |callers| {
        Box::pin(frames::long_heads_reset(callers))
    }),
    ("HTTP/2: headers without an end", |callers| Box::pin(frames::continued(callers))),
    ("HTTP/2: 10,000 pings", |callers| Box::pin(frames::pings(callers))),
];

/// Through the API server, each with its own squelch.
const TENANTS: [Tenant; 14] = [
    ("distinct reasons", || Box::pin(floods::reasons())),
    ("distinct objects and names", || Box::pin(floods::names())),
    ("distinct messages", || Box::pin(floods::messages())),
    ("messages of 1.5 MB", || Box::pin(floods::long())),
    ("messages of 1.4 MB of '<'", || Box::pin(floods::escaped())),
    ("control characters, ANSI, bidi text", || Box::pin(texts::raw())),
    ("objects of other namespaces", || Box::pin(imitation::elsewhere())),
    ("the kubelet's Events from another user", || Box::pin(imitation::kubelet())),
    ("forged labels, annotations and components", || Box::pin(forgeries::marks())),
    ("name of a summary taken", || Box::pin(forgeries::summary_taken())),
    ("counts that jump to the maximum", || Box::pin(forgeries::jumping_counts())),
    ("a delete between any two writes", || Box::pin(forgeries::deletes())),
    ("forged reviews with the token, under Enforce", || Box::pin(leaked_token::under_enforce())),
    ("1,000 policies with the worst globs", || Box::pin(globs::worst_policies())),
];

/// Runs both tables, or the rows whose name contains a line of `SQUELCH_ROWS`.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_load_does_not_affect_others() -> Result<()> {
    let wanted = Wanted::asked();
    let mut callers = Table::new("hostile callers");
    let rows: Vec<_> = CALLERS.iter().filter(|(name, _)| wanted.is(name)).collect();
    if !rows.is_empty() {
        let stage = Callers::begin().await?;
        for (name, row) in rows {
            callers.run(name, row(&stage)).await;
        }
        callers.run("all rows together", stage.end()).await;
    }
    let mut tenants = Table::new("hostile tenants");
    for (name, row) in TENANTS.iter().filter(|(name, _)| wanted.is(name)) {
        tenants.run(name, row()).await;
    }
    judge(&[callers, tenants], &wanted)
}
