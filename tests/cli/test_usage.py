"""The manners of the program: help, version, wrong usage."""
import re

import pytest

from conftest import ROOT, parse_events

VERSION = re.search(r'MANTA_VERSION_TEXT\s+"(.*)"', (ROOT / "include/manta/version.h").read_text()).group(1)


def test_version(manta):
    assert manta("--version").stdout.split()[:2] == ["manta", VERSION]


@pytest.mark.parametrize("command", [[], ["train"], ["evaluate"], ["predict"], ["model"], ["inspect"], ["bench"], ["data"]])
def test_help_goes_to_stdout(manta, command):
    done = manta(*command, "--help")
    assert "manta" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("args", [[], ["no-such-command"], ["train"], ["train", "mnist-cnn", "--no-such-option"]])
def test_wrong_usage_is_status_2_and_says_so(manta, args):
    done = manta(*args, status=2)
    assert done.stdout == ""
    assert done.stderr.strip()


def test_a_failure_is_one_sentence_on_stderr(manta):
    done = manta("train", "no-such-model", "--data", "mnist", status=1)
    assert len(done.stderr.strip().splitlines()) == 1
    assert "no-such-model" in done.stderr


def test_events_that_are_not_json_are_noticed():
    assert parse_events('{"event":"epoch","loss":0.5}\n')[0]["loss"] == 0.5
    for text in ('{"event":"epoch","loss":NaN}\n', "epoch 1\n", "[1]\n", "{}\n"):
        with pytest.raises(AssertionError):
            parse_events(text)
