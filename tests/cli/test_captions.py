import csv
import json

from tests.cli.in_process import shiftbed


def write(folder):
    (folder / "classes.txt").write_text("dog, hound\nfox\nowl\n")
    texts = ["a dog", "Hounds", "two foxes", "dog and fox", "a tree", ""]
    with (folder / "pairs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "url", "caption"])
        writer.writerows((i, f"http://x/{i}.jpg", texts[i % 6]) for i in range(120))


def test_from_pairs_to_a_test_set(tmp_path):
    write(tmp_path)
    command = ["captions", "pairs.csv", "--classes", "classes.txt", "-o", "out"]
    sizes = ["--min-matches", "20", "--per-class", "5"]
    done = shiftbed(*command, *sizes, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rows"], found["labelled"], found["ambiguous"]) == (120, 60, 20)
    assert found["ambiguous_share"] == 0.25
    assert [one["matches"] for one in found["per_class_counts"]] == [40, 20, 0]
    assert [one["test_examples"] for one in found["per_class_counts"]] == [5, 5, 0]
    assert (found["test_examples"], found["held_out_rows"], found["kept_classes"]) == (10, 10, 2)
    assert json.loads((tmp_path / "out" / "report.json").read_text())["seed"] == 0
    shown = shiftbed(*command, *sizes, "--seed", "1", cwd=tmp_path)
    assert "2 of 3 classes have at least 20 matches" in shown.stdout
    assert "25.00 % of those that name any" in shown.stdout
    assert "save each at its path" in shown.stdout


def test_wrong_input_and_nothing_found(tmp_path):
    write(tmp_path)
    command = ["captions", "pairs.csv", "--classes", "classes.txt", "-o", "out"]
    none = shiftbed(*command, cwd=tmp_path)
    assert none.returncode == 1
    assert "no class has 100 matches" in none.stdout
    wrong = shiftbed(*command, "--min-matches", "2", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "--min-matches must be at least --per-class (50), got 2" in wrong.stderr
    column = shiftbed(*command, "--text-column", "captoin", cwd=tmp_path)
    assert (column.returncode, len(column.stderr.splitlines())) == (2, 1)
