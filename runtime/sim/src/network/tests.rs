use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

struct Two {
    fabric: Fabric,
    client: BoxIo,
    server: BoxIo,
    clock: Clock,
}

async fn two() -> Two {
    let clock = Clock::simulated(0);
    let fabric = Fabric::new(&clock, Rng::seeded(3), Trace::new(&clock, false));
    let mut listener = fabric.attach("b").bind(&HostPort::new("b", 0)).await.unwrap();
    let network = fabric.attach("a");
    let client = network.connect(&listener.local_address()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    Two { fabric, client, server, clock }
}

#[tokio::test(start_paused = true)]
async fn bytes_arrive_in_order_and_an_end_follows_them() {
    let Two { mut client, mut server, .. } = two().await;
    let sent: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for piece in sent.chunks(1_000) {
        client.write_all(piece).await.unwrap();
    }
    drop(client);
    let mut read = Vec::new();
    server.read_to_end(&mut read).await.unwrap();
    assert!(read == sent);
    assert_eq!(server.write_all(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test(start_paused = true)]
async fn a_cut_holds_bytes_back_one_way_until_it_heals() {
    let Two { fabric, mut client, mut server, clock } = two().await;
    fabric.cut(&Arc::from("a"), &Arc::from("b"));
    client.write_all(b"request").await.unwrap();
    server.write_all(b"push").await.unwrap();
    let mut push = [0; 4];
    client.read_exact(&mut push).await.unwrap();
    let mut request = [0; 7];
    let waited = clock.timeout(Duration::from_secs(60), server.read_exact(&mut request)).await;
    assert!(waited.is_err(), "the link is cut");
    fabric.heal();
    server.read_exact(&mut request).await.unwrap();
    assert_eq!(&request, b"request");
}

#[tokio::test(start_paused = true)]
async fn a_reset_loses_a_suffix_and_fails_both_ends() {
    let Two { fabric, mut client, mut server, .. } = two().await;
    client.write_all(&[7; 10_000]).await.unwrap();
    assert_eq!(fabric.reset(|_, to| to == "b"), 1);
    let mut read = Vec::new();
    assert_eq!(server.read_to_end(&mut read).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert!(read.len() < 10_000);
    assert_eq!(client.read_to_end(&mut read).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_power_says_no_goodbye_until_it_is_back() {
    let Two { fabric, client, mut server, clock } = two().await;
    fabric.power_off(&Arc::from("a"));
    drop(client);
    let mut read = Vec::new();
    let silence = clock.timeout(Duration::from_secs(3_600), server.read_to_end(&mut read)).await;
    assert!(silence.is_err());
    fabric.power_on(&Arc::from("a"));
    assert_eq!(server.read_to_end(&mut read).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn connecting_waits_while_the_link_is_cut_and_is_refused_where_nobody_listens() {
    let Two { fabric, clock, .. } = two().await;
    let network = fabric.attach("a");
    let nobody = HostPort::new("b", 1);
    assert_eq!(network.connect(&nobody).await.err().unwrap().kind(), io::ErrorKind::ConnectionRefused);
    fabric.cut(&Arc::from("b"), &Arc::from("a"));
    let waited = clock.timeout(Duration::from_secs(60), network.connect(&nobody)).await;
    assert!(waited.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_name_leads_to_the_host_that_took_it_last() {
    let Two { fabric, .. } = two().await;
    let network = fabric.attach("a");
    let service = HostPort::new("service", 7);
    assert_eq!(network.connect(&service).await.err().unwrap().kind(), io::ErrorKind::ConnectionRefused);
    let mut listeners = Vec::new();
    for host in ["b", "c"] {
        listeners.push(fabric.attach(host).bind(&HostPort::new(host, 7)).await.unwrap());
        fabric.name("service", Arc::from(host));
        let _client = network.connect(&service).await.unwrap();
        assert!(fabric.links().contains_key(&(Arc::from("a"), Arc::from(host))), "{host}");
    }
}
