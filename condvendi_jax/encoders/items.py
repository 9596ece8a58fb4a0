"""A user's own prompts, texts and pictures: reading them, and which belongs to which."""

from __future__ import annotations

import collections
import csv
import io
import json
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax import _extras, files, validation

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff")
UNREAD_ENDINGS = (".heic", ".heif", ".avif", ".svg", ".psd", ".jxl", ".jp2", ".eps", ".dng", ".raw")
"""Pictures that Pillow cannot decode in every installation."""
_ALL_ENDINGS = IMAGE_ENDINGS + UNREAD_ENDINGS
PROMPT_COLUMNS = ("prompt", "question", "caption", "text")
TEXT_COLUMNS = ("output", "response", "answer", "completion", "text")
IMAGE_COLUMNS = (
    *("image", "file", "filename", "file_name", "image_path", "image_file", "image_name"),
    *("img", "img_path", "picture", "filepath", "file_path", "path"),
)
_DECIMAL = re.compile(r"[-+]?\d*\.\d+(e[-+]?\d+)?|[-+]?\d+e[-+]?\d+", re.IGNORECASE)
_NUMBER = re.compile(rf"[-+]?\d+|{_DECIMAL.pattern}", re.IGNORECASE)
_TABLES = (".txt", ".csv", ".jsonl")
_SHOWN = 3


class Table(NamedTuple):
    """A file of texts: its columns' names, and the first line and the cells of each row.

    A .txt file has no columns; its cells have the name "".
    """

    path: pathlib.Path
    columns: list[str]
    rows: list[tuple[int, Mapping[str, Any]]]


class Texts(NamedTuple):
    """Texts in the order of their file, and the name of their column ("" in a .txt file)."""

    texts: list[str]
    column: str
    table: Table


def read_prompts(path: str | PathLike[str], *, column: str | None = None) -> Texts:
    """Reads prompts, in UTF-8.

    Args:
      path: a .txt file of one prompt a line, a .csv file with a header, or a .jsonl file of one
        object a line.
      column: the column, or key, of the prompts; if unset, the first of `PROMPT_COLUMNS` there.

    Returns:
      At least one prompt; none is blank.

    Raises:
      ValueError: the file is missing, of another format, not UTF-8, empty or malformed; it has no
        such column, a blank prompt, or an array of numbers in the place of texts. The message
        gives the path and the line.
    """
    return _read_texts(path, column, PROMPT_COLUMNS, "prompts", blank=False)


def read_texts(path: str | PathLike[str], *, column: str | None = None) -> Texts:
    """Reads outputs that are texts, as `read_prompts`, but a text may be empty.

    The column is the first of `TEXT_COLUMNS` if unset.
    """
    return _read_texts(path, column, TEXT_COLUMNS, "texts", blank=True)


def _read_texts(
    path: str | PathLike[str], named: str | None, names: Sequence[str], what: str, *, blank: bool
) -> Texts:
    table = _read_table(path)
    column = _column(table, named, names, what)
    texts = _values(table, column, blank=blank)
    if not table.columns:
        _refuse_numbers(table.path, texts)
    return Texts(texts, column, table)


def _refuse_numbers(path: pathlib.Path, texts: Sequence[str]) -> None:
    """Refuses lines as `numpy.savetxt` writes them: numbers alone, in every line.

    Two of them in a line or more, and decimal ones among them; or one, in scientific notation.
    Comments may stand before them. Integers, or a single number such as 0.5, may be texts.
    """
    rows = [text.replace(",", " ").split() for text in texts]
    rows = rows[next((k for k, row in enumerate(rows) if not (row and row[0][0] == "#")), 0) :]
    words = [word for row in rows for word in row]
    several = min(map(len, rows)) > 1 and any(_DECIMAL.fullmatch(word) for word in words)
    scientific = bool(words) and all("e" in word.lower() for word in words)
    if (several or scientific) and all(_NUMBER.fullmatch(word) for word in words):
        raise ValueError(
            f"{path}: expected texts, but each line holds numbers alone, as an array of "
            "numbers does. If this is an array, save it with numpy.save as a .npy file, for "
            f"example {files.convert_command(path)}. If these are texts, put them into a "
            ".csv file with a header."
        )


