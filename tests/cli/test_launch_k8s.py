"""manta launch --on k8s --print: manifests, validated against Kubernetes's schemas and not run."""
import os
import re
import subprocess

import kubernetes_validate
import pytest
import yaml

TRAIN = ("train", "mlp", "--data", "mnist", "--name", "big")


@pytest.fixture
def run(start):
    """run(*args, status=0, env=None): the program, to its end."""
    def runner(*args, status=0, env=None):
        done = start(*args, env=env).wait()
        assert done.status == status, done.stderr
        return done
    return runner


def print_manifests(run, *options, program=TRAIN, **more):
    return run("launch", "--on", "k8s", "--print", *options, "--", *program, **more)


@pytest.fixture
def manifests(run):
    """manifests(*options): the Service and the Job, which have passed the schemas, and the text."""
    def make(*options, **more):
        text = print_manifests(run, *options, **more).stdout
        found = list(yaml.safe_load_all(text))
        assert [m["kind"] for m in found] == ["Service", "Job"]
        for m in found:
            kubernetes_validate.validate(m, "1.31", strict=True)
        return (*found, text)
    return make


def container_of(job):
    return job["spec"]["template"]["spec"]["containers"][0]


def test_the_parts_fit(manifests):
    service, job, text = manifests("--image", "registry/manta:1", "--nodes", "4", "-n", "2", "--job", "big", "--namespace", "lab", "--grace", "60",
                                   "--claim", "data:/data", "--cpus", "4", "--memory", "16Gi", "--user", "1000", "--env-from", "s3")
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"] == 4 and spec["backoffLimit"] > 0
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert pod["subdomain"] == service["metadata"]["name"] == job["metadata"]["name"] == "big"
    assert service["metadata"]["namespace"] == job["metadata"]["namespace"] == "lab"
    assert pod["restartPolicy"] == "Never"      # podFailurePolicy asks for it
    rules = spec["podFailurePolicy"]["rules"]
    assert {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]} in rules
    assert [r["action"] for r in rules if r.get("onExitCodes", {}).get("values") == [75]] == ["Ignore"]
    assert pod["terminationGracePeriodSeconds"] > 60
    words = container_of(job)["args"]
    assert words[words.index("--grace") + 1] == "60" and words[words.index("--") + 1:] == [*TRAIN, "--resume", "--cluster-timeout", "3600"]
    variables = {e["name"]: e["value"] for e in container_of(job)["env"]}
    assert variables["MANTA_WORLD_SIZE"] == "4" and variables["MANTA_STORAGE"] == "/data"
    assert {v["name"]: v for v in pod["volumes"]}["key"]["secret"] == {"secretName": "big-key", "defaultMode": 0o400}
    assert container_of(job)["envFrom"] == [{"secretRef": {"name": "s3"}}]
    assert pod["securityContext"]["fsGroup"] == 1000
    assert "kubectl create secret generic big-key --namespace=lab" in text


def test_the_least_that_can_be_said(manifests):
    _, job, text = manifests("--image", "i", program=("train", "mlp", "--data", "mnist"))
    assert job["spec"]["completions"] == 1 and "keeps no run" in text
    assert container_of(job)["args"][-3:] == ["mnist", "--cluster-timeout", "3600"]
    assert job["spec"]["template"]["spec"]["volumes"][0]["secret"]["defaultMode"] == 0o444      # whoever the image runs as
    assert "goes with it" in manifests("--image", "i")[2]
    assert "goes with it" not in manifests("--image", "i", program=(*TRAIN, "--storage", "s3://b/p"))[2]
    assert manifests("--image", "i", program=(*TRAIN, "--resume"))[1]["spec"]["template"]["spec"]["containers"][0]["args"].count("--resume") == 1


