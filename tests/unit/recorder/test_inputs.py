"""Everything a user may hand over becomes windows, or one clear error."""

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTForImageClassification

from headscape.errors import InputError
from headscape.models.plain_arguments import as_called
from headscape.recorder.inputs import InputReader
from headscape.recorder.text import column_of, token_labels
from headscape.recorder.window_sampling import special_tokens
from letters import Letters
from tiny_models import VOCAB, tiny_model, token_ids


@pytest.fixture(scope="module")
def llama():
    return tiny_model("Llama")


@pytest.fixture(scope="module")
def vit():
    return tiny_model("ViT")


def ids_of(windows):
    return [window.arguments["input_ids"][0].tolist() for window in windows]


def read(model, inputs, **options):
    options.setdefault("length", 5)
    return InputReader(model, options.pop("tokenizer", Letters()), **options).read(inputs)


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_text_is_cut_into_windows(llama):
    letters = [4 + ord(letter) % 40 for letter in "abcdefghijklm"]
    assert ids_of(read(llama, "abcdefghijklm")) == [letters[:5], letters[5:10]]
    assert ids_of(read(llama, "abcdefghijklm", windows=1)) == [letters[:5]]
    assert ids_of(read(llama, "abcdefghijklm", length=None)) == [letters]
    assert len(read(llama, "a" * 1000)) == 6


@pytest.mark.parametrize("kind", [list, tuple, np.asarray, torch.as_tensor])
def test_a_run_of_token_ids_is_cut_into_as_many_windows_as_asked_for(llama, kind):
    run = list(range(4, 30))
    assert ids_of(read(llama, kind(run), windows=3)) == [run[:5], run[10:15], run[20:25]]
    assert ids_of(read(llama, kind(run), windows=3, sample="first")) == [run[:5], run[5:10], run[10:15]]
    drawn = ids_of(read(llama, kind(run), windows=3, sample="random", seed=1))
    assert drawn == ids_of(read(llama, kind(run), windows=3, sample="random", seed=1)) == sorted(drawn)
    assert all(ids in [run[i : i + 5] for i in range(0, 25, 5)] for ids in drawn)


def test_special_tokens_go_around_every_window(llama):
    windows = read(llama, "abcdefg", tokenizer=Letters(special=True))
    assert [ids[0] for ids in ids_of(windows)] == [1, 1]
    assert [ids[-1] for ids in ids_of(windows)] == [2, 2]
    assert {len(ids) for ids in ids_of(windows)} == {5}
    assert special_tokens(Letters(special=True)) == ((1,), (2,))
    with pytest.raises(InputError, match=r"length \(--length\) is 2, .* no room beside the 2 special"):
        read(llama, "abcdefg", tokenizer=Letters(special=True), length=2)