def _read_table(path: str | PathLike[str]) -> Table:
    path = files.expanded(path)
    suffix = path.suffix.lower()
    if suffix not in _TABLES:
        raise ValueError(f"{path}: expected a file ending in {', '.join(_TABLES)}.")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file.")
    text = files.read_text(path)
    if suffix == ".txt":
        lines = files.numbered_lines(path, text)
        table = Table(path, [], [(number, {"": line}) for number, line in lines])
    else:
        table = (_read_csv if suffix == ".csv" else _read_jsonl)(path, text)
    if not table.rows:
        raise ValueError(f"{path}: holds no rows.")
    return table


def _read_csv(path: pathlib.Path, text: str) -> Table:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: list[str] = []
    rows = []
    line = 1
    try:
        for cells in reader:
            if not cells:
                raise ValueError(f"{path}, line {line}: is blank.")
            if not columns:
                columns = cells
                if repeated := _repeated(columns):
                    raise ValueError(f"{path}, line 1: names the column {repeated[0]!r} twice.")
            elif len(cells) != len(columns):
                numbers = f"{len(cells)} cells, the header {len(columns)}"
                raise ValueError(f"{path}, line {line}: holds {numbers}.")
            else:
                rows.append((line, dict(zip(columns, cells, strict=True))))
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {line}: {error}.") from error
    return Table(path, columns, rows)


def _read_jsonl(path: pathlib.Path, text: str) -> Table:
    rows = []
    for number, line in files.numbered_lines(path, text):
        try:
            row = json.loads(line, object_pairs_hook=unique_keys)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: is not JSON ({error}).") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: expected an object {{...}}.")
        rows.append((number, row))
    # Of any row: one that lacks what others have is named, not passed over.
    return Table(path, list(dict.fromkeys(name for _, row in rows for name in row)), rows)


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; raises ValueError where a key stands twice, of which `json` drops one."""
    if repeated := _repeated(name for name, _ in pairs):
        raise ValueError(f"the key {repeated[0]!r} stands twice in one object")
    return dict(pairs)


def _known(table: Table, names: Sequence[str]) -> list[str]:
    """The table's columns among `names`, in the order of `names`."""
    plain = {column.strip().casefold(): column for column in reversed(table.columns)}
    return [plain[name] for name in names if name in plain]


def _column(table: Table, named: str | None, names: Sequence[str], what: str) -> str:
    """The column that is named, or else the first of `names`; '' in a .txt file."""
    if not table.columns:
        if named is not None:
            raise ValueError(f"{table.path}: has no columns, received {named!r} for its {what}.")
        return ""
    found = [column for column in table.columns if column == named] or _known(table, names)
    if not found or named not in (None, found[0]):
        if named is None and all(map(_NUMBER.fullmatch, table.columns)):
            raise ValueError(
                f"{table.path}: expected a header and texts, but its first line holds numbers "
                "alone. If this is an array, save it as a .npy file: "
                f"{files.convert_command(table.path)}"
            )
        wanted = repr(named) if named is not None else " or ".join(names)
        raise ValueError(
            f"{table.path}: has no column {wanted} for its {what}; the columns found are "
            f"{', '.join(table.columns)}."
        )
    return found[0]


def _values(table: Table, column: str, *, blank: bool) -> list[str]:
    values = []
    for line, row in table.rows:
        value = row.get(column)
        where = f"{table.path}, line {line}"
        if not isinstance(value, str):
            what = "nothing" if column not in row else json.dumps(value)
            raise ValueError(f"{where}: expected a text in {column!r}, found {what}.")
        if not (blank or value.strip()):
            raise ValueError(f"{where}: {column!r} is blank.")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"{where}: {column!r} holds half of a surrogate pair.")
        values.append(value)
    return values


def pictures(folder: str | PathLike[str]) -> list[pathlib.Path]:
    """All pictures of a folder by their endings, in no order; none where there is no folder."""
    folder = files.expanded(folder)
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.name.lower().endswith(_ALL_ENDINGS)]