def test_what_statuses_mean_is_said_of_trainings_alone(manifests):
    rules = manifests("--image", "i", program=("./mine", "x"))[1]["spec"]["podFailurePolicy"]["rules"]
    assert [r["action"] for r in rules] == ["Ignore"] and "onPodConditions" in rules[0]
    assert container_of(manifests("--image", "i", program=(*TRAIN, "--cluster-timeout=9"))[1])["args"].count("--cluster-timeout") == 0


def test_as_many_as_pods_accept(run, manifests):
    assert manifests("--image", "i", "--job", "j", "--nodes", "1024", "-n", "4")[1]["spec"]["completions"] == 1024
    for options, says in ((("--nodes", "1024", "-n", "5"), "at most 1024 pods, 1024 processes each and 4096 in all"),
                          (("--nodes", "512", "-n", "8", "--job", "resnet50-imagenet"), "do not fit into one variable")):
        assert says in print_manifests(run, "--image", "i", *options, status=1).stderr
    done = run("launch", "--on", "pod:resnet50-imagenet", "--nodes", "512", "-n", "8", "--", *TRAIN, status=1)
    assert "do not fit into one variable" in done.stderr


HOSTILE = ["", "a: b", "- a", "-", "--flag", "'", '"', "it's \"both\"", "a\nb\r\n c\t", "#no remark", "{a: 1}", "[x", "*a", "&a", "!tag", "|", ">", "%x", "@y",
           "`z`", "null", "true", "0x10", "1e3", "~", "yes", " lead", "trail ", "\\n", "\\", "a\\", "\x1b[31m", "\x7f", "\u0085\u2028\u2029\ufeff", "ä€😀",
           "---", "...", "? q", "a #b", "$(HOME)", "$$(HOME)", "$$", "$", "$X ${Y}"]


def unescape(text):
    """What Kubernetes makes of a value: $$ is $, and without a reference nothing else changes."""
    return text.replace("$$", "$")


def test_hostile_words_come_back_as_they_are(manifests):
    program = ("./my program", *HOSTILE)
    _, job, _ = manifests("--image", "a\"b: 'c'\n- d", "--manta", "/opt/my manta/- manta", "--folder", "/x: \"y\" $z", "--claim", "c:/it's #here$$",
                          "--export", "HOSTILE", program=program, env={"HOSTILE": "a: \"b\"\n--- $(PATH)"})
    found = container_of(job)
    words = [unescape(w) for w in found["args"]]
    assert words[words.index("--") + 1:] == list(program)
    assert found["image"] == "a\"b: 'c'\n- d" and found["command"] == ["/opt/my manta/- manta"]
    assert found["workingDir"] == "/x: \"y\" $z" and found["volumeMounts"][1]["mountPath"] == "/it's #here$$"
    assert unescape({e["name"]: e["value"] for e in found["env"]}["MANTA_STORAGE"]) == "/it's #here$$"
    assert unescape({e["name"]: e["value"] for e in found["env"]}["HOSTILE"]) == "a: \"b\"\n--- $(PATH)"
    for word in found["args"]:      # no $ of a user's may begin a reference
        assert "$(" not in word.replace("$$", "")


def test_no_secret_is_written(run, manifests):
    for name in ("AWS_SECRET_ACCESS_KEY", "aws_session_token", "MANTA_CLUSTER_KEY", "DB_PASSWORD"):
        done = print_manifests(run, "--image", "i", "--export", name, env={name: "hidden"}, status=1)
        assert "--env-from" in done.stderr and "hidden" not in done.stdout + done.stderr
    assert not re.search("[0-9a-f]{64}", manifests("--image", "i")[2])


def test_the_command_for_the_key_pipes_it(manifests, tmp_path):
    """The command of the remark, with a kubectl that keeps what it was given."""
    text = manifests("--image", "i", "--job", "big")[2]
    command = re.search(r"^#   (head .*)$", text, re.M).group(1)
    (tmp_path / "kubectl").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/words\ncat >{tmp_path}/key\n')
    (tmp_path / "kubectl").chmod(0o755)
    subprocess.run(["sh", "-c", command], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=True, timeout=240)
    key = (tmp_path / "key").read_text()
    assert re.fullmatch("[0-9a-f]{64}", key)
    assert (tmp_path / "words").read_text().split("\n")[:-1] == ["create", "secret", "generic", "big-key", "--from-file=key=/dev/stdin"]


