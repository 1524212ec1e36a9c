"""Tables as people have them: strings, dates, missing values, quotes, semicolons; the mapping that
is kept beside the model; what inspect and predict make of it."""
import json
import os
import subprocess

import numpy as np
import pytest

from conftest import PROGRAM

CITIES = ["Bonn", "Kiel", "Rom"]


def model(path, inputs, outputs, activation="softmax"):
    """A model of one layer as a Keras config.json."""
    layers = [{"module": "keras.layers", "class_name": "InputLayer",
               "config": {"batch_shape": [None, inputs], "dtype": "float32", "name": "x"}},
              {"module": "keras.layers", "class_name": "Dense",
               "config": {"name": "out", "units": outputs, "activation": activation}}]
    path.write_text(json.dumps({"module": "keras", "class_name": "Sequential",
                                "config": {"name": "m", "layers": layers}}))


def people(path, n=120, delimiter=",", missing=True, order=("age", "city", "since", "bought"), first=0):
    """Who buys: those from Kiel, and nobody else."""
    def row(i):
        city = CITIES[i % 3]
        return {"age": "" if missing and i % 10 == 3 else str(20 + i % 50), "city": f'"{city}"' if i % 2 else city,
                "since": f"20{10 + i % 10}-0{1 + i % 9}-15", "bought": "yes" if city == "Kiel" else "no",
                "name": f'"Nr. {i}, ""so"" called"'}
    lines = [delimiter.join(order)] + [delimiter.join(row(i)[c] for c in order) for i in range(first, first + n)]
    path.write_text("\ufeff" + "\r\n".join(lines) + "\r\n", encoding="utf-8")


CHOICE = ":x=age@mean+city,y=bought"
TRAIN = ("--epochs", 60, "--learning-rate", 0.1, "--optimizer", "adam", "--scale", 50,
         "--loss", "sparse_categorical_crossentropy", "--metrics", "accuracy", "--json")


@pytest.fixture
def trained(manta, tmp_path):
    """m.keras, trained on people.csv, with its mapping."""
    people(tmp_path / "people.csv")
    model(tmp_path / "m.json", 4, 2)
    done = manta("train", "m.json", "--data", "people.csv" + CHOICE, *TRAIN, "--save", "m.keras")
    assert done.event("result")["metrics"]["accuracy"] == 1
    return tmp_path


def test_inspect_shows_columns(manta, tmp_path):
    people(tmp_path / "people.csv", order=("name", "age", "city", "since", "bought"))
    said = manta("inspect", "people.csv").stdout
    assert "120 rows, commas between fields, the first line is a header" in said
    rows = {line.split()[0]: line.split() for line in said.splitlines() if line and line[0].islower()}
    assert rows["name"][1] == "text" and rows["age"][1:3] == ["number", "12"]
    assert rows["city"][1:5] == ["category", "0", "3", "different"] and rows["since"][1] == "date"
    suggested = said.split("--data ")[1].strip()
    assert suggested == "people.csv:x=age+city+since,y=bought,missing=mean"
    about = json.loads(manta("inspect", "people.csv", "--json").stdout)
    assert about["kind"] == "table" and about["table"]["as_data"] == suggested     # name is text: no dataset by itself
    assert [c["type"] for c in about["table"]["columns"]] == ["text", "number", "category", "date", "category"]
    about = json.loads(manta("inspect", suggested, "--json").stdout)
    assert about["columns"][0]["shape"] == [5] and about["columns"][1]["dtype"] == "int64"


def test_inspect_of_many_columns_names_the_label_alone(manta, tmp_path):
    """What is left out is x: nobody writes a hundred names."""
    names = [f"c{i}" for i in range(100)]
    (tmp_path / "wide.csv").write_text("\n".join([",".join(names), ",".join("12" for _ in names), ",".join("34" for _ in names)]))
    said = manta("inspect", "wide.csv").stdout.splitlines()[-1]
    assert said == "To train on it: --data wide.csv:y=c99"


def test_the_mapping_is_kept(trained):
    kept = json.loads((trained / "m.keras.table.json").read_text())
    assert [c["name"] for c in kept["x"]] == ["age", "city"] and kept["y"]["categories"] == ["no", "yes"]
    assert kept["x"][1]["categories"] == CITIES


def test_evaluate_and_predict_use_it(manta, trained):
    # another delimiter, another order, more columns, cities in another order
    people(trained / "new.csv", n=7, delimiter=";", order=("bought", "name", "city", "since", "age"), first=4)
    done = manta("evaluate", "m.keras", "--data", "new.csv", "--scale", 50, "--json")
    assert done.event("result")["metrics"]["accuracy"] == 1
    wanted = ["yes" if i % 3 == 1 else "no" for i in range(4, 11)]
    assert manta("predict", "m.keras", "--input", "new.csv", "--scale", 50).stdout.split() == wanted
    people(trained / "blind.csv", n=7, order=("city", "age"), first=4)             # without what is to be found out
    assert manta("predict", "m.keras", "--input", "blind.csv", "--scale", 50).stdout.split() == wanted
    manta("predict", "m.keras", "--input", "blind.csv", "--scale", 50, "--output", "y.csv")
    lines = (trained / "y.csv").read_text().splitlines()
    assert lines[0] == "class,no,yes" and [line.split(",")[0] for line in lines[1:]] == wanted
    manta("predict", "m.keras", "--input", "blind.csv", "--scale", 50, "--output", "y.npy")
    np.testing.assert_array_equal(np.load(trained / "y.npy"),
                                  np.array([line.split(",")[1:] for line in lines[1:]], np.float32))


