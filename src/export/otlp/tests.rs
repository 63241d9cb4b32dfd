use std::convert::Infallible;
use std::sync::Mutex;

use http::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsPartialSuccess;
use tokio::net::TcpListener;

use super::*;
use crate::export::tests::record;

/// The last request: path, headers and body.
type Received = Arc<Mutex<Option<(String, HeaderMap, Bytes)>>>;

/// A collector that gives one answer, and its URL.
async fn collector(answer: fn() -> Response<Full<Bytes>>) -> (String, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let received: Received = Arc::default();
    let last = received.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let last = last.clone();
            let service = service_fn(move |request: http::Request<Incoming>| {
                let last = last.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    *last.lock().unwrap() = Some((head.uri.to_string(), head.headers, body));
                    Ok::<_, Infallible>(answer())
                }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    (url, received)
}

fn client(url: &str) -> OtlpCollector {
    let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer t"))]);
    OtlpCollector::new(url.parse().unwrap(), headers, "i".into()).unwrap()
}

fn answer(status: u16) -> Response<Full<Bytes>> {
    Response::builder().status(status).header("retry-after", "7").body(Full::default()).unwrap()
}

#[tokio::test]
async fn a_request_has_the_records_as_logs() {
    let (url, received) = collector(|| answer(200)).await;
    let sent = client(&url).send(&[record(1, "a"), record(2, "b")]).await;
    assert_eq!(sent, Outcome::Delivered { refused: 0 });
    let (path, headers, body) = received.lock().unwrap().take().unwrap();
    assert_eq!(path, "/v1/logs");
    assert_eq!(
        (&headers["content-type"], &headers["authorization"]),
        (&"application/x-protobuf".parse().unwrap(), &"Bearer t".parse().unwrap(),)
    );
    insta::assert_debug_snapshot!(ExportLogsServiceRequest::decode(body).unwrap());
}

#[tokio::test]
async fn the_path_of_the_url_is_kept() {
    let (url, received) = collector(|| answer(200)).await;
    client(&format!("{url}/tenant/logs")).send(&[record(1, "a")]).await;
    assert_eq!(received.lock().unwrap().take().unwrap().0, "/tenant/logs");
}

#[test]
fn the_query_of_a_url_without_a_path_is_kept() {
    for url in ["https://host?api-key=abc", "https://host/?api-key=abc"] {
        assert_eq!(with_path(url.parse().unwrap()), "https://host/v1/logs?api-key=abc");
    }
}

#[test]
fn a_collector_can_ask_for_a_pause_until_a_date() {
    let now: Timestamp = "2026-11-29T10:00:00Z".parse().unwrap();
    let pause = |asked| asked_pause(asked, now).map(|pause| pause.as_secs());
    assert_eq!(pause("7"), Some(7));
    assert_eq!(pause("Sun, 29 Nov 2026 10:00:20 GMT"), Some(20));
    assert_eq!(pause("Sun, 29 Nov 2026 09:00:00 GMT"), Some(0), "it is past");
    assert_eq!(pause("soon"), None);
}

#[tokio::test]
async fn the_status_says_whether_to_send_again() {
    let url = collector(|| answer(429)).await.0;
    let again = client(&url).send(&[record(1, "a")]).await;
    assert!(
        matches!(&again, Outcome::Failed { pause: Some(pause), .. } if pause.as_secs() == 7),
        "{again:?}"
    );
    let url = collector(|| answer(401)).await.0;
    let refused = client(&url).send(&[record(1, "a")]).await;
    assert!(
        matches!(&refused, Outcome::Refused { error } if error.contains("401") && error.contains("--export-otlp")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_long_answer_does_not_hide_the_status() {
    fn long(status: u16) -> Response<Full<Bytes>> {
        Response::builder().status(status).body(Full::new(vec![b'x'; MAX_ANSWER + 1].into())).unwrap()
    }
    let sent = client(&collector(|| long(404)).await.0).send(&[record(1, "a")]).await;
    assert!(matches!(sent, Outcome::Refused { .. }), "{sent:?}");
    let sent = client(&collector(|| long(200)).await.0).send(&[record(1, "a")]).await;
    assert_eq!(sent, Outcome::Delivered { refused: 0 });
}

#[tokio::test]
async fn a_web_page_is_no_answer_of_a_collector() {
    let page = || {
        let page = Response::builder().header("content-type", "text/html; charset=utf-8");
        page.body(Full::new("<html>Log in</html>".into())).unwrap()
    };
    let sent = client(&collector(page).await.0).send(&[record(1, "a")]).await;
    assert!(
        matches!(&sent, Outcome::Refused { error } if error.contains("web page")),
        "the records are nowhere: {sent:?}"
    );
}

#[tokio::test]
async fn refused_records_are_counted() {
    let url = collector(|| {
        let partial = ExportLogsPartialSuccess { rejected_log_records: 2, error_message: String::new() };
        let body = ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        Response::new(Full::new(body.into()))
    });
    let sent = client(&url.await.0).send(&[record(1, "a"), record(2, "b"), record(3, "c")]).await;
    assert_eq!(sent, Outcome::Delivered { refused: 2 });
}

#[tokio::test]
async fn a_collector_that_is_away_is_a_failure_that_may_pass() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let outcome = client(&url).send(&[record(1, "a")]).await;
    assert!(
        matches!(&outcome, Outcome::Failed { error, pause: None } if error.contains("refused") && error.contains(&url)),
        "{outcome:?}"
    );
}
