"""manta where: who started this process, as its environment says. Rows of environments: tests/unit/launch/where_test.c."""
import json
import socket

STEP = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
        "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}


def test_what_is_found_and_why(manta):
    said = manta("where", env=STEP).stdout
    assert "rank        3 of 4\n" in said and "local rank  1 of 2 on this host\n" in said and "SLURM_PROCID" in said
    found = json.loads(manta("where", "--json", env=STEP).stdout)
    why = found.pop("why")
    assert found == {"launcher": "slurm", "size": 4, "rank": 3, "local_size": 2, "local_rank": 1, "job": "17",
                     "job_of": "slurm", "hosts": ["n1", "n2"], "addresses": [], "hint": None}
    assert any("SLURM_PROCID" in line for line in why)


def test_alone(manta):
    found = json.loads(manta("where", "--json").stdout)
    assert found["launcher"] == "alone" and (found["rank"], found["size"]) == (0, 1) and found["hint"] is None


def test_a_batch_script_is_given_a_hint(manta):
    assert "Hint: " in manta("where", env={"SLURM_JOB_ID": "17", "SLURM_PROCID": "0"}).stdout


def test_a_contradiction_is_refused(manta):
    said = manta("where", env={"PMI_RANK": "4", "PMI_SIZE": "4"}, status=1)
    assert "PMI_RANK is 4, but PMI_SIZE is 4" in said.stderr and said.stdout == ""


def test_which_peers_answer(manta):
    with socket.socket() as there, socket.socket() as silent:
        there.bind(("127.0.0.1", 0))
        there.listen()
        silent.bind(("127.0.0.1", 0))       # and does not listen: nobody else can
        addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in (there, silent)]
        config = {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 0}})}
        answers = json.loads(manta("where", "--json", "--peers", env=config).stdout)["answers"]
        assert answers[addresses[0]] is True and "refused" in answers[addresses[1]]
        assert "answers" not in json.loads(manta("where", "--json", env=config).stdout)
        said = manta("where", "--peers", env=config).stdout
        assert f"{addresses[0]} answers\n" in said and "refused" in said


def test_what_others_named_cannot_speak_to_a_terminal(manta):
    said = manta("where", env={"JOB_COMPLETION_INDEX": "0", "HOSTNAME": "a\x1b[31mb-0"}).stdout
    assert "\x1b" not in said


def test_a_value_has_no_lines_of_its_own(manta):
    odd = {"JOB_COMPLETION_INDEX": "0", "HOSTNAME": "a\nrank: 7\nb-0"}
    assert json.loads(manta("where", "--json", env=odd).stdout)["why"][1:] == ["HOSTNAME: the job is a?rank: 7?b"]


def test_a_long_list_is_refused_at_once(manta):
    assert "65536 hosts" in manta("where", env={"SLURM_JOB_NODELIST": "a[1-1000000]"}, status=1).stderr
    said = manta("where", env={"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "4294967291", "SLURM_PROCID": "0"}).stdout
    assert "no task of a step" in said
