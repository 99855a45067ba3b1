"""Everything a user may hand over becomes windows, or one clear error."""

import numpy as np
import pytest
import torch
from PIL import Image

from headscape.errors import InputError
from headscape.recorder.inputs import InputReader
from headscape.recorder.text import Tokens, column_of, special_tokens, token_labels
from tiny_models import VOCAB, tiny_model, token_ids


class Letters:
    """A tokenizer whose tokens are letters; it puts 1 before and 2 after a text if told to."""

    def __init__(self, special=False):
        self.special = special

    def __call__(self, text, add_special_tokens=True, **_):
        ids = [4 + ord(letter) % 40 for letter in text]
        return {"input_ids": [1, *ids, 2] if self.special and add_special_tokens else ids}

    def convert_ids_to_tokens(self, ids):
        return [f"<{i}>" for i in ids]

    def decode(self, ids):
        return "\ufffd" if ids[0] < 4 else f"t{ids[0]}"


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


def test_a_text_is_cut_into_consecutive_windows(llama):
    letters = [4 + ord(letter) % 40 for letter in "abcdefghijklm"]
    assert ids_of(read(llama, "abcdefghijklm")) == [letters[:5], letters[5:10]]
    assert ids_of(read(llama, "abcdefghijklm", windows=1)) == [letters[:5]]
    assert ids_of(read(llama, "abcdefghijklm", length=None)) == [letters]
    assert len(read(llama, "a" * 1000)) == 6


@pytest.mark.parametrize("kind", [list, tuple, np.asarray, torch.as_tensor])
def test_a_run_of_token_ids_is_cut_into_as_many_windows_as_asked_for(llama, kind):
    run = list(range(4, 30))
    assert ids_of(read(llama, kind(run), windows=3)) == [run[:5], run[5:10], run[10:15]]


def test_special_tokens_go_around_every_window(llama):
    windows = read(llama, "abcdefg", tokenizer=Letters(special=True))
    assert [ids[0] for ids in ids_of(windows)] == [1, 1]
    assert [ids[-1] for ids in ids_of(windows)] == [2, 2]
    assert {len(ids) for ids in ids_of(windows)} == {5}
    assert special_tokens(Letters(special=True)) == ((1,), (2,))
    with pytest.raises(InputError, match="room for 2 special tokens of this tokenizer, but is 2"):
        read(llama, "abcdefg", tokenizer=Letters(special=True), length=2)


def test_files_are_read(llama, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcdefg", encoding="utf-8")
    assert ids_of(read(llama, path)) == ids_of(read(llama, str(path))) == ids_of(read(llama, "abcdefg"))


@pytest.mark.parametrize(
    "rows", [["abcdefg", "hijklmn"], [{"text": "abcdefg", "id": 1}, {"text": "hijklmn", "id": 2}]]
)
def test_lists_and_dataset_rows_are_a_window_each(llama, rows):
    assert ids_of(read(llama, rows)) == ids_of(read(llama, "abcde")) + ids_of(read(llama, "hijkl"))
    joined = ids_of(read(llama, rows, join=True))
    assert len(joined) == 3
    assert [token for ids in joined for token in ids] == ids_of(read(llama, "abcdefg\n\nhijklmn", length=15))[
        0
    ]
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
        ("abc", {}, r"the text has 3 tokens, but one window needs 5\. Give more text, or a smaller length"),
        ("   ", {}, "the text is empty"),
        (
            "abcdefghijk",
            {"windows": 3},
            r"3 windows were asked for, but the input has only 2 \(of 5 tokens\)",
        ),
        (["abcdef", "abc"], {}, r"text 1 of the list \(join=True .* has 3 tokens, but one window needs 5"),
        ([], {}, "the list of inputs is empty"),
        (7, {}, "inputs must be text, a file, .*, but is int"),
        ("abcdef", {"length": 0}, "length must be a whole number from 1 up, but is 0"),
        ("abcdef", {"windows": 1.5}, "windows must be a whole number from 1 up, but is 1.5"),
        ("abcdef", {"tokenizer": None}, "text needs a tokenizer"),
        ("a" * 100, {"length": 65}, "at most 64 tokens, but a window has 65"),
        (np.array([[1, VOCAB]]), {}, "token ids must be from 0 to 47, but they go from 1 to 48"),
        ([[1, -2]], {}, "token ids must be from 0 to 47"),
        ([[1, 2], ["a"]], {}, "rows of whole numbers"),
        (
            {"input_ids": [[1, 2]], "attention_mask": [[1, 1], [1, 1]]},
            {},
            "same number of rows in every entry",
        ),
        ([{"a": "x", "b": "y"}], {}, r"must have a text column \(text, .*but has a, b"),
        (
            np.zeros((4, 4, 3), np.uint8),
            {},
            "images need a model that looks at images, but LlamaModel reads input_ids",
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
        (bytes(range(256)), "no text file"),
        (b"ab\0cd", "no text file"),
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
    with pytest.raises(InputError, match="cannot be read"):
        read(llama, tmp_path)


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
        ("a cat", "looks at images, but 'a cat' is no image file"),
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
    with pytest.raises(InputError, match=r"broken\.png is no image that can be read"):
        read(vit, tmp_path / "broken.png")
    with pytest.raises(InputError, match=r"notes\.txt is no image that can be read"):
        read(vit, tmp_path / "notes.txt")
    with pytest.raises(InputError, match=r"missing\.png does not exist"):
        read(vit, [tmp_path / "missing.png"])


def test_pieces_leave_the_rest_out():
    pieces = list(Tokens(np.arange(7)).pieces(3, "x"))
    assert [piece.tolist() for piece in pieces] == [[0, 1, 2], [3, 4, 5]]


def test_equal_windows_hash_alike(llama):
    one, two = read(llama, "abcdeabcde")
    assert one.hash() == two.hash()
    assert one.hash() != read(llama, "abcdf")[0].hash()


def test_the_name_of_a_missing_text_file_is_no_text():
    reader = InputReader(tiny_model("Llama"), Letters(), length=2)
    with pytest.raises(InputError, match=r"the text file no_such_book\.txt does not exist"):
        reader.read("no_such_book.txt")
    assert len(reader.read("See no_such_book.txt for it.")) > 0
