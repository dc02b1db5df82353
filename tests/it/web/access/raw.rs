//! Requests as raw bytes, which no HTTP client has tidied.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends these bytes over a connection of their own.
/// Returns the server's whole answer.
pub async fn exchange(base: &str, bytes: &[u8]) -> String {
    let address = base.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    // The server may close before all is written. Its answer is still to be read.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status of each answer in these bytes.
pub fn statuses(answers: &str) -> Vec<u16> {
    answers
        .split("HTTP/1.1 ")
        .skip(1)
        .filter_map(|answer| answer.get(..3)?.parse().ok())
        // 100 is no answer, but permission to continue.
        .filter(|status| *status != 100)
        .collect()
}

/// The values of a header in the first of these answers.
pub fn header<'a>(answers: &'a str, name: &str) -> Vec<&'a str> {
    let head = answers.split("\r\n\r\n").next().unwrap_or_default();
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines
        .filter(|(one, _)| one.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
        .collect()
}