@pytest.mark.parametrize("sample", ["spread", "first", "random"])
@pytest.mark.parametrize("n", [60, 200_000])
def test_special_tokens_are_on_every_window_of_every_sample_and_are_told(llama, sample, n):
    windows = read(llama, "ab cd " * (n // 6), tokenizer=Letters(special=True), windows=3, sample=sample)
    assert [(len(ids), ids[0], ids[-1]) for ids in ids_of(windows)] == [(5, 1, 2)] * 3
    assert all(min(ids[1:-1]) > 2 for ids in ids_of(windows))
    told = {"special_tokens": {"before": ["<1>"], "after": ["<2>"]}}
    assert [window.reading for window in windows] == [told] * 3


def test_only_what_is_done_to_text_is_told(llama):
    [plain] = read(llama, "abcde")
    assert plain.reading == {"special_tokens": {"before": [], "after": []}}
    assert [window.reading for window in read(llama, token_ids(2))] == [{}, {}]


@pytest.mark.parametrize("join", [False, True])
def test_line_ends_of_other_systems_are_read_as_lf_and_told(llama, tmp_path, join):
    for number, content in enumerate(("ab\r\ncd", "ab\rcd")):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(content.encode())
        for given in (content, path, [path], [content]):
            [window] = read(llama, given, join=join)
            assert ids_of([window]) == ids_of(read(llama, "ab\ncd"))
            assert window.reading["newlines"] == "CRLF read as LF"


def test_files_are_read(llama, tmp_path):
    path = write(tmp_path / "text.txt", "abcdefg")
    assert ids_of(read(llama, path)) == ids_of(read(llama, str(path))) == ids_of(read(llama, "abcdefg"))
    assert [window.source for window in read(llama, path)] == ["text.txt"]
    assert [window.source for window in read(llama, "abcdefg")] == [None]


@pytest.mark.parametrize(
    ("options", "shares"),
    [
        ({}, {"a.txt": 2, "b.txt": 2, "c.txt": 2}),
        ({"windows": 5}, {"a.txt": 2, "b.txt": 2, "c.txt": 1}),
        ({"windows": 3, "sample": "first"}, {"a.txt": 1, "b.txt": 1, "c.txt": 1}),
    ],
)
@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_several_text_files_share_the_windows(llama, tmp_path, options, shares, kind):
    contents = {"a.txt": "abcdefghijklmno", "b.txt": "pqrstuvwxyzABCDEFGHIJ", "c.txt": "KLMNOPQRSTU"}
    paths = [write(tmp_path / name, content) for name, content in contents.items()]
    found = read(llama, kind(paths), **options)
    assert [window.source for window in found] == [name for name, n in shares.items() for _ in range(n)]
    for name, content in contents.items():
        wanted = read(llama, content, **{**options, "windows": shares[name]})
        assert ids_of(window for window in found if window.source == name) == ids_of(wanted)


def test_text_files_are_told_apart_by_their_folders(llama, tmp_path):
    paths = [write(tmp_path / folder / "text.txt", "abcdefg") for folder in ("one", "two")]
    assert [window.source for window in read(llama, paths)] == ["one/text.txt", "two/text.txt"]
    with pytest.raises(InputError, match=r"text\.txt is given twice"):
        read(llama, [paths[0], paths[0]])


def test_text_files_can_be_joined(llama, tmp_path):
    paths = [write(tmp_path / "a.txt", "abc"), write(tmp_path / "b.txt", "defg")]
    assert ids_of(read(llama, paths, join=True, length=9)) == ids_of(read(llama, "abc\n\ndefg", length=9))


def test_several_text_files_that_cannot_be_sampled(llama, tmp_path):
    a, b = write(tmp_path / "a.txt", "abcdefghijk"), write(tmp_path / "b.txt", "abcdefg")
    with pytest.raises(InputError, match=r"windows \(--windows\) must be at least 2 for 2 texts, but is 1"):
        read(llama, [a, b], windows=1)
    with pytest.raises(InputError, match=r"expected 2 windows of 5 tokens, but b\.txt has only 1"):
        read(llama, [a, b], windows=4)
    assert len(read(llama, [a, b], windows=4, at_most=True)) == 3
    with pytest.raises(InputError, match=r"text files \(paths\) or strings, but not both"):
        read(llama, ["abcdefg", a])


@pytest.mark.parametrize(
    "rows", [["abcdefg", "hijklmn"], [{"text": "abcdefg", "id": 1}, {"text": "hijklmn", "id": 2}]]
)
def test_lists_and_dataset_rows_are_a_window_each(llama, rows):
    assert ids_of(read(llama, rows)) == ids_of(read(llama, "abcde")) + ids_of(read(llama, "hijkl"))
    joined = ids_of(read(llama, rows, join=True))
    assert joined == ids_of(read(llama, "abcdefg\n\nhijklmn"))
    assert len(joined) == 3
    assert [len(ids) for ids in ids_of(read(llama, rows, length=None))] == [7, 7]


def test_a_generator_of_rows_is_read_only_as_far_as_needed(llama):
    taken = []

    def rows():
        for number in range(10**9):
            taken.append(number)
            yield {"text": "abcdefgh"}

    assert len(read(llama, rows(), windows=2)) == 2
    assert len(taken) == 2


@pytest.mark.parametrize("kind", ["array", "tensor", "lists"])
def test_a_batch_of_token_ids_is_taken_row_by_row(llama, kind):
    ids = token_ids(3)
    given = {"array": ids.numpy(), "tensor": ids, "lists": ids.tolist()}[kind]
    assert ids_of(read(llama, given)) == ids.tolist()
    assert ids_of(read(llama, given, windows=2)) == ids.tolist()[:2]


def test_one_run_of_token_ids_is_cut(llama):
    assert ids_of(read(llama, list(range(4, 16)))) == [[4, 5, 6, 7, 8], [9, 10, 11, 12, 13]]
    assert ids_of(read(llama, [[4, 5, 6], [7, 8]])) == [[4, 5, 6], [7, 8]]


def test_a_batch_of_arguments_keeps_its_padding_and_labels_what_is_kept(llama):
    mask = torch.tensor([[1, 1, 1], [0, 1, 1]])
    windows = read(llama, {"input_ids": token_ids(2, length=3), "attention_mask": mask})
    assert [window.arguments["attention_mask"].tolist() for window in windows] == [[[1, 1, 1]], [[0, 1, 1]]]
    assert len(windows[1].labels["input"]) == 2
    rows = read(llama, [{"input_ids": [4, 5, 6], "attention_mask": [1, 1, 1]}, {"input_ids": [7, 8]}])
    assert ids_of(rows) == [[4, 5, 6], [7, 8]]


def test_an_encoder_decoder_repeats_its_input():
    (window,) = read(tiny_model("T5"), [[4, 5, 6]])
    assert window.arguments["decoder_input_ids"].tolist() == [[0, 4, 5]]
    assert window.labels["decoder"][1:] == ("t4", "t5")


def test_labels_are_readable_or_the_names_of_tokens():
    assert token_labels([1, 7], Letters()) == ("<1>", "t7")
    assert token_labels([1, 7], None) == ("1", "7")


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ("abc", {}, r"the text has 3 tokens, but length \(--length\) is 5: pass a smaller length"),
        ([5, 6, 7], {}, "got 3 token ids, but length=5: pass length=3 or more tokens"),
        ("abcdef", {"sample": "last"}, "sample must be one of spread, first, random, but is 'last'"),
        ([[5, 6]], {"sample": "last"}, "sample must be one of spread, first, random"),
        ("abcdef", {"seed": -1}, "seed must be a non-negative integer, but is -1"),
        ("   ", {}, "the text is empty"),
        (
            "abcdefghijk",
            {"windows": 3},
            "expected 3 windows of 5 tokens, but the text has only 2",
        ),
        ("abcde", {"windows": 1, "length": 9}, r"has 5 tokens, but length \(--length\) is 9"),
        ("a", {}, "the text has 1 token, but"),
        ([[5, 6]], {"windows": 2}, "expected 2 windows of 5 tokens, but the input has only 1"),
        (["abcdef", "abc"], {}, r"text 1 of the list: .* 3 tokens, .*is 5.*join=True.*length=None"),
        ([], {}, "the list of inputs is empty"),
        (7, {}, "inputs must be text, .*, but is int"),
        ("abcdef", {"length": 0}, "length must be a positive integer, but is 0"),
        ("abcdef", {"windows": 1.5}, "windows must be a positive integer, but is 1.5"),
        ("abcdef", {"tokenizer": None}, "text needs a tokenizer"),
        ("a" * 100, {"length": 65}, "at most 64 tokens, but a window has 65"),
        (np.array([[1, VOCAB]]), {}, "token ids must be from 0 to 47, but range from 1 to 48"),
        ([[1, -2]], {}, "token ids must be from 0 to 47"),
        ([[1, 2], ["a"]], {}, "rows of integers"),
        (
            {"input_ids": [[1, 2]], "attention_mask": [[1, 1], [1, 1]]},
            {},
            "same number of rows in every entry",
        ),
        ([{"a": "x", "b": "y"}], {}, r"must have a text column \(text, .*but has a, b"),
        (
            np.zeros((4, 4, 3), np.uint8),
            {},
            "images need a vision model, but LlamaModel reads input_ids",
        ),
    ],
)
def test_bad_inputs_give_one_clear_error(llama, inputs, options, message):
    with pytest.raises(InputError, match=message):
        read(llama, inputs, **options)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (bytes(range(256)), "is not UTF-8 text"),
        (b"ab\0cd", "contains NUL bytes"),
    ],
)
def test_files_that_are_no_text(llama, tmp_path, content, message):
    path = tmp_path / "file.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read(llama, path)


