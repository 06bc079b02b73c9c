"""What is taken out of paths and text, and what stays."""

import pytest

from opd.redaction import redact_homes, redact_host, redact_path


@pytest.mark.parametrize(
    ("path", "home", "paths"),
    [
        ("/home/alice/bin/tool", "/home/[redacted]/bin/tool", "/[redacted]/tool"),
        ("/var/home/bob/x.so", "/var/home/[redacted]/x.so", "/[redacted]/x.so"),
        ("/export/home/eve/a b", "/export/home/[redacted]/a b", "/[redacted]/a b"),
        ("/usr/bin/python3.11", "/usr/bin/python3.11", "/usr/bin/python3.11"),
        ("/opt/app/home/alice/x", "/opt/app/home/[redacted]/x", "/opt/app/home/[redacted]/x"),
        ("/srv/secret-project/run", "/srv/secret-project/run", "/[redacted]/run"),
        ("/home/alice", "/home/[redacted]", "/[redacted]/alice"),
        ("[kernel]", "[kernel]", "[kernel]"),
        ("[vdso]", "[vdso]", "[vdso]"),
        ("", "", ""),
    ],
)
def test_paths_of_images(path, home, paths):
    """The system's own paths stay; of others whose, or where, they are is taken out."""
    assert redact_path(path, "none") == path
    assert redact_path(path, "home") == home
    assert redact_path(path, "paths") == paths


def test_text_keeps_what_is_no_home():
    """Homes in a sentence, in JSON and in a list of paths; nothing else changes."""
    text = '{"a": "/home/alice/x", "b": "see /home/bob, /homes/carol and /home/"}'
    wanted = '{"a": "/home/[redacted]/x", "b": "see /home/[redacted], /homes/carol and /home/"}'
    assert redact_homes(text) == wanted


def test_the_host_is_a_word_of_its_own():
    """With and without its domain, never inside of other words."""
    host = "web7.example.org"
    assert redact_host("web7.example.org web7 web77 my-web7", host) == "[host] [host] web77 my-web7"
    assert redact_host("a vm is no VM", "vm") == "a vm is no VM"
    assert redact_host("localhost", "localhost") == "localhost"
