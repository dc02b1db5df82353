//! A webhook's receiver: notes each request, and answers as a test wants.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A request that the receiver got.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// With names in lower case.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
    /// Whether it was answered with 200.
    pub is_taken: bool,
}

impl Delivery {
    /// Its id, the same at each try.
    pub fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    /// Its body.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// The type of its event.
    pub fn kind(&self) -> String {
        self.json()["type"].as_str().expect("a type").to_owned()
    }
}

/// What the receiver answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// This status, with these further headers, each with its line end.
    Status(u16, String),
    /// Nothing.
    Never,
}

impl Answer {
    /// It takes the event.
    pub fn ok() -> Self {
        Self::Status(200, String::new())
    }
}

type Answers = dyn Fn(&Delivery, &[Delivery]) -> Answer + Send + Sync;

/// A server that gets deliveries.
#[derive(Clone)]
pub struct Receiver {
    /// Where it listens.
    pub url: String,
    received: Arc<Mutex<Vec<Delivery>>>,
    answers: Arc<Answers>,
}

impl Receiver {
    /// One that takes everything.
    pub async fn start() -> Self {
        Self::answering(|_, _| Answer::ok()).await
    }

    /// One that answers like this. The function gets a delivery, and those before it.
    pub async fn answering(
        answers: impl Fn(&Delivery, &[Delivery]) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let receiver = Self {
            url: format!("http://{}/hook", listener.local_addr().expect("an address")),
            received: Arc::default(),
            answers: Arc::new(answers),
        };
        let serving = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serving.clone();
                tokio::spawn(async move { serving.serve(stream).await });
            }
        });
        receiver
    }

    fn received(&self) -> MutexGuard<'_, Vec<Delivery>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it got until now.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.received().clone()
    }

    async fn serve(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        while let Some((headers, body)) = read(&mut stream).await {
            let answer = {
                let mut received = self.received();
                let delivery = Delivery {
                    headers,
                    body,
                    is_taken: false,
                };
                let answer = (self.answers)(&delivery, &received);
                let is_taken = matches!(answer, Answer::Status(200, _));
                received.push(Delivery { is_taken, ..delivery });
                answer
            };
            let (status, headers) = match answer {
                Answer::Status(status, headers) => (status, headers),
                Answer::Never => std::future::pending().await,
            };
            let head = format!("HTTP/1.1 {status} x\r\n{headers}content-length: 2\r\n\r\nok");
            if stream.write_all(head.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// Reads a request. `None`: the connection has ended.
async fn read(stream: &mut BufReader<TcpStream>) -> Option<(HashMap<String, String>, Vec<u8>)> {
    let mut headers = HashMap::new();
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    assert_eq!(line, "POST /hook HTTP/1.1\r\n");
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = vec![0; headers["content-length"].parse().expect("a length")];
    stream.read_exact(&mut body).await.ok()?;
    Some((headers, body))
}
