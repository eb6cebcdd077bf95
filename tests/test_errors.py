from shiftbed.errors import unknown


def test_suggests_close_names():
    assert "did you mean 'objectnet'" in str(unknown("shift", "objctnet", ["objectnet", "val"]))


def test_suggests_names_that_contain_it():
    text = str(unknown("setting", "v2", ["imagenetv2-matched-frequency", "val"]))
    assert "imagenetv2-matched-frequency" in text


def test_lists_few_names():
    assert "known: a, b" in str(unknown("kind", "zzz", ["a", "b"]))


def test_is_one_line():
    assert "\n" not in str(unknown("model", "zzz", [f"model {i}" for i in range(100)]))
