//! The URL of a store. Where it stands in a file, its user and password are read again, since a password may be
//! another one while the program runs.

use std::fmt;
use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use percent_encoding::percent_decode_str;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::domain::{HostList, without_wrapping};
use crate::{files, telemetry};

/// How long the file may take to be read.
const READ_LIMIT: Duration = Duration::from_secs(1);

/// The URL of a store. Cheap to clone; clones of one that stands in a file share what was read last.
#[derive(Clone)]
pub struct StoreUrl {
    text: String,
    file: Option<Arc<UrlFile>>,
}

/// A file that holds the URL alone.
struct UrlFile {
    path: PathBuf,
    read: Mutex<Read>,
    /// Whoever reads the file holds it.
    turn: Arc<tokio::sync::Mutex<()>>,
}

struct Read {
    /// The URL in the file when it was last read well.
    text: String,
    /// `None`: the login is that of the start.
    login: Option<Login>,
    /// Counts the logins that were read; that of the start has 0.
    number: u64,
}

/// As whom Tally logs in.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    /// `None`: there is none in the URL.
    pub password: Option<String>,
}

impl StoreUrl {
    /// This URL, which was read from this file.
    pub fn in_file(text: &str, path: &Path) -> Self {
        let read = Read {
            text: text.to_owned(),
            login: None,
            number: 0,
        };
        Self {
            text: text.to_owned(),
            file: Some(Arc::new(UrlFile {
                path: path.to_owned(),
                read: Mutex::new(read),
                turn: Arc::default(),
            })),
        }
    }

    /// The URL, as it was at the start.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the login may be another one than that of the start.
    pub fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    /// The login that was read from the file since the start; `None`: it is that of the start.
    pub fn new_login(&self) -> Option<Login> {
        self.file.as_ref()?.read().login.clone()
    }

    /// Counts the logins that were read from the file. That of the start has 0.
    pub fn login_number(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.read().number)
    }

    /// A store refused the login with this number: reads the file again. Whether there is another login by now.
    ///
    /// A file that cannot be read, or holds no URL of this store, changes nothing, and is logged.
    // In a box: it stands deep in the futures of all programs.
    pub fn has_other_login(&self, refused_number: u64) -> BoxFuture<'_, bool> {
        match self.file.clone() {
            Some(file) => Box::pin(self.is_read_again(file, refused_number)),
            None => Box::pin(ready(false)),
        }
    }

    async fn is_read_again(&self, file: Arc<UrlFile>, refused_number: u64) -> bool {
        let start = self.text.clone();
        let reading = async {
            // One at a time: a disk may hang.
            let turn = Arc::clone(&file.turn).lock_owned().await;
            spawn_blocking(move || {
                let _turn = turn;
                if let Err(why) = file.read_again(&start)
                    && telemetry::is_news("the file of a store's URL is not used", &why)
                {
                    let file = file.path.display();
                    tracing::warn!(%file, error = why, "the login from before is used, and not what stands in the file of the URL");
                }
            })
            .await
        };
        // What was read before holds, whatever became of this.
        let _ = timeout(READ_LIMIT, reading).await;
        self.login_number() != refused_number
    }
}

/// It would show the password.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("StoreUrl(…)")
    }
}

impl From<&str> for StoreUrl {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            file: None,
        }
    }
}

impl From<&String> for StoreUrl {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for StoreUrl {
    fn from(text: String) -> Self {
        Self { text, file: None }
    }
}

impl From<&Self> for StoreUrl {
    fn from(url: &Self) -> Self {
        url.clone()
    }
}

impl UrlFile {
    fn read(&self) -> std::sync::MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the login in the file. `start`: the URL at the start.
    fn read_again(&self, start: &str) -> Result<(), String> {
        let text = without_wrapping(&files::secret(&self.path)?).to_owned();
        let mut read = self.read();
        if read.text == text {
            return Ok(());
        }
        let (login, rest) = split(&text).ok_or("it holds no URL with a user before an @")?;
        // Programs find the store, and how, only at their start.
        if split(start).is_none_or(|(_, at_start)| at_start != rest) {
            return Err("more than user and password is another: restart the program".to_owned());
        }
        let before = split(&read.text).map(|(login, _)| login);
        read.text = text;
        if before.as_ref() != Some(&login) {
            read.login = Some(login);
            read.number += 1;
            tracing::info!(file = %self.path.display(), "a store refused the login: another one stands in the file of its URL");
        }
        Ok(())
    }
}

/// The login in a URL, and the URL without it. `None`: it has no user.
fn split(url: &str) -> Option<(Login, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let written = HostList::of(rest).login;
    let without = format!("{scheme}://{}", &rest[written.len()..]);
    let written = written.strip_suffix('@')?;
    let (user, password) = written
        .split_once(':')
        .map_or((written, None), |(user, password)| (user, Some(password)));
    let login = Login {
        user: decoded(user)?,
        password: match password {
            Some(password) => Some(decoded(password)?),
            None => None,
        },
    };
    Some((login, without))
}

fn decoded(text: &str) -> Option<String> {
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_into_its_login_and_the_rest() {
        let login = |user: &str, password: Option<&str>| Login {
            user: user.to_owned(),
            password: password.map(str::to_owned),
        };
        for (url, user, password, rest) in [
            ("postgres://u:p@h/d", "u", Some("p"), "postgres://h/d"),
            (
                "postgres://u:p%40%3a@h1,h2:5/d?sslmode=require",
                "u",
                Some("p@:"),
                "postgres://h1,h2:5/d?sslmode=require",
            ),
            ("redis://:p@h", "", Some("p"), "redis://h"),
            ("redis+cluster://u@h", "u", None, "redis+cluster://h"),
        ] {
            assert!(
                split(url) == Some((login(user, password), rest.to_owned())),
                "{url}"
            );
        }
        for url in ["postgres://h/d", "h", "postgres://u:%ff@h/d"] {
            assert!(split(url).is_none(), "{url}");
        }
    }

    #[tokio::test]
    async fn only_another_user_or_password_in_the_file_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("url");
        let write = |text: &str| std::fs::write(&path, text).expect("written");
        let url = StoreUrl::in_file("postgres://u:p@h/d", &path);
        assert!(!url.has_other_login(0).await, "there is no file");
        for text in [
            "postgres://u:p@h/d\n",
            "postgres://u:q@other/d",
            "postgres://h/d",
            "",
            "u:q",
        ] {
            write(text);
            assert!(!url.has_other_login(0).await, "{text}");
        }
        assert!(url.new_login().is_none());
        write("postgres://u:q@h/d\n");
        assert!(url.has_other_login(0).await);
        // Another caller read it: the login with number 1 is refused too.
        assert!(url.has_other_login(0).await && !url.has_other_login(1).await);
        let login = url.new_login().expect("a login");
        assert_eq!((login.user.as_str(), login.password.as_deref()), ("u", Some("q")));
        // Back to the first one.
        write("postgres://u:p@h/d");
        assert!(url.has_other_login(1).await);
        assert_eq!(
            url.new_login().and_then(|login| login.password).as_deref(),
            Some("p")
        );
        std::fs::remove_file(&path).expect("removed");
        assert!(!url.has_other_login(2).await);
        assert_eq!(url.login_number(), 2);
    }

    #[test]
    fn a_url_shows_nothing() {
        assert_eq!(
            format!("{:?}", StoreUrl::from("postgres://u:p@h/d")),
            "StoreUrl(…)"
        );
    }
}
