use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::SignedDuration;

use super::*;
use crate::tls::Authority;
use crate::tls::authority::pem;

const DAY: Duration = Duration::from_secs(86_400);
const NAME: &str = "squelch.squelch.svc";

fn wall() -> Timestamp {
    "2026-11-21T08:00:00Z".parse().unwrap()
}

/// A directory as kubelet makes it: `..data` links to the directory with the files.
struct Volume(PathBuf);

impl Volume {
    fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("squelch-mounted-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        for name in [CERTIFICATE, KEY, AUTHORITY] {
            symlink(format!("..data/{name}"), path.join(name)).unwrap();
        }
        Self(path)
    }

    fn swap(&self, state: &str, files: [&str; 3]) {
        let folder = self.0.join(state);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in [CERTIFICATE, KEY, AUTHORITY].iter().zip(files) {
            fs::write(folder.join(name), text).unwrap();
        }
        let link = self.0.join("..data_tmp");
        symlink(state, &link).unwrap();
        fs::rename(link, self.0.join("..data")).unwrap();
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn issued(authority: &Authority, name: &str) -> (String, String) {
    let leaf = authority.issue(&[name.to_owned()], DAY, wall()).unwrap();
    let PrivateKeyDer::Pkcs8(key) = leaf.key else { panic!("another kind of key") };
    (pem("CERTIFICATE", &leaf.chain[0]), pem("PRIVATE KEY", key.secret_pkcs8_der()))
}

#[test]
fn a_swapped_directory_is_read_again_and_a_damaged_one_is_an_error() {
    let (volume, authority) = (Volume::new(), Authority::generate(10 * DAY, wall()).unwrap());
    let mut mounted = MountedFiles::new(volume.0.clone(), NAME.to_owned());
    assert!(matches!(mounted.read_changed(wall()), Err(MountedError::Read(CERTIFICATE, _))));

    let (one, two) = (issued(&authority, NAME), issued(&authority, NAME));
    volume.swap("..1", [&one.0, &one.1, authority.ca_pem()]);
    let first = mounted.read_changed(wall()).unwrap().unwrap();
    assert_eq!(
        (first.authority(), first.validity().ends),
        (authority.ca_pem(), wall() + SignedDuration::from_hours(24))
    );
    assert!(mounted.read_changed(wall()).unwrap().is_none(), "nothing has changed");

    volume.swap("..2", [&two.0, &one.1, authority.ca_pem()]);
    for _ in 0..2 {
        assert!(matches!(mounted.read_changed(wall()), Err(MountedError::Pair(_))));
    }
    volume.swap("..3", [&two.0, &two.1[..80], authority.ca_pem()]);
    assert!(matches!(mounted.read_changed(wall()), Err(MountedError::Invalid(KEY, _))));
    volume.swap("..4", [&two.0, &two.1, ""]);
    assert!(matches!(mounted.read_changed(wall()), Err(MountedError::Invalid(AUTHORITY, _))));
    volume.swap("..5", [&two.0, &two.1, authority.ca_pem()]);
    assert_ne!(mounted.read_changed(wall()).unwrap().unwrap().leaf().chain, first.leaf().chain);
}

#[test]
fn a_certificate_that_the_api_server_would_refuse_is_an_error() {
    let (volume, authority) = (Volume::new(), Authority::generate(10 * DAY, wall()).unwrap());
    let other = Authority::generate(10 * DAY, wall()).unwrap();
    let mut mounted = MountedFiles::new(volume.0.clone(), NAME.to_owned());
    let (right, wrong) = (issued(&authority, NAME), issued(&authority, "another.name.svc"));
    volume.swap("..1", [&wrong.0, &wrong.1, authority.ca_pem()]);
    assert!(matches!(mounted.read_changed(wall()), Err(MountedError::Chain(_))));
    volume.swap("..2", [&right.0, &right.1, other.ca_pem()]);
    assert!(matches!(mounted.read_changed(wall()), Err(MountedError::Chain(_))));
    volume.swap("..3", [&right.0, &right.1, &format!("{}{}", other.ca_pem(), authority.ca_pem())]);
    let early = wall() - SignedDuration::from_hours(1);
    assert!(matches!(mounted.read_changed(early), Err(MountedError::Chain(_))), "not valid yet");
    assert!(mounted.read_changed(wall()).unwrap().is_some());
}