def test_a_file_that_is_not_there(llama, tmp_path):
    with pytest.raises(InputError, match=r"missing\.txt does not exist"):
        read(llama, tmp_path / "missing.txt")
    with pytest.raises(InputError, match=r"expected a text file, but .* is a folder"):
        read(llama, tmp_path)


@pytest.mark.parametrize("batch_first", [True, False])
def test_rows_of_plain_modules_come_first(batch_first):
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=batch_first)
    model = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    x, mask = torch.randn(3, 4, 8), torch.ones(4, 4, dtype=torch.bool).triu(1)
    per_head = mask.expand(6, 4, 4)
    given = {"src": x if batch_first else x.transpose(0, 1), "mask": mask}
    windows = read(model, given)
    assert [window.arguments["src"].shape for window in windows] == [(1, 4, 8)] * 3
    assert all(torch.equal(window.arguments["mask"][0], mask) for window in windows)
    assert [w.arguments["mask"].shape for w in read(model, {**given, "mask": per_head})] == [(1, 2, 4, 4)] * 3
    called = as_called(model, windows[1].arguments)
    assert torch.equal(called["src"], given["src"][1:2] if batch_first else given["src"][:, 1:2])
    assert torch.equal(called["mask"], mask)


def test_token_ids_get_the_name_of_the_first_parameter():
    class Own(torch.nn.Module):
        def forward(self, idx, targets=None):
            return idx

    ids = torch.arange(8).reshape(2, 4)
    for given in (ids, {"idx": ids}, {"idx": ids, "targets": ids}):
        window = read(Own(), given)[1]
        assert torch.equal(window.arguments["input_ids"], ids[1:])
        assert "idx" in as_called(Own(), window.arguments)
        assert window.labels["input"] == ("t4", "t5", "t6", "t7")


