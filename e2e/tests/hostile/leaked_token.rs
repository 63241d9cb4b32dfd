//! A caller with the token of the webhook's path, under policies in Enforce, posts reviews of writes that do not
//! exist. No Event is created by it, and only counts of existing Events change.

use anyhow::{Context, Result, ensure};
use e2e::user::Version;
use e2e::writes::{Kind, history};
use e2e::{Squelch, Test, User};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::forgeries::LARGEST;

/// Users of the forged reviews; one of them has written an Event.
const OWNER: &str = "system:node:node-1";
const FORGED: &str = "system:node:node-2";
/// Repeats of each forged Event, and distinct messages about one object.
const TIMES: usize = 20;

/// The path of the webhook with its token.
async fn path(test: &Test, squelch: &Squelch) -> Result<String> {
    let read = ["get", "mutatingwebhookconfiguration/squelch", "--output=json"];
    let configuration: Value = serde_json::from_str(&test.kubectl().run(&read).await?)?;
    let webhooks = configuration["webhooks"].as_array().context("no webhooks")?;
    let events = webhooks.iter().find(|webhook| webhook["name"] == "events.squelch.dev").context("none")?;
    let url = events["clientConfig"]["url"].as_str().context("no url")?;
    Ok(url.strip_prefix(&squelch.webhook).context("the webhook has another address")?.to_owned())
}

/// A review of a CREATE, or of an UPDATE if `stored` is given.
fn review(user: &str, event: &Value, stored: Option<&Value>) -> String {
    let kind = json!({ "group": "", "version": "v1", "kind": "Event" });
    let resource = json!({ "group": "", "version": "v1", "resource": "events" });
    let (name, namespace) = (&event["metadata"]["name"], &event["metadata"]["namespace"]);
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": name, "operation": if stored.is_some() { "UPDATE" } else { "CREATE" },
            "name": name, "namespace": namespace, "kind": kind, "requestKind": kind,
            "resource": resource, "requestResource": resource, "userInfo": { "username": user },
            "object": event, "oldObject": stored, "dryRun": false,
        },
    })
    .to_string()
}

/// The fields of an existing Event that must not change.
fn without_count(mut event: Value) -> Value {
    for field in ["count", "lastTimestamp", "series"] {
        event[field] = Value::Null;
    }
    for field in ["resourceVersion", "managedFields"] {
        event["metadata"][field] = Value::Null;
    }
    event
}

/// The forged reviews: missing Events, repeated and with new messages; and higher counts of an existing Event.
fn forgeries(namespace: &str, stored: &Value) -> Vec<String> {
    let now = Timestamp::now();
    let event =
        |name: &str, pod: &str, message: &str| Version::Core.event(namespace, name, pod, message, now);
    let counted = |mut event: Value, count: i64| {
        event["count"] = count.into();
        event
    };
    let mut reviews = Vec::new();
    for number in 0..TIMES {
        reviews.push(review(FORGED, &event(&format!("ghost.{number}"), "ghost", "again"), None));
        let message = number.to_string();
        reviews.push(review(FORGED, &event(&format!("words.{number}"), "words", &message), None));
        // UPDATEs of an Event that was never created.
        let raised = |count| counted(event("risen", "risen", "again"), count);
        let (before, after) = (raised(number as i64 + 1), raised(number as i64 + 2));
        reviews.push(review(FORGED, &after, Some(&before)));
    }
    // With the name of an existing Event: as its owner and as another user, with another message and with the same.
    for user in [FORGED, OWNER] {
        for message in ["forged", "again"] {
            reviews.push(review(user, &counted(event("cart.1", "cart", message), LARGEST), None));
            reviews.push(review(user, &event(&format!("{message}.again"), "cart", message), None));
        }
        let mut other = stored.clone();
        other["message"] = "forged".into();
        reviews.push(review(user, &counted(other, 2), Some(stored)));
        reviews.push(review(user, &counted(stored.clone(), LARGEST), Some(stored)));
    }
    reviews
}

/// Posts them all, and lets squelch write.
pub(crate) async fn under_enforce() -> Result<String> {
    let test = Test::begin("leaked").await?;
    let squelch = test.squelch().await?;
    test.policy(&json!({})).await?;
    let verbs = ["get", "create", "patch"];
    let owner = User::with_rights(&test.cluster, OWNER, &test.namespace, &verbs).await?;
    let own = Version::Core.event(&test.namespace, "cart.1", "cart", "again", Timestamp::now());
    ensure!(owner.create(&own).await?.is_success(), "the owner's Event is not stored");
    let before = owner.get(&own, "cart.1").await?.object()?;
    let writes = test.writes().await?;

    let path = path(&test, &squelch).await?;
    let (mut reviews, mut refused) = (0, 0);
    for review in forgeries(&test.namespace, &before) {
        let answer: Value = serde_json::from_str(&squelch.post(&path, review).await?)?;
        reviews += 1;
        refused += usize::from(answer["response"]["allowed"] == false);
    }
    ensure!(refused > 0, "of {reviews} forged reviews none was decided: is the token the right one?");
    // Pending occurrences are flushed or lost at shutdown.
    squelch.stop().await?;

    let written = writes.so_far().await?;
    let added = written.iter().filter(|write| write.kind == Kind::Added).count();
    let after = owner.get(&own, "cart.1").await?.object()?;
    let seen = format!(
        "{reviews} forged reviews, {refused} of them merged or dropped; {added} Events created; the owner's count {}",
        after["count"]
    );
    ensure!(added == 0, "{seen}:\n{}", history(&written));
    ensure!(without_count(after.clone()) == without_count(before.clone()), "{seen}; {before} became {after}");
    test.passed()?;
    Ok(seen)
}