def list_images(folder: str | PathLike[str]) -> list[pathlib.Path]:
    """Returns the pictures of a folder in natural order: `img2` comes before `img10`.

    Hidden files are ignored. Pictures in the folders below, and pictures with an ending of
    `UNREAD_ENDINGS`, are left out with a warning.

    Raises:
      ValueError: there is no such folder, or no picture in it.
    """
    folder = files.expanded(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder.")
    inside = [path for path in folder.iterdir() if path.name[0] != "." and path.is_file()]
    images = [path for path in inside if path.name.lower().endswith(IMAGE_ENDINGS)]
    left_out = []
    if unread := sorted(path.name for path in inside if path.name.lower().endswith(UNREAD_ENDINGS)):
        left_out.append(
            f"{_count(len(unread), 'picture')} of {folder} cannot be decoded and will be left out: "
            f"{_some(unread)}. Convert such files to .png."
        )
    if below := _below(folder):
        left_out.append(
            f"{_count(sum(below), 'picture')} in {_count(len(below), 'folder')} below {folder} "
            "will be left out. Only pictures in the folder itself are read."
        )
    if not images:
        endings = ", ".join(IMAGE_ENDINGS)
        raise ValueError(" ".join([f"{folder}: holds no pictures ({endings}).", *left_out]))
    for message in left_out:
        validation.warn(message)
    return sorted(images, key=_natural)


def _below(folder: pathlib.Path) -> list[int]:
    """How many pictures each of the folders below holds, of those that hold any."""
    counts = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] != "."]
        if root != str(folder):
            shown = [name for name in names if name[0] != "."]
            counts.append(sum(name.lower().endswith(_ALL_ENDINGS) for name in shown))
    return [count for count in counts if count]


def _count(number: int, noun: str) -> str:
    """For example `1 picture` or `12 pictures`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _natural(path: pathlib.Path) -> tuple[list[Any], str]:
    # Splitting at a group alternates: texts at even places, digits at odd ones.
    parts: list[Any] = re.split(r"(\d+)", path.name.casefold())
    parts[1::2] = map(int, parts[1::2])
    return parts, path.name


def pair_images(
    prompts: Texts, images: Sequence[pathlib.Path], *, column: str | None = None
) -> tuple[list[pathlib.Path], str | None]:
    """Pairs pictures with prompts: by the column that names the pictures, or else by order.

    The column is `column`; or the first of `IMAGE_COLUMNS` that names pictures; or any other column
    whose cells all name pictures. Order pairs them only where no column names pictures.

    Args:
      prompts: n prompts.
      images: the pictures of one folder. Those that the column does not name are left out, with a
        warning.
      column: the column that names the pictures, with or without folders and endings.

    Returns:
      n pictures, in the order of the prompts, and the column; None if order paired them.

    Raises:
      ValueError: the column is missing, or two columns pair differently; a picture is named twice
        or is not there; or order pairs them, and their numbers differ.
    """
    path = prompts.table.path
    find = _finder(images)
    if column is not None:
        column = _column(prompts.table, column, (), "pictures")
    else:
        known = [name for name in _known(prompts.table, IMAGE_COLUMNS) if name != prompts.column]
        named = (name for name in known if all(map(find, _names(prompts.table, name))))
        column = next(named, known[0]) if known else _naming_column(prompts, find)
    if column is None:
        _check_numbers(prompts, [image.name for image in images], what="pictures")
        return list(images), None
    names = _names(prompts.table, column)
    for (line, _), name in zip(prompts.table.rows, names, strict=True):
        if not name:
            raise ValueError(f"{path}, line {line}: expected the name of a picture in {column!r}.")
    paired = [image for image in map(find, names) if image is not None]
    if len(paired) < len(names):
        absent = [name for name in names if find(name) is None]
        raise ValueError(
            f"{path}: column {column!r} should name pictures, but {len(absent):,} of "
            f"{len(names):,} names match no picture in the folder: {_some(absent)}. A name without "
            "its ending must match exactly one picture. Correct the names, choose another column "
            "with --image_column, or remove this column to pair pictures by order."
        )
    if repeated := _repeated(image.name for image in paired):
        raise ValueError(f"{path}: column {column!r} names pictures twice: {_some(repeated)}.")
    taken = set(paired)
    if left := [image.name for image in images if image not in taken]:
        validation.warn(
            f"{path} does not name {len(left):,} of {len(images):,} pictures, which are left out: "
            f"{_some(left)}."
        )
    return paired, column


def _finder(images: Sequence[pathlib.Path]) -> Callable[[str], pathlib.Path | None]:
    """Finds a picture by its name, or by its name without the ending where that is unique."""
    stems = collections.Counter(image.stem for image in images)
    found = {image.stem: image for image in images if stems[image.stem] == 1}
    found |= {image.name: image for image in images}
    return found.get


def _names(table: Table, column: str) -> list[str]:
    """The last path part of every cell; empty where the cell holds neither a text nor a number."""
    cells = (row.get(column) for _, row in table.rows)
    texts = (str(cell).strip() if type(cell) in (str, int) else "" for cell in cells)
    return [re.split(r"[/\\]", text)[-1] for text in texts]


def _naming_column(prompts: Texts, find: Callable[[str], pathlib.Path | None]) -> str | None:
    """The column, of any name, that names pictures; refuses several that pair differently."""
    pairings: dict[str, list[pathlib.Path | None]] = {}
    unpaired = []
    for column in prompts.table.columns:
        if column == prompts.column:
            continue
        names = _names(prompts.table, column)
        found = [find(name) for name in names]
        if None not in found and len(set(found)) == len(found):
            pairings[column] = found
        elif any(names) and all(name.lower().endswith(_ALL_ENDINGS) for name in names if name):
            unpaired.append(column)
    if any(found != next(iter(pairings.values())) for found in pairings.values()):
        raise ValueError(
            f"{prompts.table.path}: the columns {', '.join(pairings)} name pictures, but pair them "
            "differently with the prompts; choose one with --image_column."
        )
    return next(iter([*pairings, *unpaired]), None)


def pair_texts(prompts: Texts, texts: Texts) -> None:
    """Raises ValueError for the prompts' own column, or a number of texts that is not theirs."""
    path, columns = prompts.table.path, prompts.table.columns
    if prompts.column == texts.column and os.path.samefile(path, texts.table.path):
        if not columns:
            raise ValueError(
                f"{path}: is both the texts and their prompts. A .txt file has only one column; "
                "give two files, or a .csv or .jsonl file with a column for each."
            )
        raise ValueError(
            f"{path}: the column {texts.column!r} is both the texts and their prompts; the columns "
            f"found are {', '.join(columns)}. Choose two with --prompt_column and --text_column."
        )
    _check_numbers(prompts, texts.texts, what="texts")