def test_the_only_text_column_is_found():
    assert column_of({"label": 1, "review": "good"}) == "review"
    assert column_of({"title": "x", "text": "y"}) == "text"


def picture(seed=0):
    return np.random.default_rng(seed).integers(0, 256, size=(20, 30, 3), dtype=np.uint8)


def pixels(windows):
    return torch.cat([window.arguments["pixel_values"] for window in windows])


def test_images_come_as_files_arrays_and_objects(vit, tmp_path):
    array = picture()
    Image.fromarray(array).save(tmp_path / "a.png")
    wanted = pixels(read(vit, array))
    assert wanted.shape == (1, 3, 16, 16)
    assert -1.0 <= float(wanted.min()) < float(wanted.max()) <= 1.0
    for other in (
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        [tmp_path / "a.png"],
        Image.fromarray(array),
        [array],
        array[None],
        array / 255.0,
    ):
        assert torch.equal(pixels(read(vit, other)), wanted)
    both = pixels(read(vit, np.stack([array, picture(1)])))
    assert both.shape == (2, 3, 16, 16)
    assert torch.equal(both[:1], wanted)


def test_pixel_values_are_taken_as_they_are(vit):
    values = torch.randn(2, 3, 16, 16)
    assert torch.equal(pixels(read(vit, values)), values)
    assert torch.equal(pixels(read(vit, {"pixel_values": values})), values)