def test_what_the_mapping_does_not_know(manta, trained):
    (trained / "far.csv").write_text("age,city\n20,Paris\n")
    done = manta("predict", "m.keras", "--input", "far.csv", status=1)
    assert "far.csv: line 2, column 'city' is 'Paris', expected one of the 3 categories" in done.stderr
    (trained / "less.csv").write_text("age,cty\n20,Bonn\n")
    assert "no column 'city'; there are: age, cty; did you mean" in \
        manta("predict", "m.keras", "--input", "less.csv", status=1).stderr
    done = manta("evaluate", "m.keras", "--data", "people.csv:x=city+age,y=bought", status=1)
    assert "x is 'city+age', but the mapping that was learnt has 2 columns" in done.stderr
    (trained / "m.keras.table.json").write_text("{}")
    assert "m.keras.table.json: it is no mapping of a table" in \
        manta("predict", "m.keras", "--input", "blind.csv", status=1).stderr


def test_a_run_keeps_it(manta, tmp_path):
    people(tmp_path / "people.csv")
    model(tmp_path / "m.json", 4, 2)
    whole = manta("train", "m.json", "--data", "people.csv" + CHOICE, *TRAIN, "--save", "whole.npz")
    assert whole.status == 0
    words = [w for w in TRAIN if w != "--json"]
    words[words.index("--epochs") + 1] = 30
    manta("train", "m.json", "--data", "people.csv" + CHOICE, *words, "--run-dir", "r")
    assert (tmp_path / "r" / "table.json").exists()
    # the mapping of the run is used, whatever the file has become: no more Rom, and another mean
    lines = (tmp_path / "people.csv").read_text().splitlines()
    kept = json.loads((tmp_path / "r" / "table.json").read_text())
    manta("train", "--resume", "--run-dir", "r", "--epochs", 60, "--save", "again.npz")
    a, b = np.load(tmp_path / "whole.npz"), np.load(tmp_path / "again.npz")
    assert a.files == b.files and all((a[k] == b[k]).all() for k in a.files)
    (tmp_path / "few.csv").write_text("\n".join(line for line in lines if "Rom" not in line) + "\n")
    done = manta("evaluate", "m.json", "--weights", "r", "--data", "few.csv", "--scale", 50,
                 "--loss", "sparse_categorical_crossentropy", "--metrics", "accuracy", "--json")
    assert done.event("result")["metrics"]["accuracy"] == 1
    assert json.loads((tmp_path / "r" / "table.json").read_text()) == kept


def test_a_stale_mapping_goes(manta, trained):
    (trained / "plain.csv").write_text("a,b,c,d,y\n" + "1,2,3,4,0\n4,3,2,1,1\n" * 8)
    manta("train", "m.json", "--data", "plain.csv:y=y", "--loss", "sparse_categorical_crossentropy", "--save", "m.keras")
    assert not (trained / "m.keras.table.json").exists()
    done = manta("predict", "m.keras", "--input", "plain.csv:x=a+b+c+d", status=1)
    assert "names no classes, expected --output" in done.stderr


WRONG = {
    "no such column": (":y=boght", 1, "there is no column 'boght'; there are: age, city, since, bought; did you mean"),
    "a rule that is none": (":y=bought,missing=guess", 1, "'missing=guess' means nothing, expected"),
    "a word that is none": (":x=age@float,y=bought", 1, "column 'age' is followed by @float, expected number"),
    "no rule": (":x=age,y=bought", 1, "line 5, column 'age' is missing, expected a value or a rule: missing=drop"),
    "not a number": (":x=city@number,y=bought", 1, "line 2, column 'city' is 'Bonn', expected a number"),
    "not a date": (":x=city@date,y=bought", 1, "line 2, column 'city' is 'Bonn', expected a date"),
    "twice": (":x=age+age,y=bought", 1, "names column 'age' twice"),
}


@pytest.mark.parametrize("choice, status, words", WRONG.values(), ids=WRONG.keys())
def test_one_sentence_says_what_is_wrong(manta, tmp_path, choice, status, words):
    people(tmp_path / "people.csv")
    model(tmp_path / "m.json", 4, 2)
    done = manta("train", "m.json", "--loss", "mse", "--data", "people.csv" + choice, status=status)
    assert words in done.stderr and done.stderr.count("\n") == 1 and "people.csv" in done.stderr


def peak_memory(tmp_path, *args):
    """What the program says, and the most memory that it had, in bytes."""
    with open(tmp_path / "said.txt", "w") as said:
        child = subprocess.Popen([PROGRAM, *args], stdout=said, cwd=tmp_path)
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = status
    assert status == 0
    return (tmp_path / "said.txt").read_text(), used.ru_maxrss * 1024


def test_a_million_rows_are_inspected_in_bounded_memory(tmp_path):
    """50 MB of rows take no more memory than 50 kB of them."""
    rows = "".join(f'{i},{i * 0.5},city {i % 7},2024-01-{1 + i % 28:02d},"a, ""{i % 3}"""\n' for i in range(1000))
    peaks = []
    for times in (1, 1000):
        with open(tmp_path / "big.csv", "w") as f:
            f.write("a,b,c,d,e\n")
            for _ in range(times):
                f.write(rows)
        said, peak = peak_memory(tmp_path, "inspect", "big.csv")
        assert f"{1000 * times:,} rows" in said
        assert [line.split()[1] for line in said.splitlines()[1:6]] == ["number", "number", "category", "date", "category"]
        peaks.append(peak)
    assert peaks[1] < peaks[0] + (8 << 20)