def _check_numbers(prompts: Texts, items: Sequence[str], *, what: str) -> None:
    if len(items) != len(prompts.texts):
        raise ValueError(
            f"{prompts.table.path}: holds {len(prompts.texts):,} prompts for {len(items):,} "
            f"{what}; the first are {prompts.texts[0]!r} and {items[0]!r}."
        )


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in collections.Counter(names).items() if count > 1]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def decode_image(content: bytes, *, name: str, side: int | None = None) -> np.ndarray:
    """A picture as colours, the way that a viewer shows it.

    It is turned as its EXIF orientation says, put on white where it is transparent; of an animation
    the first frame is taken. Colour profiles are not applied.

    Args:
      content: what the file holds.
      name: of the file, for errors.
      side: the shorter side is resampled (bicubic) to this many pixels and the middle square is cut
        out. If unset, the picture keeps its size.

    Returns:
      uint8 `[height, width, 3]`, or `[side, side, 3]`.

    Raises:
      ValueError: it cannot be decoded, or Pillow is not installed.
    """
    with _extras.needed("embed", package="Pillow", purpose="decoding pictures"):
        from PIL import Image, ImageOps
    try:
        with Image.open(io.BytesIO(content)) as opened:
            picture = ImageOps.exif_transpose(opened)
            if picture.mode == "F":  # Pillow would clip it: 0..1 would become black.
                raise ValueError("expected colours of 8 or 16 bits, received real numbers.")
            if picture.mode.startswith("I"):  # Grey of 16 or 32 bits, which Pillow would clip to 8.
                grey = np.asarray(picture).astype(np.int64)
                if grey.min() < 0 or grey.max() > 65535:
                    raise ValueError("expected colours of 8 or 16 bits, received wider integers.")
                scale = 257 if grey.max() > 255 else 1  # Of 16 bits, 0 to 255 would be all black.
                picture = Image.fromarray((grey // scale).astype(np.uint8))
            if picture.has_transparency_data:
                white = Image.new("RGBA", picture.size, "white")
                picture = Image.alpha_composite(white, picture.convert("RGBA"))
            picture = picture.convert("RGB")
            if side is not None:
                picture = ImageOps.fit(picture, (side, side), Image.Resampling.BICUBIC)
            return np.array(picture)
    except Exception as error:  # Damaged pictures fail in any of the decoders' ways.
        raise ValueError(f"{name}: cannot be decoded as a picture: {error}") from error