def test_an_image_processor_is_used_if_given(vit):
    def processor(images, return_tensors):
        return {"pixel_values": torch.full((1, 3, 16, 16), float(images.size[0]))}

    assert float(pixels(read(vit, picture(), tokenizer=processor)).mean()) == 30.0


def test_patches_are_labeled_by_row_and_column(vit):
    (window,) = read(vit, picture())
    assert window.labels["pixels"][:5] == ("0,0", "0,1", "0,2", "0,3", "1,0")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("a cat", "ViTModel reads images, but 'a cat' is not an image file"),
        ("a cat " * 1000, "ViTModel reads images, but 'a cat a cat"),
        (np.zeros((4, 4, 5), np.uint8), r"must be \(height, width, 3\), .*but its shape is \(4, 4, 5\)"),
        (np.zeros((4, 4), np.float32), r"must be \(height, width, 3\)"),
        (np.full((4, 4, 3), 7.0), "floats must lie between 0 and 1"),
        (np.full((4, 4, 3), np.nan), "floats must lie between 0 and 1"),
        (np.zeros((4, 4, 3), np.int32), r"bytes \(uint8\) or floats, but its dtype is int32"),
        ([object()], "an image must be a file, an array or a PIL image, but is object"),
    ],
)
def test_images_of_the_wrong_kind(vit, inputs, message):
    with pytest.raises(InputError, match=message):
        read(vit, inputs)


def test_image_files_that_cannot_be_read(vit, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InputError, match=r"broken\.png is not a readable image"):
        read(vit, tmp_path / "broken.png")
    with pytest.raises(InputError, match=r"notes\.txt is not a readable image"):
        read(vit, tmp_path / "notes.txt")
    with pytest.raises(InputError, match=r"missing\.png does not exist"):
        read(vit, [tmp_path / "missing.png"])


def test_a_folder_of_images(vit, tmp_path):
    for number, name in enumerate(("b.png", "a.PNG", "c.png")):
        Image.fromarray(picture(number)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("hello")
    wanted = pixels(read(vit, [picture(1), picture(0), picture(2)]))
    assert torch.equal(pixels(read(vit, tmp_path)), wanted)
    assert torch.equal(pixels(read(vit, str(tmp_path), windows=2)), wanted[:2])


def test_a_folder_with_labels(tmp_path):
    classifier = ViTForImageClassification(tiny_model("ViT").config)
    classifier.config.label2id = {"cat": 0, "dog": 1}
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        Image.fromarray(picture(len(label))).save(tmp_path / label / "1.png")
    assert [int(window.arguments["labels"]) for window in read(classifier, tmp_path)] == [0, 1]
    assert all("labels" not in window.arguments for window in read(classifier, tmp_path, labels=False))
    assert len(read(tiny_model("ViT"), tmp_path)) == 2
    (tmp_path / "cat").rename(tmp_path / "cow")
    with pytest.raises(InputError, match="labels must be among cat, dog, but one is 'cow'"):
        read(classifier, tmp_path)
    assert len(read(classifier, tmp_path, labels=False)) == 2


def test_equal_windows_hash_alike(llama):
    one, two = read(llama, "abcdeabcde")
    assert one.hash() == two.hash()
    assert one.hash() != read(llama, "abcdf")[0].hash()


def test_the_name_of_a_missing_text_file_is_no_text():
    reader = InputReader(tiny_model("Llama"), Letters(), length=2)
    with pytest.raises(InputError, match=r"the text file no_such_book\.txt does not exist"):
        reader.read("no_such_book.txt")
    assert len(reader.read("See no_such_book.txt for it.")) > 0
