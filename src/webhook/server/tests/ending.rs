//! Which connections end, and when.

use super::*;
use crate::clock;

#[tokio::test]
async fn closing_ends_idle_connections_and_new_ones_after_one_response() {
    let served = start(ConnectionLimits::default());
    let mut idle = served.connect().await.unwrap();
    served.send_review(&mut idle).await;
    served.stages.closing.cancel();
    ends(&mut idle).await;

    let mut late = served.connect().await.unwrap();
    let response = served.send_review(&mut late).await;
    assert!(is_allowed(&response) && response.contains("connection: close"), "{response}");
    ends(&mut late).await;
    assert!(!served.task.is_finished());
}

#[tokio::test]
async fn a_standby_ends_each_connection_after_one_response() {
    let standby = serving(ConnectionLimits::default(), LeaseDeadline::default(), None);
    let mut stream = standby.connect().await.unwrap();
    let response = standby.send_review(&mut stream).await;
    assert!(is_allowed(&response) && response.contains("connection: close"), "{response}");
    ends(&mut stream).await;

    let active = start(ConnectionLimits::default());
    let mut idle = active.connect().await.unwrap();
    active.send_review(&mut idle).await;
    active.lease_deadline.revoke();
    ends(&mut idle).await;
    assert!(!active.task.is_finished());
}

#[tokio::test]
async fn stop_ends_the_server() {
    let served = start(ConnectionLimits::default());
    let mut stream = served.connect().await.unwrap();
    served.send_review(&mut stream).await;
    served.stages.stop.cancel();
    ends(&mut stream).await;
    timeout(Duration::from_secs(20), served.task).await.expect("the server ends").unwrap();
    assert!(TcpStream::connect(served.address).await.is_err());
}

/// Go does not retry a POST on a connection that the server has closed while it was idle.
#[tokio::test]
async fn a_connection_ends_with_the_first_response_after_its_maximum_age() {
    let served = start(ConnectionLimits { age: Duration::from_secs(1), ..ConnectionLimits::default() });
    let began = clock::now();
    let mut stream = served.connect().await.unwrap();
    loop {
        let response = served.send_review(&mut stream).await;
        assert!(is_allowed(&response), "{response}");
        if response.contains("connection: close") {
            break;
        }
        assert!(clock::now().since(began) < Duration::from_secs(60), "it does not end");
        tokio::task::yield_now().await;
    }
    let elapsed = clock::now().since(began);
    assert!(elapsed >= Duration::from_secs(1), "it ended after {elapsed:?}");
    ends(&mut stream).await;
}

/// The API server calls a `url:` on loopback by HTTP/2.
#[tokio::test]
async fn an_http2_connection_is_served_and_ends_by_goaway() {
    let served = start(ConnectionLimits::default());
    let stream = served.connect_offering(b"h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    for _ in 0..2 {
        let request = Request::post(format!("https://squelch{}", path(&served.token)))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(CREATE)))
            .unwrap();
        let response = client.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        assert!(answer.ends_with(br#""allowed":true}}"#));
    }
    served.stages.closing.cancel();
    timeout(Duration::from_secs(20), connection).await.expect("the server ends").unwrap().unwrap();
}

/// The API server's next probe then needs a dial and a handshake.
#[tokio::test]
async fn a_probe_ends_its_connection_and_no_other() {
    let served = start(ConnectionLimits::default());
    let mut other = served.connect().await.unwrap();
    served.send_review(&mut other).await;
    let probe = format!("{}/probe", path(&served.token));

    let mut stream = served.connect().await.unwrap();
    let response = served.send_review_to(&mut stream, &probe).await;
    assert!(is_allowed(&response) && response.contains("connection: close"), "{response}");
    ends(&mut stream).await;

    let stream = served.connect_offering(b"h2").await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("https://squelch{probe}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(CREATE)))
        .unwrap();
    let response = client.send_request(request).await.unwrap();
    let answer = response.into_body().collect().await.unwrap().to_bytes();
    assert!(answer.ends_with(br#""allowed":true}}"#), "the response is complete");
    timeout(Duration::from_secs(20), connection).await.expect("the server ends").unwrap().unwrap();

    assert!(is_allowed(&served.send_review(&mut other).await));
}
