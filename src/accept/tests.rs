use super::*;
use futures::FutureExt as _;
use std::collections::VecDeque;

fn is_evicted(slot: &ConnectionSlot) -> bool {
    slot.connection.evicted.is_cancelled()
}

async fn acceptor(slots: usize, evict: Eviction) -> Acceptor {
    Acceptor::new(TcpListener::bind("127.0.0.1:0").await.unwrap(), slots, evict)
}

#[tokio::test]
async fn the_oldest_unprotected_connection_is_evicted_first() {
    let acceptor = acceptor(10, Eviction::Unprotected).await;
    let [first, second, third] =
        [acceptor.acquire_slot().await, acceptor.acquire_slot().await, acceptor.acquire_slot().await];
    first.connection().protect();
    let request = first.connection().request();
    assert!(acceptor.open.evict(Eviction::Unprotected));
    assert!(!is_evicted(&first) && is_evicted(&second) && !is_evicted(&third));
    drop((second, third));
    assert!(
        !acceptor.open.evict(Eviction::Unprotected) && !is_evicted(&first),
        "the first connection has a request in flight"
    );
    drop(request);
    assert!(acceptor.open.evict(Eviction::Unprotected) && is_evicted(&first));
    drop(first);
    assert!(!acceptor.open.evict(Eviction::Any), "connections that have ended are removed");
}

#[tokio::test]
async fn the_protected_connection_that_was_idle_the_longest_is_evicted() {
    let acceptor = acceptor(3, Eviction::Unprotected).await;
    let slots = [acceptor.acquire_slot().await, acceptor.acquire_slot().await, acceptor.acquire_slot().await];
    slots.iter().for_each(|slot| slot.connection().protect());
    let [first, second, third] = &slots;
    drop([third, first, second].map(|slot| slot.connection().request()));
    let _busy = third.connection().request();
    assert!(acceptor.open.evict(Eviction::Unprotected) && is_evicted(first) && !is_evicted(second));
    assert!(acceptor.open.evict(Eviction::Unprotected) && is_evicted(second) && !is_evicted(third));
    assert!(!acceptor.open.evict(Eviction::Unprotected));
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_waits_until_another_is_idle() {
    let acceptor = acceptor(1, Eviction::Unprotected).await;
    let busy = acceptor.acquire_slot().await;
    let connection = busy.connection();
    connection.protect();
    let request = connection.request();
    let mut next = Box::pin(acceptor.acquire_slot());
    assert!(next.as_mut().now_or_never().is_none());
    drop(request);
    tokio::spawn(async move {
        connection.evicted().await;
        drop(busy);
    });
    next.await;
}

/// Half of the slots are for connections with a request, half for others.
#[tokio::test]
async fn a_new_connection_outlives_half_of_the_slots_beside_connections_with_requests() {
    let acceptor = acceptor(1_000, Eviction::Any).await;
    let mut slots = VecDeque::new();
    let mut replace = async |is_protected: bool| {
        if slots.len() == 256 {
            assert!(acceptor.open.evict(Eviction::Any));
            let evicted = slots.iter().position(is_evicted).unwrap();
            slots.remove(evicted);
        }
        let slot = acceptor.acquire_slot().await;
        let connection = slot.connection();
        if is_protected {
            connection.protect();
        }
        slots.push_back(slot);
        connection
    };
    for _ in 0..256 {
        replace(true).await;
    }
    let kubelet = replace(false).await;
    let mut others = 0;
    while !kubelet.evicted.is_cancelled() {
        replace(false).await;
        others += 1;
    }
    assert_eq!(others, 128);
}

#[tokio::test]
async fn a_new_connection_evicts_the_oldest_at_capacity() {
    let mut acceptor = acceptor(1, Eviction::Unprotected).await;
    let address = acceptor.listener.local_addr().unwrap();
    let _first = TcpStream::connect(address).await.unwrap();
    let (stream, slot) = acceptor.accept().await;
    let connection = slot.connection();
    tokio::spawn(async move {
        connection.evicted().await;
        drop((stream, slot));
    });
    let second = TcpStream::connect(address).await.unwrap();
    let (accepted, _place) = acceptor.accept().await;
    assert_eq!(accepted.peer_addr().unwrap(), second.local_addr().unwrap());
}

#[tokio::test(start_paused = true)]
async fn without_descriptors_the_oldest_connection_is_evicted_and_accepting_continues() {
    let acceptor = acceptor(10, Eviction::Unprotected).await;
    let slot = acceptor.acquire_slot().await;
    let connection = slot.connection();
    tokio::spawn(async move {
        connection.evicted().await;
        drop(slot);
    });
    let exhausted = io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
    acceptor.recover(&exhausted).await;
    assert_eq!(acceptor.slots.available_permits(), 9, "no connection is pending, so none is evicted");
    let _pending = TcpStream::connect(acceptor.listener.local_addr().unwrap()).await.unwrap();
    let began = clock::now();
    acceptor.recover(&exhausted).await;
    assert_eq!(clock::now().since(began), Duration::ZERO);
    assert_eq!(acceptor.slots.available_permits(), 10);
    // Without connections to evict, accepting must not spin.
    acceptor.recover(&exhausted).await;
    assert!(clock::now().since(began) >= ACCEPT_AGAIN);
}