@pytest.mark.parametrize("options, says", [
    ((), "--image"),
    (("--image", "i", "--job", "Big"), "--job"),
    (("--image", "i", "--job", "a; rm -rf x"), "--job"),
    (("--image", "i", "--job", "a\nb"), "--job"),
    (("--image", "i", "--job", "x" * 53), "--job"),
    (("--image", "i", "--job", "1st"), "--job"),
    (("--image", "i", "--namespace", "-n"), "--namespace"),
    (("--image", "i", "--secret", "$(id)"), "--secret"),
    (("--image", "i", "--env-from", "a b"), "--env-from"),
    (("--image", "i", "--claim", "data"), "CLAIM:PATH"),
    (("--image", "i", "--claim", "data:rel"), "CLAIM:PATH"),
    (("--image", "i", "--cpus", "many"), "--cpus"),
    (("--image", "i", "--memory", "16 GB"), "--memory"),
    (("--image", "i", "--folder", "here"), "--folder"),
    (("--image", "i", "--export", "A=b"), "--export"),
    (("--image", "i", "--export", "A,B,A"), "each variable once"),
    (("--image", "i", "--export", "MANTA_WORLD_SIZE"), "given anyway"),
    (("--image", "i", "--export", "JOB_COMPLETION_INDEX"), "given anyway"),
    (("--image", "i", "--secret", "a..b"), "--secret"),
    (("--image", "i", "--claim", "data:/"), "CLAIM:PATH"),
    (("--image", "i", "--claim", "data:/run/manta/key"), "CLAIM:PATH"),
    (("--image", "i", "--claim", "data:/run/"), "CLAIM:PATH"),
    (("--image", "i", "--memory", "1m"), "--memory"),
])
def test_refused(run, options, says):
    done = print_manifests(run, *options, status=1)
    assert says in done.stderr and done.stdout == ""


def test_wrong_usage(run):
    assert "--print" in run("launch", "--on", "k8s", "--image", "i", "--", *TRAIN, status=2).stderr
    assert "--on k8s" in run("launch", "--image", "i", "--", *TRAIN, status=2).stderr
    assert "--on k8s" in run("launch", "--print", "--", *TRAIN, status=2).stderr
    assert "--ssh" in print_manifests(run, "--image", "i", "--ssh", "x", status=2).stderr


def test_a_pod_that_is_none(run, tmp_path):
    key = tmp_path / "key"
    key.write_text("a" * 64)
    rows = [({}, "JOB_COMPLETION_INDEX is not set"),
            ({"JOB_COMPLETION_INDEX": "2"}, "from 0 to 1"), ({"JOB_COMPLETION_INDEX": "x"}, "from 0 to 1"),
            ({"JOB_COMPLETION_INDEX": "0", "MANTA_WORLD_SIZE": "3"}, "MANTA_WORLD_SIZE"),
            ({"JOB_COMPLETION_INDEX": "0"}, "MANTA_CLUSTER_KEY is not set"),
            ({"JOB_COMPLETION_INDEX": "0", "MANTA_CLUSTER_KEY": str(tmp_path / "none")}, "none"),
            ({"JOB_COMPLETION_INDEX": "0", "MANTA_CLUSTER_KEY": "/etc/hostname"}, "hexadecimal digits")]
    for env, says in rows:
        assert says in run("launch", "--on", "pod:big", "--nodes", "2", "--", *TRAIN, env=env, status=1).stderr
    assert "--nodes" in run("launch", "--on", "pod:big", "--", *TRAIN, status=1).stderr
