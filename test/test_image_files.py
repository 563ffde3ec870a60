"""Image files of every kind as a model's input, and folders and lists of them, good and bad."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from microtrain.base.errors import Error
from microtrain.samples.images import load_image
from microtrain.samples.source import read_list, scan, split

GRAY, COLOUR = (4, 5, 1), (4, 5, 3)
PLAIN = np.arange(20, dtype=np.uint8).reshape(4, 5)


def saved(folder: Path, image: Image.Image, name: str = "a.png", **options: object) -> Path:
    path = folder / name
    image.save(path, **options)  # type: ignore[arg-type]
    return path


def test_a_turned_photo_is_set_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to the right to see it
    lying = Image.fromarray(np.rot90(PLAIN).copy())
    path = saved(tmp_path, lying, exif=exif)
    assert (load_image(path, GRAY)[:, :, 0] == PLAIN).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_black(tmp_path: Path, mode: str) -> None:
    clear = Image.new("RGBA", (5, 4), (200, 100, 50, 0))
    clear.paste((200, 200, 200, 255), (0, 0, 1, 4))
    path = saved(tmp_path, clear.convert(mode))
    found = load_image(path, COLOUR)
    assert (found[:, 1:] == 0).all()
    assert (found[:, 0] == 200).all()


def test_deep_gray_is_scaled_and_not_cut(tmp_path: Path) -> None:
    deep = Image.fromarray((PLAIN.astype(np.uint16) * 257 * 12).astype(np.uint16))
    assert (load_image(saved(tmp_path, deep), GRAY)[:, :, 0] == PLAIN * 12).all()


def test_colours_become_gray_and_gray_colours(tmp_path: Path) -> None:
    gray = saved(tmp_path, Image.fromarray(PLAIN))
    assert (load_image(gray, COLOUR) == PLAIN[:, :, None]).all()
    colour = saved(tmp_path, Image.new("RGB", (5, 4), (255, 0, 0)), "c.png")
    assert (load_image(colour, GRAY) == 76).all()  # ITU-R 601: 0.299 of red


@pytest.mark.parametrize(
    ("name", "content", "shape", "sentence"),
    [
        ("none.png", None, GRAY, "no such image"),
        ("text.png", b"hello", GRAY, "cannot be read as an image: remove or replace it"),
        ("cut.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", GRAY, "cannot be read as an image"),
        ("good.png", None, (4, 5, 4), "the model takes 4 channels: image files hold 1 .gray. or 3"),
    ],
)
def test_files_that_are_no_images(
    tmp_path: Path, name: str, content: bytes | None, shape: tuple[int, int, int], sentence: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(Error, match=sentence):
        load_image(tmp_path / name, shape)


def test_an_image_that_would_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, Image.fromarray(PLAIN))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 9)
    with pytest.raises(Error, match="cannot be read as an image"):
        load_image(path, GRAY)


def folders(root: Path, counts: dict[str, int]) -> Path:
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            saved(root / name, Image.fromarray(PLAIN), f"{i}.png")
    return root


def test_every_fifth_image_is_held_out(tmp_path: Path) -> None:
    training, testing = split(folders(tmp_path, {"cat": 6, "dog": 5}), 2)
    assert [s.path.name for s in testing.samples] == ["0.png", "5.png", "0.png"]
    assert len(training.samples) == 8
    assert not {s.path for s in training.samples} & {s.path for s in testing.samples}
    assert [s.label for s in training.samples] == [0] * 4 + [1] * 4


def test_hidden_folders_and_other_files_are_no_classes(tmp_path: Path) -> None:
    root = folders(tmp_path, {"b": 1, "a": 2, ".cache": 1})
    (root / "a" / "notes.txt").write_text("")
    (root / "list.txt").write_text("")
    found = scan(root, 2)
    assert found.classes == ("a", "b")
    assert [s.label for s in found.samples] == [0, 0, 1]


@pytest.mark.parametrize(
    ("counts", "classes", "sentence"),
    [
        ({}, 2, "holds no class folders"),
        ({"a": 5, "b": 5, "c": 5}, 2, "has 3 class folders .a, b, c., but the model has 2 classes"),
        ({f"c{i}": 1 for i in range(9)}, 2, r"c5, \.\.\."),
        ({"a": 5, "b": 0}, 2, "no samples in .*b: every class needs at least one"),
        ({"a": 5, "b": 4}, 2, "class b has 4 samples: one in 5 is held out, add some"),
    ],
)
def test_folders_that_do_not_fit(tmp_path: Path, counts: dict[str, int], classes: int, sentence: str) -> None:
    with pytest.raises(Error, match=sentence):
        split(folders(tmp_path, counts), classes)


def test_a_folder_one_level_too_high(tmp_path: Path) -> None:
    folders(tmp_path / "photos", {"a": 5, "b": 5})
    with pytest.raises(Error, match=r"no samples in .*photos: .* Is .*photos meant\?"):
        split(tmp_path, 1)
    folders(tmp_path / "empty", {"a": 0})
    with pytest.raises(Error, match=r"\)\.$"):
        split(tmp_path / "empty", 1)


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Error, match="no such folder"):
        split(tmp_path / "nowhere", 2)


def test_halves_must_have_the_same_classes(tmp_path: Path) -> None:
    folders(tmp_path / "train", {"a": 1, "b": 1})
    with pytest.raises(Error, match=r"no such folder: .*val"):
        split(tmp_path, 2)
    folders(tmp_path / "test", {"a": 1, "c": 1})
    with pytest.raises(Error, match="trains and tests with different classes: name them alike"):
        split(tmp_path, 2)


def test_lists_name_what_is_learned_and_tested(tmp_path: Path) -> None:
    folders(tmp_path, {"a": 3, "b": 3})
    (tmp_path / "train.txt").write_text("b/0.png\n\na/1.png\n")
    (tmp_path / "val.txt").write_text("a/2.png\nb/2.png\n")
    training, testing = split(tmp_path, 2)
    assert [(s.path.parent.name, s.label) for s in training.samples] == [("b", 1), ("a", 0)]
    assert len(testing.samples) == 2
    assert read_list(tmp_path / "train.txt", None).classes == ("a", "b")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a/9.png\n", "names 'a/9.png', which is no sample CLASS/FILE"),
        ("picture.png\n", "names 'picture.png', which is no sample CLASS/FILE"),
        ("a/0.png\n", "names 1 classes .a., but the model has 2 classes: list as many"),
        (b"\xff\xfe", "cannot be read as a list of samples, a line CLASS/FILE each"),
    ],
)
def test_lists_that_do_not_fit(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    folders(tmp_path, {"a": 1, "b": 1})
    (tmp_path / "train.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Error, match=sentence):
        read_list(tmp_path / "train.txt", 2)
